"""Checkpoints inside checkpoints, and modules and weights that are used inside and outside of one."""

import pytest
import torch
from torch import nn
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
