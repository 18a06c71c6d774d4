"""Where two trails part, followed from the output end."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradlab.experiment import ExperimentResult
from gradlab.flags import Gradient, layer_gradients
from gradlab.text import short_number
from gradlab.trail import Quantity

PARTING_FACTOR = 2.0
"""Two trails have parted where one keeps more than this many times what the other keeps of its output end's gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where two trails part, each measured against its own reading at the output end; None where they do not."""

    layer_a: str | None
    """The first layer, from the output end, from which on they stay apart, as far as both go."""
    layer_b: str | None
    times: float | None
    """How many times as much b keeps as a where they are last seen; infinity where a has exactly zero. None if unknown."""
    sentence: str


def part(a: ExperimentResult, b: ExperimentResult, quantity: Quantity, names: tuple[str, str]) -> Parting:
    """From which layer on one trail keeps more than PARTING_FACTOR times what the other keeps, and in the same sense.

    Layers are paired from the output end; those without a reading on one side are passed over and counted.
    """
    pairs = list(zip(output_end_first(a, quantity), output_end_first(b, quantity), strict=False))
    end_a, end_b = (size_of(record) for record in pairs[0])
    if not (end_a > 0 and end_b > 0):
        return _unknown("at the output end one of them has no finite reading above zero.")
    kept = [quotient(size_of(y) / end_b, size_of(x) / end_a) for x, y in pairs]
    known = [(place, times) for place, times in enumerate(kept) if not math.isnan(times)]
    last, times = known[-1]
    if last == 0 and len(pairs) > 1:
        return _unknown(f"beyond {_pair_name(pairs[0])} no layer has readings that can be compared.")
    start = None
    for place, ratio in reversed(known):
        if not (ratio > PARTING_FACTOR if times > 1 else ratio < 1 / PARTING_FACTOR):
            break
        start = place
    same_depth = a.spec.network.depth == b.spec.network.depth
    end = "the input end" if same_depth and last == len(pairs) - 1 else _pair_name(pairs[last])
    if start is None:
        layers: tuple[str | None, str | None] = (None, None)
        strayed = any(max(ratio, quotient(1, ratio)) > PARTING_FACTOR for _, ratio in known)
        how = f"at {end} they are again" if strayed else f"up to {end} they stay"
        text = f"The trails do not part: {how} within {PARTING_FACTOR:g} times of each other"
    else:
        layers = layer_name(pairs[start][0]), layer_name(pairs[start][1])
        more, size = (names[1], times) if times > 1 else (names[0], quotient(1, times))
        text = f"The trails part at {_pair_name(pairs[start])}: {_apart(more, size, None if start == last else end)}"
    text += f". Each is measured against its own reading at the output end{_offset(names, end_b / end_a)}."
    if missing := len(kept) - len(known):
        text += f" Left out for want of a reading: {missing} of {len(kept)} layers."
    return Parting(layer_a=layers[0], layer_b=layers[1], times=times, sentence=text)


def _unknown(reason: str) -> Parting:
    sentence = f"Where the trails part cannot be said: {reason}"
    return Parting(layer_a=None, layer_b=None, times=None, sentence=sentence)


def output_end_first(result: ExperimentResult, quantity: Quantity) -> list[Gradient]:
    """One reading per layer, the layer nearest the output first."""
    return list(reversed(layer_gradients(result, quantity)))


def layer_name(record: Gradient | None) -> str:
    """Such as `layers.0`; empty where there is no such layer."""
    return ".".join(record.layer.split(".")[:2]) if record else ""


def size_of(record: Gradient | None) -> float:
    """The RMS; 0 for a gradient of zeros, NaN where there is none or not all of it is finite."""
    if record is None or record.statistics is None or record.statistics.nonfinite_count or not record.statistics.numel:
        return math.nan
    return record.statistics.rms


def quotient(over: float, under: float) -> float:
    """over / under; infinity over zero, NaN for zero over zero."""
    if under:
        return over / under
    return math.inf if over > 0 and under == 0 else math.nan


def _pair_name(pair: tuple[Gradient, Gradient]) -> str:
    a, b = map(layer_name, pair)
    return a if a == b else f"{a} and {b}"


def _apart(more: str, size: float, end: str | None) -> str:
    """How far apart the trails are from here to the end, or here where that is the last layer to be compared."""
    if end is None:
        zero = math.isinf(size)
        return "there the other has exactly zero" if zero else f"there {more} keeps {short_number(size)} times as much"
    amount = "the other has exactly zero" if math.isinf(size) else f"it keeps {short_number(size)} times as much"
    return f"from there to {end} {more} keeps more than {PARTING_FACTOR:g} times as much as the other. At {end} {amount}"


def _offset(names: tuple[str, str], offset: float) -> str:
    """How far the two are apart at the output end itself, unless that is less than the sentence would show."""
    larger, times = (names[1], offset) if offset > 1 else (names[0], 1 / offset)
    shown = short_number(times)
    return "" if shown == "1.00" else f", where {larger} has {shown} times the gradient of the other"
