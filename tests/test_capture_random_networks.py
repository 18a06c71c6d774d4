"""Two hundred random networks of shared, nested, in-place, frozen, branching and checkpointed parts, against plain autograd.

Every part is written twice: as the modules a capture watches, and as the plain formula with every layer's output noted.
"""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from truth import METHODS, Trace, assert_outputs, assert_parameters, captured, parameter_gradients, seeded

WIDTH = 4


class Linear(nn.Module):
    def __init__(self, draw, depth):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH, bias=draw.random() < 0.7)

    def forward(self, x):
        return self.fc(x)

    def plain(self, x, trace, name):
        return trace.linear(f"{name}.fc", self.fc, x)


class Activated(nn.Module):
    """A linear layer and an activation, in place or not."""

    def __init__(self, draw, depth):
        super().__init__()
        self.fc, in_place = nn.Linear(WIDTH, WIDTH), draw.random() < 0.5
        self.act = draw.choice([nn.ReLU(in_place), nn.Tanh(), nn.Softplus(), nn.Sigmoid(), nn.ELU(inplace=in_place)])

    def forward(self, x):
        return self.act(self.fc(x))

    def plain(self, x, trace, name):
        h = trace.linear(f"{name}.fc", self.fc, x)
        of = {nn.ReLU: functional.relu, nn.Tanh: torch.tanh, nn.Softplus: functional.softplus, nn.Sigmoid: torch.sigmoid}
        return trace.note(f"{name}.act", of.get(type(self.act), functional.elu)(h))


class Changed(nn.Module):
    """Changes the output of a layer in place: a column, a slice through a view, all of it."""

    def __init__(self, draw, depth):
        super().__init__()
        self.fc, self.how = nn.Linear(WIDTH, WIDTH), draw.choice(["column", "view", "all", "zero"])

    def forward(self, x):
        h = self.fc(x)
        if self.how == "column":
            h[:, 1] = h[:, 0] * 2
        elif self.how == "view":
            h.view(-1)[1:6].mul_(-2)
        elif self.how == "all":
            h.add_(1).mul_(3)
        else:
            h[:, 2:] = 0
        return h

    def plain(self, x, trace, name):
        h = trace.linear(f"{name}.fc", self.fc, x)
        if self.how == "column":
            return torch.stack([h[:, 0], h[:, 0] * 2, h[:, 2], h[:, 3]], 1)
        if self.how == "view":
            factor = torch.ones(h.numel(), dtype=h.dtype)
            factor[1:6] = -2
            return h * factor.reshape(h.shape)
        return (h + 1) * 3 if self.how == "all" else h * torch.tensor([1, 1, 0, 0], dtype=h.dtype)


class Residual(nn.Module):
    """Adds its input; in place where no derivative needs the value that is overwritten."""

    def __init__(self, draw, depth):
        super().__init__()
        self.inner = part(draw, depth - 1)
        self.in_place = type(self.inner) in (Linear, Changed)

    def forward(self, x):
        out = self.inner(x)
        if self.in_place:
            out += x
            return out
        return out + x

    def plain(self, x, trace, name):
        return self.inner.plain(x, trace, f"{name}.inner") + x


class Repeated(nn.Module):
    """One module called several times."""

    def __init__(self, draw, depth):
        super().__init__()
        self.inner, self.times = part(draw, depth - 1), draw.randint(2, 3)

    def forward(self, x):
        for _ in range(self.times):
            x = self.inner(x)
        return x

    def plain(self, x, trace, name):
        for _ in range(self.times):
            x = self.inner.plain(x, trace, f"{name}.inner")
        return x


class Pair(nn.Module):
    """Owns a parameter and returns a tuple with a dict in it."""

    def __init__(self, draw):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(draw.uniform(0.5, 2.0)))

    def forward(self, x):
        return x * self.gain, {"sine": x.sin()}

    def plain(self, x, trace, name):
        return trace.note(name, x * self.gain, "0"), trace.note(name, x.sin(), "1.sine")


class Branching(nn.Module):
    """Two branches, one of which may be cut off or left unused."""

    def __init__(self, draw, depth):
        super().__init__()
        self.pair, self.left, self.right = Pair(draw), part(draw, depth - 1), part(draw, depth - 1)
        self.cut = draw.choice(["no", "detach", "unused", "no_grad"])

    def join(self, left, right):
        return left if self.cut == "unused" else left * right.detach() if self.cut == "detach" else left * right

    def with_grad(self):
        return torch.set_grad_enabled(torch.is_grad_enabled() and self.cut != "no_grad")

    def forward(self, x):
        first, other = self.pair(x)
        left = self.left(first)
        with self.with_grad():
            right = self.right(other["sine"])
        return self.join(left, right)

    def plain(self, x, trace, name):
        first, sine = self.pair.plain(x, trace, f"{name}.pair")
        left = self.left.plain(first, trace, f"{name}.left")
        with self.with_grad():
            right = self.right.plain(sine, trace, f"{name}.right")
        return self.join(left, right)


class Checkpointed(nn.Module):
    def __init__(self, draw, depth):
        super().__init__()
        self.inner = nn.ModuleList([part(draw, depth - 1), part(draw, depth - 1)])
        self.reentrant = draw.random() < 0.5

    def both(self, x):
        return self.inner[1](self.inner[0](x))

    def forward(self, x):
        return checkpoint(self.both, x, use_reentrant=self.reentrant)

    def plain(self, x, trace, name):
        return self.inner[1].plain(self.inner[0].plain(x, trace, f"{name}.inner.0"), trace, f"{name}.inner.1")


SIMPLE, NESTED = [Linear, Activated, Changed], [Residual, Repeated, Branching, Checkpointed]


def part(draw, depth):
    """A random part with at most `depth` levels of parts inside it, now and then with frozen parameters."""
    made = draw.choice(SIMPLE if depth <= 0 or draw.random() < 0.3 else NESTED)(draw, depth)
    if draw.random() < 0.15:
        for parameter in made.parameters():
            parameter.requires_grad_(draw.random() < 0.5)
    return made


class Net(nn.Module):
    """Parts in a row, some of them used again further on."""

    def __init__(self, draw):
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.parts = nn.ModuleList(part(draw, draw.randint(0, 3)) for _ in range(draw.randint(1, 3)))
        self.route = [*range(len(self.parts)), *(draw.randrange(len(self.parts)) for _ in range(draw.randint(0, 2)))]

    def forward(self, x):
        h = self.stem(x)
        for place in self.route:
            h = self.parts[place](h)
        return h

    def plain(self, x, trace):
        h = trace.linear("stem", self.stem, x)
        for place in self.route:
            h = self.parts[place].plain(h, trace, f"parts.{place}")
        return h


def network(seed):
    draw = random.Random(seed)
    model = seeded(lambda: Net(draw), seed)
    x = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return model, x.requires_grad_(draw.random() < 0.5), draw.randint(1, 3)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("start", range(0, 200, 20))
@pytest.mark.parametrize("method", METHODS)
def test_twenty_random_networks_have_the_gradients_of_plain_autograd(start, method):
    for seed in range(start, start + 20):
        model, x, steps = network(seed)
        trace = Trace()
        loss = model.plain(x, trace).square().mean()

        def train(model, x=x, steps=steps):
            for _ in range(steps):
                model(x).square().mean().backward()

        capture = captured(model, train, method)
        if capture is None:
            continue
        outputs, weights = trace.gradients(loss), parameter_gradients(model, loss)
        assert len(capture.passes) == steps, seed
        for done in capture.passes:
            try:
                assert_outputs(done, outputs, method)
                assert_parameters(done, weights)
            except AssertionError as error:
                error.add_note(f"seed {seed}: {model}")
                raise


def test_the_random_networks_are_of_every_kind():
    kinds = {type(module) for seed in range(200) for module in network(seed)[0].modules()}
    assert {Linear, Activated, Residual, Repeated, Branching, Changed, Checkpointed, Pair} <= kinds
