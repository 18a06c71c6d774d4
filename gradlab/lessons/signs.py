"""What to look for in output gradients: four layers of one network, each with one of the signs, measured."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradlab.capture import OutputGradient, capture_gradients
from gradlab.lessons.situations import linear
from gradlab.spec import DEFAULT_SEED

_FAR_BELOW, _FAINT, _LOUD = 1e3, 1e-25, 1e25


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One thing to look for: how it shows, what it may mean, and what was measured at a layer that has it."""

    title: str
    means: str
    how: str
    """What was done to the layer."""
    record: OutputGradient


class _FourLayers(nn.Module):
    """Four layers of one input: in front of a dead ReLU, with hardly any weight in the loss, with a huge one, with none."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(DEFAULT_SEED)
        self.dead, self.faint, self.loud, self.aside = (linear(3, 3, generator) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        self.aside(x)
        loss: Tensor = torch.relu(self.dead(x) - _FAR_BELOW).sum() + _FAINT * self.faint(x).sum() + _LOUD * self.loud(x).sum()
        return loss


_VANISHING = "Vanishing: see whether the trend toward the input goes on."
_EXPLODING = "Exploding: see whether the trend toward the input goes on."
_SIGNS = {
    "dead": ("All zero", "Dead activations, or a path that passes nothing on.", "a ReLU behind it gets negative numbers only"),
    "faint": ("Extremely small", _VANISHING, f"its part of the loss is multiplied by {_FAINT:g}"),
    "loud": ("Very large", _EXPLODING, f"its part of the loss is multiplied by {_LOUD:g}"),
    "aside": ("None", "The tensor was not on the path to the loss; a hook may never run.", "the loss does not use its output"),
}


def signs() -> tuple[Sign, ...]:
    """All zero, extremely small, very large and None, each measured now in one backward pass."""
    network = _FourLayers()
    with capture_gradients(network) as capture:
        network(torch.ones(1, 3, dtype=torch.float32)).backward()
    records = {record.layer: record for record in capture.passes[-1].outputs}
    return tuple(Sign(title=title, means=means, how=how, record=records[key]) for key, (title, means, how) in _SIGNS.items())
