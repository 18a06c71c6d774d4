"""Checkpoints inside checkpoints, and modules and weights that are used inside and outside of one."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from truth import (
    Block,
    Trace,
    assert_outputs,
    assert_parameters,
    batch,
    block,
    captured,
    each_kind,
    each_method,
    parameter_gradients,
    seeded,
)

from gradlab import capture_gradients

# Where an inner checkpoint runs inside an outer one's first run, without grad, PyTorch warns that nothing will have gradients.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")


def run(model, x):
    model(x).square().sum().backward()


class Nested(nn.Module):
    """A checkpoint in a checkpoint; the layers of the inner block are also called in the outer one, around it."""

    def __init__(self, outer, inner):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(3, 1)
        self.outer, self.inner = outer, inner

    def middle(self, x):
        return self.block.act(checkpoint(self.block, self.block.linear(x), use_reentrant=self.inner))

    def forward(self, x):
        return self.head(checkpoint(self.middle, x, use_reentrant=self.outer) * x)

    def truth(self, x):
        trace = Trace()
        h = block(self.block, trace.linear("block.linear", self.block.linear, x), trace, "block")
        h = trace.note("block.act", torch.tanh(h)) * x
        return trace, trace.linear("head", self.head, h).square().sum()


@each_method
@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, True), (False, False)])
def test_a_checkpoint_inside_a_checkpoint_keeps_its_calls_apart(outer, inner, method):
    model, x = seeded(lambda: Nested(outer, inner)), batch(4, 3).requires_grad_()
    trace, loss = model.truth(x)
    (done,) = captured(model, lambda m: run(m, x), method).passes
    assert_outputs(done, trace.gradients(loss), method)
    assert_parameters(done, parameter_gradients(model, loss))


@each_method
@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_checkpoint_that_ends_with_a_checkpoint_keeps_its_calls_apart(levels, outer, inner, method):
    # The saved input of the inner one is itself made again, by the outer one, at the moment the inner one asks for it.
    class Ends(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = nn.Linear(3, 3), Block()

        def middle(self, x, level):
            kind = outer if level else inner
            return (
                checkpoint(self.middle, self.first(x), level - 1, use_reentrant=kind)
                if level
                else checkpoint(self.block, self.first(x), use_reentrant=kind)
            )

        def forward(self, x):
            return checkpoint(self.middle, x, levels - 1, use_reentrant=outer)

    model, x, trace = seeded(Ends), batch(4, 3).requires_grad_(), Trace()
    h = x
    for _ in range(levels):
        h = trace.linear("first", model.first, h)
    loss = block(model.block, h, trace, "block").square().sum()
    (done,) = captured(model, lambda m: run(m, x), method).passes
    assert_outputs(done, trace.gradients(loss), method)
    assert_parameters(done, parameter_gradients(model, loss))


@each_method
@each_kind
def test_weights_used_inside_and_outside_a_checkpoint_have_one_gradient(reentrant, method):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.act = nn.Linear(3, 3), nn.Tanh()

        def forward(self, x):
            x = self.linear(x)
            for _ in range(2):
                x = self.act(checkpoint(self.linear, x, use_reentrant=reentrant))
            return self.linear(x)

    model, x, trace = seeded(Shared), batch(4, 3), Trace()
    h = trace.linear("linear", model.linear, x)
    for _ in range(2):
        h = trace.note("act", torch.tanh(trace.linear("linear", model.linear, h)))
    loss = trace.linear("linear", model.linear, h).square().sum()
    (done,) = captured(model, lambda m: run(m, x), method).passes
    assert_outputs(done, trace.gradients(loss), method)
    assert_parameters(done, parameter_gradients(model, loss))


@each_kind
def test_one_block_in_two_checkpoints_is_two_calls(reentrant):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x, y):
            return checkpoint(self.block, x, use_reentrant=reentrant) * checkpoint(self.block, y, use_reentrant=reentrant)

    model, x, y, trace = seeded(Twice), batch(4, 3).requires_grad_(), batch(3, 4).T.requires_grad_(), Trace()
    loss = (block(model.block, x, trace, "block") * block(model.block, y, trace, "block")).sum()
    (done,) = captured(model, lambda m: m(x, y).sum().backward()).passes
    assert_outputs(done, trace.gradients(loss))
    assert_parameters(done, parameter_gradients(model, loss))


class Scale(nn.Module):
    """A layer that returns its own parameter."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))

    def forward(self):
        return self.scale


@each_method
@each_kind
def test_a_checkpoint_at_the_end_whose_layers_return_what_was_there_before_is_in_the_same_pass(reentrant, method):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.same, self.scale = nn.Linear(3, 3), nn.Identity(), Scale()

        def forward(self, x):
            return checkpoint(lambda h: self.same(h) * self.scale(), self.linear(x), use_reentrant=reentrant)

    model, x = seeded(Scaled), batch(4, 3)
    h = model.linear(x).detach()
    (done,) = captured(model, lambda m: m(x).sum().backward(), method).passes
    found = {each.layer: each.gradient for each in done.outputs if each.gradient is not None}
    torch.testing.assert_close(found["linear"], model.scale.scale.detach().expand(4, 3))
    scale = next(each for each in done.parameters if each.parameter == "scale.scale")
    torch.testing.assert_close(scale.gradient, h.sum(0))


class Chunked(nn.Module):
    """A head that is used as a function, chunk by chunk, each in a checkpoint that is the first thing a backward reaches."""

    def __init__(self, chunks, reentrant, tied):
        super().__init__()
        self.body, self.act, self.head = nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)
        self.chunks, self.reentrant, self.tied = chunks, reentrant, tied

    def part(self, h):
        weight = self.body.weight if self.tied else self.head.weight
        return functional.linear(h, weight, self.head.bias).square().sum()

    def forward(self, x):
        parts = self.act(self.body(x)).chunk(self.chunks)
        return sum(checkpoint(self.part, h, use_reentrant=self.reentrant) for h in parts)

    def truth(self, x):
        trace = Trace()
        h = trace.note("act", torch.tanh(trace.linear("body", self.body, x)))
        return trace, self.part(h)


@each_method
@each_kind
@pytest.mark.parametrize("chunks", [1, 4])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.filterwarnings("ignore:layer 'head'")
def test_a_checkpoint_at_the_end_that_uses_weights_alone_is_in_the_same_pass(tied, chunks, reentrant, method):
    model, x = seeded(lambda: Chunked(chunks, reentrant, tied)), batch(4, 3)
    trace, loss = model.truth(x)
    passes = captured(model, lambda m: [m(x).backward() for _ in range(2)], method).passes
    assert len(passes) == 2
    for done in passes:
        assert_outputs(done, trace.gradients(loss), method)
        assert_parameters(done, parameter_gradients(model, loss))


@pytest.mark.filterwarnings("ignore:layer 'head'")
def test_nested_checkpoints_at_the_end_that_use_weights_alone_are_in_the_same_pass():
    class Deep(Chunked):
        def forward(self, x):
            h = self.act(self.body(x))
            return checkpoint(lambda h: checkpoint(self.part, h, use_reentrant=True), h, use_reentrant=True)

    model, x = seeded(lambda: Deep(1, True, False)), batch(4, 3)
    _, loss = model.truth(x)
    with capture_gradients(model, keep_passes=None) as capture:
        for _ in range(3):
            model(x).backward()
    assert len(capture.passes) == 3
    for done in capture.passes:
        assert {str(record.status) for record in done.outputs} == {"ok", "never_called"}
        norms = {record.parameter: record.statistics.norm for record in done.parameters}
        expected = {name: gradient.norm().item() for name, gradient in parameter_gradients(model, loss).items()}
        assert norms == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:layer 'head'")
def test_a_backward_that_fails_behind_a_checkpoint_of_weights_alone_is_no_pass():
    def fail(gradient):
        raise RuntimeError("on purpose")

    model, x = seeded(lambda: Chunked(2, True, False)), batch(4, 3)
    _, loss = model.truth(x)
    with capture_gradients(model, keep_gradients=True) as capture:
        h = model.act(model.body(x))
        h.register_hook(fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            sum(checkpoint(model.part, part, use_reentrant=True) for part in h.chunk(2)).backward()
        model(x).backward()
    (done,) = capture.passes
    assert_parameters(done, parameter_gradients(model, loss))


def test_a_model_that_runs_inside_the_backward_of_another_has_no_pass_of_it():
    class Looks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, model):
            ctx.model = model
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            with torch.no_grad():
                return ctx.model(gradient), None

    model, x = seeded(lambda: nn.Linear(3, 3)), batch(4, 3).requires_grad_()

    def step(m):
        Looks.apply(x, m).sum().backward()
        m(x).sum().backward()

    (done,) = captured(model, step).passes
    torch.testing.assert_close(done.outputs[0].gradient, torch.ones_like(x))
