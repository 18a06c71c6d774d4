"""What a trail says as a whole: a factor per layer and a verdict that no scaling of the loss can change.

The rule looks at the output gradients of hidden layers of equal width. A last layer tends to have a large gradient with
and without shortcuts, and a layer of another width another scale, so neither is fitted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median

from gradlab.capture import OutputGradient, Status
from gradlab.experiment import ExperimentResult
from gradlab.text import share_left, short_number


class Verdict(StrEnum):
    """The trend of the gradient from the output end to the input end."""

    VANISHING = "vanishing"
    WEAKENING = "weakening"
    STEADY = "steady"
    GROWING = "growing"
    EXPLODING = "exploding"
    TOO_SHALLOW = "too_shallow"
    NOT_MEASURABLE = "not_measurable"


@dataclass(frozen=True, kw_only=True)
class CutOffs:
    """Where a verdict changes, in terms of the attenuation A: what is left at the input end of the fitted layers."""

    vanishing: float = 0.1
    """A below it: nine tenths of the signal are gone, a change that no choice of learning rate per network hides."""
    weakening: float = 0.5
    """A below it: half of the signal is gone."""
    growing: float = 2.0
    """A above it: the mirror image of weakening."""
    exploding: float = 10.0
    """A above it: the mirror image of vanishing."""
    severe_vanishing: float = 1e-3
    """AUTOTRAINER's figure for the ratio of first to last layer (Zhang et al., ICSE 2021)."""
    severe_exploding: float = 70.0
    """AUTOTRAINER's figure for an exploding gradient (Zhang et al., ICSE 2021)."""
    fewest_layers: int = 3
    """With fewer fitted layers a line is no trend."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A verdict with its evidence. `factor` (γ) and `attenuation` (A) are None where no line could be fitted."""

    verdict: Verdict
    severe: bool
    factor: float | None
    attenuation: float | None
    fitted_layers: tuple[str, ...]
    sentence: str


def diagnose(result: ExperimentResult, cut_offs: CutOffs | None = None) -> Diagnosis:
    """The verdict on the output gradients of a result: per-layer factor γ toward the input, A = γ^(n−1), one sentence.

    γ is 10 to the median of all pairwise slopes (Theil 1950, Sen 1968) of log10 RMS over depth: one odd layer does not
    move it.
    """
    cut_offs = cut_offs or CutOffs()
    hidden = _hidden_layers(result)
    if len(hidden) < cut_offs.fewest_layers:
        sentence = f"Too shallow to judge: a trend needs {cut_offs.fewest_layers} hidden layers of one width."
        return _without_line(Verdict.TOO_SHALLOW, [], sentence)
    fitted = [(depth, record, record.statistics.rms) for depth, record in hidden if record.statistics and _measurable(record)]
    depths, names = [depth for depth, _, _ in fitted], [record.layer for _, record, _ in fitted]
    values = [math.log10(rms) for _, _, rms in fitted]
    # Below the smallest number of its type a vanishing gradient is exactly zero, from some layer on toward the input.
    vanished = hidden[: len(hidden) - len(fitted)]
    dried_up = bool(vanished) and all(record.status is Status.ALL_ZERO for _, record in vanished)
    if len(values) < cut_offs.fewest_layers or (len(values) < len(hidden) / 2 and not dried_up):
        sentence = f"No trend can be fitted: {len(hidden) - len(values)} of {len(hidden)} hidden layers have a zero, missing or"
        return _without_line(Verdict.NOT_MEASURABLE, names, f"{sentence} non-finite gradient.")
    factor = 10 ** -_median_slope(depths, values)
    attenuation = factor ** (len(values) - 1)
    verdict = _verdict(attenuation, cut_offs)
    severe = attenuation < cut_offs.severe_vanishing or attenuation > cut_offs.severe_exploding
    return Diagnosis(
        verdict=verdict,
        severe=severe,
        factor=factor,
        attenuation=attenuation,
        fitted_layers=tuple(names),
        sentence=f"Output gradients change {short_number(factor)}-fold per layer toward the input:"
        f" {_change(attenuation)} {len(values)} hidden layers"
        + (f", and the {len(vanished)} nearest the input get exactly zero." if dried_up else "."),
    )


def _change(attenuation: float) -> str:
    if attenuation > 2:
        return f"it grows {short_number(attenuation)}-fold over"
    if attenuation < 0.5:
        return f"{share_left(attenuation)} is left after"
    return f"it holds (times {short_number(attenuation)}) over"


def _without_line(verdict: Verdict, names: Sequence[str], sentence: str) -> Diagnosis:
    return Diagnosis(
        verdict=verdict, severe=False, factor=None, attenuation=None, fitted_layers=tuple(names), sentence=sentence
    )


def _hidden_layers(result: ExperimentResult) -> list[tuple[int, OutputGradient]]:
    """The linear outputs before the last layer that have the width most of them have, with their depth."""
    linear = [record for record in result.outputs if record.module_type == "Linear"][:-1]
    widths = result.spec.network.layer_sizes[1:-1]
    if not widths:
        return []
    most_common = Counter(widths).most_common(1)[0][0]
    return [(depth, record) for depth, record in enumerate(linear) if widths[depth] == most_common]


def _measurable(record: OutputGradient) -> bool:
    statistics = record.statistics
    return statistics is not None and statistics.rms > 0 and not statistics.nonfinite_count


def _median_slope(depths: Sequence[int], values: Sequence[float]) -> float:
    points = list(zip(depths, values, strict=True))
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


def _verdict(attenuation: float, cut_offs: CutOffs) -> Verdict:
    if attenuation < cut_offs.vanishing:
        return Verdict.VANISHING
    if attenuation < cut_offs.weakening:
        return Verdict.WEAKENING
    if attenuation > cut_offs.exploding:
        return Verdict.EXPLODING
    if attenuation > cut_offs.growing:
        return Verdict.GROWING
    return Verdict.STEADY
