"""What a trail says as a whole: a factor per layer and a verdict that no scaling of the loss can change.

The rule looks at the gradients of hidden layers of equal width. A last layer tends to have a large gradient with and
without shortcuts, and a layer of another width another scale, so neither is fitted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, pairwise
from statistics import median
from typing import NamedTuple

from gradlab.capture import Status
from gradlab.cut_offs import CutOffs as CutOffs
from gradlab.errors import SpecError, listed
from gradlab.experiment import ExperimentResult
from gradlab.flags import Flag, Gradient, flags_of, is_measurable, layer_gradients
from gradlab.text import share_left, short_number
from gradlab.trail import Quantity


class Verdict(StrEnum):
    """The trend of the gradient from the output end to the input end."""

    VANISHING = "vanishing"
    WEAKENING = "weakening"
    STEADY = "steady"
    GROWING = "growing"
    EXPLODING = "exploding"
    TOO_SHALLOW = "too_shallow"
    NOT_MEASURABLE = "not_measurable"


class Crossing(NamedTuple):
    """The cut-off that the attenuation lies beyond, the outermost if several."""

    name: str
    """The field of `CutOffs`; `CUT_OFF_REASONS` has the reason."""
    value: float


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The verdict on one measurement, with the evidence it rests on; None where there is no line to speak of."""

    gradient: Quantity
    """Which of the two gradients was judged."""
    verdict: Verdict
    severe: bool
    factor: float | None
    """γ: how many times as large the gradient is one layer nearer the input."""
    attenuation: float | None
    """A = γ^(n−1) over the n fitted layers: how much of the signal at the output end is left at the input end."""
    fitted_layers: tuple[str, ...]
    """The linear maps the line goes through, the first layer first."""
    steps_against: int | None
    """How many of the n−1 steps between fitted layers go the other way than the line."""
    crossed: Crossing | None
    """None for a steady trail, which crosses no cut-off, and where there is no line."""
    sentence: str
    flags: tuple[Flag, ...]
    """What is unusual about single layers; it does not change the verdict."""
    cut_offs: CutOffs


def diagnose(
    result: ExperimentResult, cut_offs: CutOffs | None = None, *, gradient: Quantity | str = Quantity.OUTPUTS
) -> Diagnosis:
    """The verdict on the gradients of a result: per-layer factor γ toward the input, A = γ^(n−1), one sentence, flags.

    γ is 10 to the median of all pairwise slopes (Theil 1950, Sen 1968) of log10 RMS over depth: one odd layer does not
    move it. `gradient` is outputs (what flows backward) or weights (what the optimiser uses, another question, to which
    the answer can differ; see `disagreement`). Raises SpecError for another one.
    """
    cut_offs = cut_offs or CutOffs()
    quantity = _quantity(gradient)
    hidden = _hidden_layers(result, quantity)
    fitted = [(depth, record) for depth, record in hidden if is_measurable(record)]
    line = _line(hidden, fitted, cut_offs)
    if isinstance(line, _NoLine):
        verdict, factor, attenuation, sentence = line.verdict, None, None, line.sentence
    else:
        factor = line
        attenuation = _power(factor, len(fitted) - 1)
        verdict = verdict_on(attenuation, cut_offs)
        sentence = _sentence(verdict, factor, attenuation, hidden, fitted)
    crossed = _crossed(attenuation, cut_offs)
    return Diagnosis(
        gradient=quantity,
        verdict=verdict,
        severe=crossed is not None and crossed.name.startswith("severe"),
        factor=factor,
        attenuation=attenuation,
        fitted_layers=tuple(record.layer for _, record in fitted) if factor is not None else (),
        steps_against=None if factor is None else _steps_against(fitted, factor),
        crossed=crossed,
        sentence=sentence,
        flags=flags_of(result, cut_offs, quantity),
        cut_offs=cut_offs,
    )


def hidden_depths(layer_sizes: Sequence[int]) -> list[int]:
    """The depths a line goes through: the layers before the last that have the width most of them have."""
    widths = layer_sizes[1:-1]
    most_common = Counter(widths).most_common(1)[0][0] if widths else None
    return [depth for depth, width in enumerate(widths) if width == most_common]


def per_layer_factor(depths: Sequence[int], sizes: Sequence[float]) -> float:
    """γ: 10 to the minus median of all pairwise slopes of log10 size over depth; at least two depths, sizes above 0."""
    points = list(zip(depths, map(math.log10, sizes), strict=True))
    return _power(10, -median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2)))


def verdict_on(attenuation: float, cut_offs: CutOffs) -> Verdict:
    """The verdict an attenuation stands for."""
    if attenuation < cut_offs.vanishing:
        return Verdict.VANISHING
    if attenuation < cut_offs.weakening:
        return Verdict.WEAKENING
    if attenuation > cut_offs.exploding:
        return Verdict.EXPLODING
    return Verdict.GROWING if attenuation > cut_offs.growing else Verdict.STEADY


def disagreement(outputs: Diagnosis, weights: Diagnosis) -> str | None:
    """A remark where the output gradients and the weight gradients of one measurement get different verdicts, else None."""
    if outputs.factor is None or weights.factor is None or outputs.verdict is weights.verdict:
        return None
    return (
        f"The output gradients are {outputs.verdict} ({short_number(outputs.factor)} per layer toward the input), the weight"
        f" gradients {weights.verdict} ({short_number(weights.factor)} per layer). The two answer different questions: a weight"
        " gradient is made of the output gradient and of what went into the layer, so it changes with depth in its own way."
    )


# --- the line ---------------------------------------------------------------------------------------------------------

Reading = tuple[int, Gradient]


class _NoLine(NamedTuple):
    verdict: Verdict
    sentence: str


def _quantity(gradient: Quantity | str) -> Quantity:
    try:
        return Quantity(gradient)
    except ValueError:
        raise SpecError("gradient", gradient, listed(Quantity)) from None


def _hidden_layers(result: ExperimentResult, quantity: Quantity) -> list[Reading]:
    """The readings a line goes through, with their depth."""
    records = layer_gradients(result, quantity)
    return [(depth, records[depth]) for depth in hidden_depths(result.spec.network.layer_sizes)]


def _line(hidden: list[Reading], fitted: list[Reading], cut_offs: CutOffs) -> float | _NoLine:
    """The per-layer factor, or why there is none."""
    if len(hidden) < cut_offs.fewest_layers:
        sentence = f"Too shallow to judge: a trend needs {cut_offs.fewest_layers} hidden layers of one width."
        return _NoLine(Verdict.TOO_SHALLOW, sentence)
    missing = len(hidden) - len(fitted)
    dried_up = _dried_up(hidden, fitted)
    if len(fitted) < cut_offs.fewest_layers or (missing > len(fitted) and not dried_up):
        sentence = (
            f"No trend can be fitted: {missing} of {len(hidden)} hidden layers have a zero, missing or non-finite gradient."
        )
        return _NoLine(Verdict.NOT_MEASURABLE, sentence)
    factor = per_layer_factor([depth for depth, _ in fitted], [_rms(record) for _, record in fitted])
    if dried_up and _power(factor, len(fitted) - 1) >= cut_offs.weakening:
        # Not thinning out but cut off: a fit through the layers on this side of the cut would call it steady.
        sentence = f"No trend over all hidden layers: {_zero_at_the_input_end(missing)}"
        sentence += ", the others do not thin out toward them."
        return _NoLine(Verdict.NOT_MEASURABLE, sentence)
    return factor


def _dried_up(hidden: list[Reading], fitted: list[Reading]) -> bool:
    """Whether the layers without a reading are the ones nearest the input, and all of them exactly zero.

    Below the smallest number of its type a vanishing gradient is exactly zero, from some layer on toward the input.
    """
    nearest = hidden[: len(hidden) - len(fitted)]
    return bool(nearest) and all(record.status is Status.ALL_ZERO for _, record in nearest)


def _rms(record: Gradient) -> float:
    return record.statistics.rms if record.statistics else math.nan


def _steps_against(fitted: list[Reading], factor: float) -> int:
    """Steps toward the input that grow where the line falls, or fall where it grows."""
    sizes = [_rms(record) for _, record in fitted]
    return sum((nearer > farther) != (factor > 1) for nearer, farther in pairwise(sizes) if nearer != farther)


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def _crossed(attenuation: float | None, cut_offs: CutOffs) -> Crossing | None:
    if attenuation is None:
        return None
    for name in ("severe_vanishing", "vanishing", "weakening"):
        if attenuation < getattr(cut_offs, name):
            return Crossing(name, getattr(cut_offs, name))
    for name in ("severe_exploding", "exploding", "growing"):
        if attenuation > getattr(cut_offs, name):
            return Crossing(name, getattr(cut_offs, name))
    return None


# --- the sentence -----------------------------------------------------------------------------------------------------


def _zero_at_the_input_end(layers: int) -> str:
    return f"the {layers} nearest the input get exactly zero" if layers > 1 else "the one nearest the input gets exactly zero"


def _sentence(verdict: Verdict, factor: float, attenuation: float, hidden: list[Reading], fitted: list[Reading]) -> str:
    """Such as: 0.285 per layer toward the input: 2.3 % is left after 4 hidden layers."""
    layers = f"{len(fitted)} hidden layers"
    if verdict in (Verdict.VANISHING, Verdict.WEAKENING):
        change = f"{share_left(attenuation)} is left after {layers}"
    elif verdict in (Verdict.EXPLODING, Verdict.GROWING):
        change = f"{short_number(attenuation)} times as much after {layers}"
    else:
        change = f"it holds, times {short_number(attenuation)} over {layers}"
    missing = len(hidden) - len(fitted)
    if _dried_up(hidden, fitted):
        change += f", and {_zero_at_the_input_end(missing)}"
    elif missing:
        change += f"; {missing} more {'has' if missing == 1 else 'have'} a zero, missing or non-finite gradient"
    steps, against = len(fitted) - 1, _steps_against(fitted, factor)
    if against and verdict is not Verdict.STEADY:
        change += f". The trend counts: {against} of {steps} steps {'goes' if against == 1 else 'go'} the other way"
    return f"{short_number(factor)} per layer toward the input: {change}."
