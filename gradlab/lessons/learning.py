"""How far each layer's weights move in a few optimiser steps: what a small gradient does to learning."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from gradlab.errors import GradlabError, listed, shorten
from gradlab.lessons.demonstrations.base import Bench, too_large
from gradlab.registry import Choice
from gradlab.spec import ExperimentSpec
from gradlab.statistics import measure

MAX_STEPS = 100
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""What `torch.optim.Adam` has by default."""


class Optimizer(StrEnum):
    """How a gradient is turned into a step."""

    SGD = "sgd"
    ADAM = "adam"


@dataclass(frozen=True, kw_only=True)
class Movement:
    """How far the weights of one layer went."""

    layer: str
    relative_movement: float | None
    """‖W_after − W_before‖ / ‖W_before‖; None where all weights were zero or a weight is no longer finite."""
    first_gradient: float | None
    """The mean absolute weight gradient of the first step; None where it is not finite."""
    moved_share: float
    """The share of the weights that are another number than before: a step below what the type can hold changes none."""


Steps = Iterator[None]


def _sgd(parameters: list[Tensor], learning_rate: float) -> Steps:
    while True:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter -= learning_rate * parameter.grad
        yield


def _adam(parameters: list[Tensor], learning_rate: float) -> Steps:
    # Written out, as torch.optim imports PyTorch's compiler with its first optimiser; Kingma & Ba 2015, algorithm 1.
    averages = [(torch.zeros_like(parameter), torch.zeros_like(parameter)) for parameter in parameters]
    step = 0
    while True:
        step += 1
        for parameter, (mean, square) in zip(parameters, averages, strict=True):
            if parameter.grad is not None:
                mean.lerp_(parameter.grad, 1 - BETA_1)
                square.mul_(BETA_2).addcmul_(parameter.grad, parameter.grad, value=1 - BETA_2)
                root = square.sqrt() / math.sqrt(1 - BETA_2**step)
                parameter.addcdiv_(mean, root.add_(EPSILON), value=-learning_rate / (1 - BETA_1**step))
        yield


OPTIMIZERS = {
    Optimizer.SGD: Choice("SGD", "Moves each weight by the learning rate times its gradient.", _sgd),
    Optimizer.ADAM: Choice(
        "Adam", "Divides by the gradient's own recent size: above about 1e-8 small gradients move weights too.", _adam
    ),
}

LEARNING_RATES = {Optimizer.SGD: 0.1, Optimizer.ADAM: 1e-3}


def weight_movement(
    spec: ExperimentSpec, steps: int = 5, optimizer: str = Optimizer.SGD, learning_rate: float | None = None
) -> tuple[Movement, ...]:
    """How far each layer's weights are from where they began after some optimiser steps, one row per layer, first first.

    Every step is one forward and backward on the same batch. The learning rate is 0.1 for SGD and 0.001 for Adam unless
    given. Adam divides by a gradient's size plus 1e-8: gradients far below that move nothing under Adam either. Raises
    GradlabError for an unknown optimiser, a number of steps not from 1 to 100, a learning rate not above 0, or an experiment
    too large for so many steps.
    """
    if optimizer not in list(Optimizer):
        raise GradlabError(f"there is no optimiser {shorten(optimizer)} here; there are {listed(Optimizer)}")
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MAX_STEPS:
        raise GradlabError(f"steps = {shorten(steps)} is not possible; a whole number from 1 to {MAX_STEPS}")
    rate = LEARNING_RATES[Optimizer(optimizer)] if learning_rate is None else learning_rate
    if not 0 < rate < math.inf:
        raise GradlabError(f"learning_rate = {shorten(rate)} is not possible; a finite number above 0")
    if why := too_large(spec, steps):
        raise GradlabError(f"{steps} steps of this experiment take too long: {why}")
    bench = Bench(spec)
    before = {name: linear.weight.detach().clone() for name, linear in bench.linears.items()}
    stepping = OPTIMIZERS[Optimizer(optimizer)].build(list(bench.network.parameters()), rate)
    first: dict[str, float | None] = {}
    for _ in range(steps):
        bench.network.zero_grad()
        bench.run()
        first = first or {name: _mean_abs(linear.weight.grad) for name, linear in bench.linears.items()}
        with torch.no_grad():
            next(stepping)
    return tuple(
        Movement(
            layer=name,
            relative_movement=_relative(linear.weight.detach() - before[name], before[name]),
            first_gradient=first[name],
            moved_share=float((linear.weight != before[name]).double().mean()),
        )
        for name, linear in bench.linears.items()
    )


def _mean_abs(gradient: Tensor | None) -> float | None:
    if gradient is None:
        return None
    statistics = measure(gradient)
    return None if statistics.nonfinite_count else statistics.mean_abs


def _relative(change: Tensor, weight: Tensor) -> float | None:
    moved, size = measure(change), measure(weight)
    return None if moved.nonfinite_count or not size.norm else moved.norm / size.norm
