"""Small networks on which the capture methods agree, or part; each can be differentiated without any hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gradlab.networks import INITIALIZERS, undrawn_linear
from gradlab.spec import DEFAULT_SEED, Initializer, NetworkSpec

WATCHED = "middle"
"""The layer whose output gradient is in question."""


def linear(fan_in: int, fan_out: int, generator: torch.Generator) -> nn.Linear:
    """A linear map with the weights that `nn.Linear` draws, taken from `generator`."""
    made = undrawn_linear(fan_in, fan_out)
    INITIALIZERS[Initializer.PYTORCH_DEFAULT].build(made, NetworkSpec(), generator)
    return made


def written_out(layer: nn.Module, x: Tensor) -> Tensor:
    """What a linear map returns, computed without calling it: no hook sees this."""
    assert isinstance(layer, nn.Linear)
    return functional.linear(x, layer.weight, layer.bias)


class Setting(nn.Module):
    """`first` → tanh → `middle` → tanh → `last` on three samples, mean squared error against zero."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(DEFAULT_SEED)
        self.first = linear(4, 4, generator)
        self.middle = self.make_middle(generator)
        self.last = linear(4, 1, generator)
        self.batch = torch.randn(3, 4, generator=generator, dtype=torch.float32)

    def make_middle(self, generator: torch.Generator) -> nn.Module:
        """The watched layer."""
        return linear(4, 4, generator)

    def forward(self) -> Tensor:
        """The loss, with every layer called as a module."""
        return self.loss(torch.tanh(self.middle(self.hidden())))

    def truth(self) -> tuple[Tensor, list[Tensor]]:
        """The loss with the watched layer written out, nothing in place, and the tensors it would return, in order."""
        returned = written_out(self.middle, self.hidden())
        return self.loss(torch.tanh(returned)), [returned]

    def became(self) -> Tensor | None:
        """The gradient at what the returned tensor is turned into in place, where it is."""
        return None

    def hidden(self) -> Tensor:
        """What the watched layer is given."""
        return torch.tanh(self.first(self.batch))

    def loss(self, x: Tensor) -> Tensor:
        """The mean square of what the last layer makes of `x`."""
        output: Tensor = self.last(x)
        return output.square().mean()

    def gradients(self) -> list[Tensor | None]:
        """The gradient at each tensor the watched layer returns, by `torch.autograd.grad`; None where there is none."""
        loss, returned = self.truth()
        tracked = [tensor for tensor in returned if tensor.requires_grad]
        found = iter(torch.autograd.grad(loss, tracked, allow_unused=True) if tracked else ())
        return [next(found) if tensor.requires_grad else None for tensor in returned]


class InPlace(Setting):
    """ReLU overwrites what the watched layer returned."""

    def forward(self) -> Tensor:
        return self.loss(torch.relu_(self.middle(self.hidden())))

    def truth(self) -> tuple[Tensor, list[Tensor]]:
        returned = written_out(self.middle, self.hidden())
        return self.loss(torch.relu(returned)), [returned]

    def became(self) -> Tensor | None:
        changed = torch.relu(written_out(self.middle, self.hidden()))
        return torch.autograd.grad(self.loss(changed), changed)[0]


class UsedTwice(Setting):
    """The watched layer is called two times in one forward."""

    def forward(self) -> Tensor:
        return self.loss(torch.tanh(self.middle(torch.tanh(self.middle(self.hidden())))))

    def truth(self) -> tuple[Tensor, list[Tensor]]:
        first = written_out(self.middle, self.hidden())
        second = written_out(self.middle, torch.tanh(first))
        return self.loss(torch.tanh(second)), [first, second]


class Pair(nn.Module):
    """Two linear maps of one input, returned together."""

    def __init__(self, generator: torch.Generator, nested: bool) -> None:
        super().__init__()
        self.left, self.right = linear(4, 4, generator), linear(4, 4, generator)
        self.nested = nested

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor] | tuple[Tensor, tuple[Tensor]]:
        left, right = self.left(x), self.right(x)
        return (left, (right,)) if self.nested else (left, right)


class TupleOutput(Setting):
    """The watched layer returns two tensors."""

    nested = False

    def make_middle(self, generator: torch.Generator) -> nn.Module:
        return Pair(generator, self.nested)

    def forward(self) -> Tensor:
        left, right = self.middle(self.hidden())
        return self.joined(left, right[0] if self.nested else right)

    def truth(self) -> tuple[Tensor, list[Tensor]]:
        assert isinstance(self.middle, Pair)
        hidden = self.hidden()
        left, right = written_out(self.middle.left, hidden), written_out(self.middle.right, hidden)
        return self.joined(left, right), [left, right]

    def joined(self, left: Tensor, right: Tensor) -> Tensor:
        """The loss of the two tensors, one as a gate of the other."""
        return self.loss(torch.tanh(left) * torch.sigmoid(right))


class NestedOutput(TupleOutput):
    """The watched layer returns a tuple within a tuple, as a recurrent layer does."""

    nested = True


class Detached(Setting):
    """What the watched layer returned goes into the loss cut off from its history."""

    def forward(self) -> Tensor:
        hidden = self.hidden()
        return self.loss(hidden + self.middle(hidden).detach())

    def truth(self) -> tuple[Tensor, list[Tensor]]:
        hidden = self.hidden()
        returned = written_out(self.middle, hidden)
        return self.loss(hidden + returned.detach()), [returned]


class WithoutGrad(Setting):
    """The watched layer runs in a `no_grad` block."""

    def forward(self) -> Tensor:
        hidden = self.hidden()
        with torch.no_grad():
            returned = self.middle(hidden)
        return self.loss(hidden + returned)

    def truth(self) -> tuple[Tensor, list[Tensor]]:
        hidden = self.hidden()
        with torch.no_grad():
            returned = written_out(self.middle, hidden)
        return self.loss(hidden + returned), [returned]


class Checkpointed(Setting):
    """The watched layer's activation is thrown away and computed again in backward.

    PyTorch imports its compiler in the first call of `checkpoint`, which takes about a second, once in a process.
    """

    def forward(self) -> Tensor:
        # Nothing here is random: to save and set the global random state would only disturb other threads.
        return self.loss(checkpoint(self.block, self.hidden(), use_reentrant=False, preserve_rng_state=False))

    def block(self, x: Tensor) -> Tensor:
        """What is run again."""
        return torch.tanh(self.middle(x))


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Something a network does with the watched layer."""

    title: str
    help: str
    build: Callable[[], Setting]


SITUATIONS: dict[str, Situation] = {
    "ordinary": Situation(
        title="Ordinary layer", help="The layer returns one tensor, and the next operation makes a new one.", build=Setting
    ),
    "in_place": Situation(
        title="In-place activation", help="A ReLU with inplace=True overwrites the layer's output.", build=InPlace
    ),
    "used_twice": Situation(
        title="One module used twice",
        help="The layer is called two times in one forward, with the same weights.",
        build=UsedTwice,
    ),
    "tuple_output": Situation(title="Tuple output", help="The layer returns two tensors.", build=TupleOutput),
    "nested_output": Situation(
        title="Nested output", help="The layer returns a tuple within a tuple, as recurrent layers do.", build=NestedOutput
    ),
    "detached": Situation(
        title="Detached branch", help="The loss uses the output after detach(): no gradient can come back.", build=Detached
    ),
    "no_grad": Situation(
        title="no_grad block", help="The layer runs under torch.no_grad(): autograd does not follow it.", build=WithoutGrad
    ),
    "checkpointing": Situation(
        title="Activation checkpointing",
        help="Backward runs the layer's forward a second time, to save memory.",
        build=Checkpointed,
    ),
}
