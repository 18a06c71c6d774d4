"""Both gradients of every layer in one measurement: how large each is, and the identity that ties the two."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gradlab.capture import OutputGradient, ParameterGradient
from gradlab.diagnosis import Verdict, diagnose, disagreement, per_layer_factor
from gradlab.experiment import ExperimentResult
from gradlab.networks import PRECISIONS
from gradlab.spec import Activation, Normalization, Precision
from gradlab.text import short_number
from gradlab.trail import Quantity, layer_of

ROUNDING = {Precision.FLOAT32: 5e-6, Precision.FLOAT64: 5e-12}
"""Relative difference up to which two sides are equal: three norms meet, each right to 1e-6, or 1e-12 in float64."""


@dataclass(frozen=True, kw_only=True)
class Both:
    """One layer: the gradient of its weight W, the one at its linear map's output, and what went into the map."""

    weight: ParameterGradient
    output: OutputGradient
    input_norm: float | None
    """L2 norm of the batch h that went in; None if an entry is NaN or infinite."""

    @property
    def layer(self) -> str:
        """Such as `layers.0`."""
        return layer_of(self.output.layer)

    @property
    def weight_norm(self) -> float | None:
        """‖∂L/∂W‖: the left side; None where there is no gradient or an entry is NaN or infinite."""
        return norm_of(self.weight)

    @property
    def output_norm(self) -> float | None:
        """‖δ‖, over the whole batch; None where there is no gradient or an entry is NaN or infinite."""
        return norm_of(self.output)

    @property
    def product(self) -> float | None:
        """‖δ‖ · ‖h‖: the right side; None where one of them is."""
        if self.output_norm is None or self.input_norm is None:
            return None
        return self.output_norm * self.input_norm

    @property
    def share(self) -> float | None:
        """The left side over the right one, 1 where both are zero; None where there is no such number."""
        if self.weight_norm is None or self.product is None:
            return None
        if self.product == 0:
            return 1.0 if self.weight_norm == 0 else None
        return self.weight_norm / self.product


def norm_of(record: ParameterGradient | OutputGradient) -> float | None:
    """The L2 norm of a gradient; None where none was measured or an entry is NaN or infinite."""
    statistics = record.statistics
    return None if statistics is None or statistics.nonfinite_count else statistics.norm


def both_kinds(result: ExperimentResult) -> tuple[Both, ...]:
    """Both gradients of every layer, the first layer first."""
    rows = zip(result.linear_weights, result.linear_outputs, result.layers, strict=True)
    return tuple(Both(weight=weight, output=output, input_norm=layer.input_norm) for weight, output, layer in rows)


def identity(result: ExperimentResult) -> str:
    """Whether ‖∂L/∂W‖ = ‖δ‖·‖h‖ holds in every layer, in a sentence with the measured numbers.

    For one sample ∂L/∂W is the outer product of δ and h, so its norm is the product of theirs. For more it is a sum of such
    products, one for each sample, and its norm is at most ‖δ‖·‖h‖ of the whole batch: the triangle inequality, then
    Cauchy-Schwarz.
    """
    rows, samples = both_kinds(result), result.spec.batch.batch_size
    measured = [row for row in rows if row.share is not None]
    off = [row for row in measured if _is_off(row, result)]
    shares = [row.share for row in measured if row.share is not None and row not in off]
    sentences = []
    if samples > 1:
        sentences.append(
            f"With {samples} samples the weight gradient is a sum of {samples} products, one for each sample. Its norm is at"
            " most the right side (triangle inequality, then Cauchy–Schwarz); samples that pull different ways make it smaller."
        )
    if shares and samples == 1:
        largest = max(abs(share - 1) for share in shares)
        how = f"they differ by at most {short_number(largest)}, which is rounding" if largest else "they are equal"
        sentences.append(f"The two sides agree in {len(shares)} of {len(rows)} layers: {how}.")
    elif shares:
        sentences.append(f"Here it is {_between(min(shares), max(shares))} of it.")
    if off:
        sentences.append(_why_off(off, result))
    if len(measured) < len(rows):
        missing = "No layer has" if not measured else f"{len(rows) - len(measured)} of {len(rows)} layers do not have"
        sentences.append(f"{missing} finite numbers on both sides.")
    return " ".join(sentences)


def factors(result: ExperimentResult) -> str:
    """What each part of the identity does per layer toward the input; "" where no line can be fitted to one of them."""
    outputs, weights = (diagnose(result, gradient=quantity) for quantity in (Quantity.OUTPUTS, Quantity.WEIGHTS))
    fitted = set(outputs.fitted_layers) & set(weights.fitted_layers)
    rows = [(depth, row.input_norm) for depth, row in enumerate(both_kinds(result)) if row.output.layer in fitted]
    points = [(depth, norm) for depth, norm in rows if norm]
    if outputs.factor is None or weights.factor is None or len(points) < 2:
        return ""
    inputs = per_layer_factor(*zip(*points, strict=True))
    return (
        f"Per layer toward the input the output gradient is multiplied by **{short_number(outputs.factor)}**, the layer's input"
        f" by **{short_number(inputs)}**, the weight gradient by **{short_number(weights.factor)}**."
    )


def cancels(result: ExperimentResult) -> bool:
    """Whether the weight gradients hold although the output gradients do not, in a network where that is to be expected.

    Without biases and with ReLU, the sum of W · ∂L/∂W over the entries is the same in every layer (Du, Hu & Lee 2018).
    """
    network = result.spec.network
    plain = network.normalization is Normalization.NO_NORM and not network.use_shortcut
    if network.use_bias or network.activation is not Activation.RELU or not plain:
        return False
    outputs, weights = (diagnose(result, gradient=quantity) for quantity in (Quantity.OUTPUTS, Quantity.WEIGHTS))
    return bool(disagreement(outputs, weights)) and weights.verdict is Verdict.STEADY


def _is_off(row: Both, result: ExperimentResult) -> bool:
    """Whether the sides differ by more than rounding; for several samples, whether the left one is the larger."""
    samples, share = result.spec.batch.batch_size, row.share or 0.0
    tolerance = ROUNDING[result.spec.network.dtype] * samples
    return share > 1 + tolerance or (samples == 1 and share < 1 - tolerance)


def _why_off(rows: list[Both], result: ExperimentResult) -> str:
    """Why sides differ that should not: below the smallest normal number digits are lost, and then the number."""
    dtype = result.spec.network.dtype
    limits = torch.finfo(PRECISIONS[dtype].build())
    where = "In 1 layer they differ" if len(rows) == 1 else f"In {len(rows)} layers they differ"
    if all(row.product is not None and row.product < limits.tiny / limits.eps for row in rows):
        return f"{where}: entries below {limits.tiny:.1e} lose digits in {dtype}, or become zero."
    return f"{where} by more than rounding explains."


def _between(low: float, high: float) -> str:
    words = [f"{100 * share:.3g} %" for share in (low, high)]
    return words[0] if words[0] == words[1] else f"between {words[0]} and {words[1]}"
