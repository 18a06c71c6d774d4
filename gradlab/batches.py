"""The sample input, the target and the loss of an experiment."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from gradlab.networks import PRECISIONS
from gradlab.registry import Choice
from gradlab.spec import ExperimentSpec, Loss, SampleInput, Target

INPUT_STREAM, TARGET_STREAM = 1, 2
DRAWN = torch.float32
"""Numbers are drawn in it, whatever torch's default dtype is, and widened for a float64 network."""


def _generator(seed: int, stream: int) -> torch.Generator:
    """A generator of its own for inputs and for targets: drawn from the weights' seed they would resemble the weights."""
    # Odd multiplier: distinct seeds stay distinct. CPU generators use the low 32 bits of a seed.
    return torch.Generator().manual_seed((seed * 2_654_435_761 + stream * 974_711_161) % 2**32)


def _fixed_sample(rows: int, size: int, seed: int) -> Tensor:
    return torch.tensor([1.0, 0.0, -1.0], dtype=DRAWN).repeat(size // 3 + 1)[:size].repeat(rows, 1)


def _normal_input(rows: int, size: int, seed: int) -> Tensor:
    return torch.randn(rows, size, generator=_generator(seed, INPUT_STREAM), dtype=DRAWN)


def _normal_target(rows: int, size: int, seed: int) -> Tensor:
    return torch.randn(rows, size, generator=_generator(seed, TARGET_STREAM), dtype=DRAWN)


def _class_labels(rows: int, size: int, seed: int) -> Tensor:
    return torch.randint(size, (rows,), generator=_generator(seed, TARGET_STREAM))


def _zeros(rows: int, size: int, seed: int) -> Tensor:
    return torch.zeros(rows, size, dtype=DRAWN)


Draw = Callable[[int, int, int], Tensor]

SAMPLE_INPUTS: dict[SampleInput, Choice[Draw]] = {
    SampleInput.FIXED_SAMPLE: Choice("Fixed sample", "1, 0, −1, repeated to the input size; every row alike.", _fixed_sample),
    SampleInput.STANDARD_NORMAL: Choice(
        "Standard normal", "Normal numbers of mean 0, variance 1, from the seed.", _normal_input
    ),
    SampleInput.ZEROS: Choice("Zeros", "All zeros: only the biases reach the layers.", _zeros),
}

TARGETS: dict[Target, Choice[Draw]] = {
    Target.ZEROS: Choice("Zeros", "Any output other than zero is an error.", _zeros),
    Target.STANDARD_NORMAL: Choice("Standard normal", "Normal numbers of mean 0, variance 1, from the seed.", _normal_target),
    Target.CLASS_LABELS: Choice("Class labels", "One class a row, drawn from the seed; for cross-entropy.", _class_labels),
}

LOSSES: dict[Loss, Choice[Callable[[Tensor, Tensor], Tensor]]] = {
    Loss.MSE: Choice("Mean squared error", "The mean of (output − target)² over all entries.", functional.mse_loss),
    Loss.MSE_SUM: Choice(
        "Summed squared error",
        "The sum of (output − target)²: the mean times the number of entries.",
        lambda output, target: functional.mse_loss(output, target, reduction="sum"),
    ),
    Loss.L1: Choice("Mean absolute error", "The mean of |output − target| over all entries.", functional.l1_loss),
    Loss.CROSS_ENTROPY: Choice(
        "Cross-entropy", "−log softmax(output) at the class label, averaged over rows.", functional.cross_entropy
    ),
    Loss.OUTPUT_SUM: Choice(
        "Sum of the outputs", "No target: every output is pushed alike.", lambda output, target: output.sum()
    ),
}


def sample_input(spec: ExperimentSpec) -> Tensor:
    """The batch that goes in: shape (batch_size, input size), in the network's dtype."""
    draw = SAMPLE_INPUTS[spec.batch.sample_input].build
    drawn = draw(spec.batch.batch_size, spec.network.input_size, spec.seed)
    return drawn.to(PRECISIONS[spec.network.dtype].build())


def target(spec: ExperimentSpec) -> Tensor:
    """What the output is compared with: the output's shape and dtype, or (batch_size,) int64 class labels."""
    drawn = TARGETS[spec.batch.target].build(spec.batch.batch_size, spec.network.output_size, spec.seed)
    return drawn if spec.batch.target is Target.CLASS_LABELS else drawn.to(PRECISIONS[spec.network.dtype].build())


def loss_function(spec: ExperimentSpec) -> Callable[[Tensor, Tensor], Tensor]:
    """The function (output, target) -> scalar loss."""
    return LOSSES[spec.loss].build
