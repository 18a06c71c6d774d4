"""What the questions and the challenge read off a result: the trail, its trend, and where two trails part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from gradlab.comparison import FIELD_TITLES
from gradlab.diagnosis import Diagnosis, Verdict, diagnose, per_layer_factor
from gradlab.experiment import ExperimentResult
from gradlab.text import short_number
from gradlab.trail import Quantity, in_order_of_arrival, layer_of, reading_and_mark

NOUNS = {Quantity.WEIGHTS: "weight gradient", Quantity.OUTPUTS: "output gradient"}


class Trend(StrEnum):
    """The direction of a sustained trend from the output end to the input end."""

    GROWS = "grows"
    SAME = "same"
    SMALLER = "smaller"


TREND_OF = {
    Verdict.VANISHING: Trend.SMALLER,
    Verdict.WEAKENING: Trend.SMALLER,
    Verdict.STEADY: Trend.SAME,
    Verdict.GROWING: Trend.GROWS,
    Verdict.EXPLODING: Trend.GROWS,
}
"""The verdicts that say anything about a trend; the rest say that none can be judged."""
TREND_WORDS = {Trend.GROWS: "grows", Trend.SAME: "stays about the same", Trend.SMALLER: "becomes smaller"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The mean absolute gradient of one layer; `mark` is "" for a number above zero, else zero, missing or non-finite."""

    layer: str
    value: float
    mark: str

    def __str__(self) -> str:
        return f"`{self.layer}` ({self.mark or short_number(self.value)})"


def readings(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> tuple[Reading, ...]:
    """One reading per layer in order of arrival: the output end first."""
    found = []
    for record in in_order_of_arrival(result, quantity):
        value, mark = reading_and_mark(record)
        found.append(Reading(layer=layer_of(record.layer), value=value, mark=mark))
    return tuple(found)


def diagnosis_of(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> Diagnosis:
    """The verdict on one of the two gradients."""
    return diagnose(result, gradient=quantity)


def trend(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> Trend | None:
    """The direction of the trend over the hidden layers; None where none can be judged."""
    return TREND_OF.get(diagnosis_of(result, quantity).verdict)


def hidden(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> tuple[Reading, ...]:
    """The readings of the layers a trend was fitted to, in order of arrival."""
    fitted = {layer_of(name) for name in diagnosis_of(result, quantity).fitted_layers}
    return tuple(reading for reading in readings(result, quantity) if reading.layer in fitted)


def listing(items: Sequence[object]) -> str:
    """The items in words; of many only the first two and the last."""
    shown = [str(item) for item in items]
    if len(shown) > 4:
        return f"{shown[0]}, {shown[1]}, … {shown[-1]}"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


# --- why something cannot be asked ------------------------------------------------------------------------------------


def why_no_trend(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> str:
    """Why there is no trend to ask about; "" where there is one."""
    found = diagnosis_of(result, quantity)
    return "" if found.verdict in TREND_OF else f"There is no trend to ask about. {found.sentence}"


def why_gaps(result: ExperimentResult, fewest: int = 2) -> str:
    """Why the weight readings cannot be compared one by one; "" where all of them are numbers above zero."""
    trail = readings(result)
    if len(trail) < fewest:
        return f"This needs at least {fewest} layers; the network has {len(trail)}."
    gaps = [reading for reading in trail if reading.mark]
    return f"The chart has gaps, so steps cannot be compared: {listing(gaps)}." if gaps else ""


# --- where two trails part --------------------------------------------------------------------------------------------

OFF_THE_LINE = math.log10(2)
"""A reading is off the line from twofold on: the same factor at which a verdict leaves `steady`."""


class Direction(StrEnum):
    """How the trail with shortcuts departs from steady shrinking."""

    LEVELS_OFF = "levels_off"
    GROWS = "grows"
    SHRINKS_SLOWER = "shrinks_slower"
    SHRINKS_FASTER = "shrinks_faster"
    GOES_ON = "goes_on"


DIRECTION_TITLES = {
    Direction.LEVELS_OFF: "It levels off: above the line, and it holds",
    Direction.GROWS: "It turns round: above the line, and it grows",
    Direction.SHRINKS_SLOWER: "It goes on shrinking, more slowly: above the line",
    Direction.SHRINKS_FASTER: "It goes on shrinking, faster: below the line",
    Direction.GOES_ON: "It does not depart: it shrinks along the line",
}


@dataclass(frozen=True, kw_only=True)
class Departure:
    """Where the trail with shortcuts leaves the line it would follow if it shrank as steadily as the plain one.

    The line starts at the trail's own first hidden reading and falls by `rate` per layer: the factor of the plain
    network's readings, found as the verdict's is but from the mean absolute values that a chart shows. `place` is the
    first layer from which on every reading lies off the line, all on one side and by more than twofold; None where there
    is no such layer.
    """

    hidden: tuple[Reading, ...]
    line: tuple[float, ...]
    rate: float
    place: int | None
    direction: Direction
    shortcut: Diagnosis

    @property
    def layer(self) -> str:
        """The name of the layer; "" where the trail does not depart."""
        return "" if self.place is None else self.hidden[self.place].layer


def departure(plain: ExperimentResult, shortcut: ExperimentResult) -> Departure:
    """Where and how the second trail of weight gradients departs from the steady shrinking of the first.

    Only for a pair that `why_no_departure` has nothing against.
    """
    with_shortcuts, trail = diagnosis_of(shortcut), hidden(shortcut)
    depths = [_depth(reading) for reading in trail]
    without = hidden(plain)
    rate = per_layer_factor([_depth(reading) for reading in without], [reading.value for reading in without])
    slope = math.log10(rate)
    start = math.log10(trail[0].value)
    line = [start + slope * (depths[0] - depth) for depth in depths]
    off = [math.log10(reading.value) - expected for reading, expected in zip(trail, line, strict=True)]
    place, above = _sustained(off)
    return Departure(
        hidden=trail,
        line=tuple(10**value for value in line),
        rate=rate,
        place=place,
        direction=_direction(place, above, TREND_OF[with_shortcuts.verdict]),
        shortcut=with_shortcuts,
    )


def _depth(reading: Reading) -> int:
    return int(reading.layer.split(".")[1])


def _sustained(off: Sequence[float]) -> tuple[int | None, bool]:
    """The first place from which on all values are beyond the limit on the side of the last one, and whether above."""
    above = off[-1] > 0
    place = len(off)
    while place and (off[place - 1] if above else -off[place - 1]) > OFF_THE_LINE:
        place -= 1
    return (place, above) if place < len(off) else (None, above)


def _direction(place: int | None, above: bool, trend_with_shortcuts: Trend) -> Direction:
    if place is None:
        return Direction.GOES_ON
    if not above:
        return Direction.SHRINKS_FASTER
    return {
        Trend.SAME: Direction.LEVELS_OFF,
        Trend.GROWS: Direction.GROWS,
        Trend.SMALLER: Direction.SHRINKS_SLOWER,
    }[trend_with_shortcuts]


def differing(plain: ExperimentResult, shortcut: ExperimentResult) -> tuple[str, ...]:
    """The fields in which two experiments differ, named as in the CSV."""
    first, second = plain.spec.to_dict(), shortcut.spec.to_dict()
    return tuple(name for name in first if first[name] != second[name])


def why_no_pair(plain: ExperimentResult, shortcut: ExperimentResult) -> str:
    """Why these two are no network without and the same one with shortcuts; "" where they are."""
    others = [name for name in differing(plain, shortcut) if name != "use_shortcut"]
    if others:
        titles = [FIELD_TITLES[name] for name in others]
        return f"This is no comparison of shortcuts: the two networks also differ in {listing(titles)}."
    if plain.spec.network.use_shortcut or not shortcut.spec.network.use_shortcut:
        return "This needs two networks, the first without shortcuts and the second with them."
    sizes = plain.spec.network.layer_sizes
    if all(first != second for first, second in pairwise(sizes)):
        return "No layer keeps the width of its input, so no shortcut is added and both networks are the same."
    return ""


def why_no_departure(plain: ExperimentResult, shortcut: ExperimentResult) -> str:
    """Why it cannot be asked where the trail with shortcuts departs from steady shrinking; "" where it can."""
    if why_not := why_no_pair(plain, shortcut):
        return why_not
    for name, result in (("without", plain), ("with", shortcut)):
        found = diagnosis_of(result)
        if found.verdict not in TREND_OF:
            return f"The network {name} shortcuts has no trend to compare. {found.sentence}"
    layers, others = ([reading.layer for reading in hidden(result) if not reading.mark] for result in (plain, shortcut))
    if layers != others:
        return "The two trails have gaps at different hidden layers, so they cannot be compared."
    if trend(plain) is not Trend.SMALLER:
        return f"Without shortcuts nothing shrinks here, so there is nothing to depart from. {diagnosis_of(plain).sentence}"
    found_place = departure(plain, shortcut)
    expected = Trend.SMALLER if found_place.place is None or found_place.direction is Direction.SHRINKS_FASTER else None
    if expected and trend(shortcut) is not expected:
        return "The two trails are too close to say where they part: no reading near the input end is off by more than twofold."
    return ""
