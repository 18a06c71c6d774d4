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
