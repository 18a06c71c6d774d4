"""Three words that stand for a result: a room reads them aloud and knows whether everybody sees the same numbers."""

from __future__ import annotations

import hashlib
import json
import math

from gradlab.capture import OutputGradient, ParameterGradient
from gradlab.experiment import ExperimentResult
from gradlab.spec import Precision

STEP = 1e-3
"""The readings enter as one sum of logarithms, rounded to this."""
FLOOR = {Precision.FLOAT32: 1e-37, Precision.FLOAT64: 1e-306}
"""Means below it count as this: there numbers lose their digits one by one, on some processors at once."""

# Short, without two that sound alike.
_LIST = """
acid actor album amber angel apple april apron arena arrow atlas attic award bacon badge bagel baker bamboo banana banjo
barrel basket beach beard berry bishop bridge bronze brush bubble bucket budget butter button cabin cactus camel camera
canal candle canyon carpet carrot castle cement chalk cheese cherry chess circle circus citrus clinic clock cloud clover
coast cobra coffee comet copper coral corner cotton crater crayon daisy dancer desert dinner doctor donkey dragon drawer
drum eagle earth easel echo elbow eleven engine falcon farmer fence fiddle finger flag flute forest fossil fox galaxy
garage garden garlic glove goblin golden grape guitar hammer harbor hazel helmet hero hockey honey hotel igloo indigo
insect iron island ivory jacket jaguar jelly jewel jigsaw jungle kernel kettle kite koala ladder lagoon laptop lemon
letter lizard locket lunch magnet mango maple marble market meadow melon mirror moon mosaic motor muffin museum napkin
needle nest ninety noodle north oasis ocean office olive onion opera orange orbit orchid otter owl oyster paddle palace
panda paper pebble pencil pepper piano pickle picnic pigeon pillow pilot pirate planet plum poem potato prism puppet
purple puzzle quartz queen quilt rabbit radar radio raft raven ribbon river robin robot roof rose rubber ruby sailor salad
salmon sandal satin scarf school sesame shadow shark silver skate sofa spider spoon square squid statue stone summer
sunset syrup table teapot temple tennis ticket tiger tomato torch tower train tulip tunnel turtle uncle valley velvet
violin waffle wagon walnut walrus water whale window winter wolf yacht yellow yogurt zebra zigzag zipper
"""
WORDS = tuple(_LIST.split())


def fingerprint(result: ExperimentResult) -> str:
    """Three words, such as `otter-lemon-piano`, made of the specification and of every reading's mean |gradient|.

    Two results have different fingerprints if their specifications differ, if one reading is off by 0.2 % or more, or if one
    is zero, missing or non-finite in only one of them; by chance they have the same in one of 16.8 million cases.

    Processors and versions of PyTorch disagree in the last digits. Rounding every reading would let each of them cross a
    boundary; here their logarithms are added, each with a weight of its own so that errors do not cancel, and only the sum
    is rounded. Relative differences of up to 1e-7 in each of n readings change the words in a share of 0.007 % × √n of all
    experiments: 3 in 10,000 for five layers, 2 in 1,000 for two hundred. Where weights or sizes make the forward run overflow
    or cancel, processors may disagree by more. So different words are a reason to compare the numbers, not yet a mistake.
    """
    readings: list[OutputGradient | ParameterGradient] = [*result.outputs, *result.parameters]
    marks = [_mark(reading) for reading in readings]
    floor = FLOOR[result.spec.network.dtype]
    total = math.fsum(
        _weight(place) * math.log(max(reading.statistics.mean_abs, floor))
        for place, reading in enumerate(readings)
        if reading.statistics is not None and reading.statistics.mean_abs > 0
    )
    told = json.dumps([result.spec.to_dict(), marks, round(total / STEP)])
    return "-".join(WORDS[byte] for byte in hashlib.sha256(told.encode()).digest()[:3])


def _mark(reading: OutputGradient | ParameterGradient) -> str:
    """What a reading is where it is not an ordinary number: exact, as no rounding turns one into the other."""
    if reading.statistics is None:
        return "missing"
    if reading.statistics.nonfinite_count:
        return "non-finite"
    return "" if reading.statistics.mean_abs else "zero"


def _weight(place: int) -> float:
    """A weight from 1 to 2, by the golden ratio, which spreads them evenly."""
    return 1 + place * 0.618_033_988_749_894_9 % 1
