"""What is unusual about single layers, beside the trend over all of them; no flag depends on the scale of the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from gradlab.activity import LayerActivity
from gradlab.capture import OutputGradient, ParameterGradient
from gradlab.capture.records import STATUS_HELP
from gradlab.cut_offs import CutOffs
from gradlab.experiment import ExperimentResult
from gradlab.text import share_left, short_number
from gradlab.trail import Quantity


class FlagKind(StrEnum):
    """What a flag says about its layer."""

    NON_FINITE = "non_finite"
    ALL_ZERO = "all_zero"
    NO_GRADIENT = "no_gradient"
    TINY = "tiny"
    HUGE = "huge"
    DEAD_UNITS = "dead_units"
    SATURATED = "saturated"


FLAG_TITLES: dict[FlagKind, str] = {
    FlagKind.NON_FINITE: "non-finite",
    FlagKind.ALL_ZERO: "all zero",
    FlagKind.NO_GRADIENT: "no gradient",
    FlagKind.TINY: "tiny for this network",
    FlagKind.HUGE: "huge for this network",
    FlagKind.DEAD_UNITS: "dead units",
    FlagKind.SATURATED: "saturated",
}

WHAT_TO_DO: dict[FlagKind, str] = {
    FlagKind.NON_FINITE: "Follow the arrivals from the output end to the first such layer, and look at the size of the weights "
    "and of the layers' outputs there.",
    FlagKind.ALL_ZERO: "Look toward the output end for dead units, a saturated activation, or a loss at its minimum.",
    FlagKind.NO_GRADIENT: "Find out whether the loss depends on this layer at all.",
    FlagKind.TINY: "Read the trend: where a whole run of layers is small, the initialisation or the activation is the place to "
    "change; a single small layer has a cause of its own.",
    FlagKind.HUGE: "Read the trend toward the input end first: where the others vanish, those at the output end stand out.",
    FlagKind.DEAD_UNITS: "Look at biases and weights of the layer; another initialisation, or an activation with a slope on "
    "both sides, keeps units alive.",
    FlagKind.SATURATED: "Make the layer's inputs smaller: smaller weights, or a normalisation before the activation.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One unusual thing about one layer, with the number it rests on."""

    layer: str
    kind: FlagKind
    value: float | None
    """non_finite: entries; tiny, huge: times the network's median; dead_units, saturated: a share; otherwise None."""
    sentence: str
    what_to_do: str


Gradient = OutputGradient | ParameterGradient


def layer_gradients(result: ExperimentResult, quantity: Quantity) -> Sequence[Gradient]:
    """One reading per layer, the first layer first: at the output of its linear map, or of that map's weight."""
    if quantity is Quantity.WEIGHTS:
        return result.linear_weights
    return result.linear_outputs


def flags_of(result: ExperimentResult, cut_offs: CutOffs, quantity: Quantity) -> tuple[Flag, ...]:
    """Every flag of a result, the first layer's first: on the chosen gradient, then on the layer's units."""
    readings = layer_gradients(result, quantity)
    sizes = result.spec.network.layer_sizes[1:]
    usual = _usual(readings, cut_offs)
    found: list[Flag] = []
    for record, activity, units in zip(readings, result.layers, sizes, strict=True):
        flags = [_presence(record, activity.layer), *_units(activity, units, cut_offs)]
        if usual:
            # The last layer tends to have a larger gradient than the others in every network: no sign of anything.
            flags.insert(1, _size(record, activity.layer, usual, cut_offs, is_last=record is readings[-1]))
        found += [flag for flag in flags if flag]
    return tuple(found)


def _presence(record: Gradient, layer: str) -> Flag | None:
    """Whether a gradient arrived at all, and whether it is a number other than zero."""
    statistics = record.statistics
    if statistics is None or not statistics.numel:
        return _flag(layer, FlagKind.NO_GRADIENT, None, STATUS_HELP[record.status])
    if statistics.nonfinite_count:
        share = f"{statistics.nonfinite_count} of {statistics.numel}"
        return _flag(layer, FlagKind.NON_FINITE, statistics.nonfinite_count, f"{share} entries are NaN or infinite.")
    if statistics.max_abs == 0:
        return _flag(layer, FlagKind.ALL_ZERO, None, "Every entry is exactly zero.")
    return None


def _size(record: Gradient, layer: str, usual: float, cut_offs: CutOffs, *, is_last: bool) -> Flag | None:
    """Whether the reading stands far off the network's own median."""
    if not is_measurable(record) or record.statistics is None:
        return None
    times = record.statistics.rms / usual
    if times < cut_offs.tiny:
        return _flag(layer, FlagKind.TINY, times, f"Its gradient is {share_left(times)} of the median over the layers.")
    if times > cut_offs.huge and not is_last:
        return _flag(layer, FlagKind.HUGE, times, f"Its gradient is {short_number(times)} times the median over the layers.")
    return None


def _units(activity: LayerActivity, units: int, cut_offs: CutOffs) -> Iterator[Flag]:
    """Whether most of the layer's units let nothing through."""
    dead, saturated = activity.dead_fraction, activity.saturated_fraction
    if dead is not None:
        chance = 0.5 + cut_offs.dead_deviations * 0.5 / math.sqrt(units)
        if dead > cut_offs.dead_units and (dead == 1 or dead > chance):
            count = f"{round(dead * units)} of {units} units"
            yield _flag(activity.layer, FlagKind.DEAD_UNITS, dead, f"{count} pass no gradient at any sample of the batch.")
    if saturated is not None and saturated > cut_offs.saturated:
        sentence = f"{100 * saturated:.3g} % of its inputs lie where the activation is flat."
        yield _flag(activity.layer, FlagKind.SATURATED, saturated, sentence)


def is_measurable(record: Gradient) -> bool:
    """Whether a reading has a size: it arrived, all of it is finite, and it is not zero."""
    statistics = record.statistics
    return statistics is not None and statistics.numel > 0 and statistics.rms > 0 and not statistics.nonfinite_count


def _usual(readings: Sequence[Gradient], cut_offs: CutOffs) -> float | None:
    """The median size of the readings that have one; None where there are too few to speak of a median."""
    sizes = [record.statistics.rms for record in readings if record.statistics and is_measurable(record)]
    return median(sizes) if len(sizes) >= cut_offs.fewest_layers else None


def _flag(layer: str, kind: FlagKind, value: float | None, sentence: str) -> Flag:
    return Flag(layer=layer, kind=kind, value=value, sentence=sentence, what_to_do=WHAT_TO_DO[kind])
