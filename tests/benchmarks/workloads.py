"""The four workloads on which the price of a capture is measured."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Workload(NamedTuple):
    """A model, one batch and the loss of its output."""

    title: str
    model: nn.Module
    batch: Tensor
    loss_of: Callable[[Tensor], Tensor]

    def step(self) -> Tensor:
        """One forward and one backward."""
        loss = self.loss_of(self.model(self.batch))
        loss.backward()
        return loss


def six_numbers(gradient: Tensor) -> dict[str, float]:
    """Statistics as they are mostly written: one torch call and one .item() each."""
    return {
        "mean_abs": gradient.abs().mean().item(),
        "norm": gradient.norm().item(),
        "min": gradient.min().item(),
        "max": gradient.max().item(),
        "max_abs": gradient.abs().max().item(),
        "zero_fraction": (gradient == 0).float().mean().item(),
    }


def six_numbers_of_weights(model: nn.Module) -> dict[str, dict[str, float]]:
    """The same of every weight gradient, from .grad."""
    named = model.named_parameters()
    return {name: six_numbers(weight.grad) for name, weight in named if "weight" in name and weight.grad is not None}


def _mean_square(output: Tensor) -> Tensor:
    return output.square().mean()


def small() -> Workload:
    sizes = (3, 3, 3, 3, 3, 1)
    layers = [nn.Sequential(nn.Linear(a, b), nn.GELU(approximate="tanh")) for a, b in pairwise(sizes)]
    return Workload("W1: 3-3-3-3-3-1, GELU, batch 1", nn.Sequential(*layers), torch.tensor([[1.0, 0.0, -1.0]]), _mean_square)


def deep() -> Workload:
    layers = [module for _ in range(100) for module in (nn.Linear(64, 64), nn.Tanh())]
    return Workload("W2: 100 × (Linear 64, Tanh), batch 32", nn.Sequential(*layers), torch.randn(32, 64), _mean_square)


def wide() -> Workload:
    layers = [module for _ in range(10) for module in (nn.Linear(1024, 1024), nn.ReLU())]
    return Workload("W3: 10 × (Linear 1024, ReLU), batch 256", nn.Sequential(*layers), torch.randn(256, 1024), _mean_square)


def transformer() -> Workload:
    layers = [nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(4)]
    return Workload(
        "W4: 4 transformer layers, 128 wide, 16 × 64", nn.Sequential(*layers), torch.randn(16, 64, 128), _mean_square
    )


WORKLOADS = {"W1": small, "W2": deep, "W3": wide, "W4": transformer}
