"""Activation checkpointing runs forwards again inside backward: they are no calls, and the gradients are those of a plain run.

A forward hook fires in both runs (https://github.com/pytorch/pytorch/pull/90105); the re-entrant kind builds its graph only
in the second one, and runs a backward inside the backward.
"""

import gc

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop
from truth import (
    METHODS,
    Block,
    Trace,
    assert_outputs,
    assert_parameters,
    attached,
    batch,
    block,
    captured,
    each_kind,
    each_method,
    parameter_gradients,
    parameters,
    seeded,
    statuses,
)

from gradlab import CaptureError, capture_gradients

# Where an inner checkpoint runs inside an outer one's first run, without grad, PyTorch warns that nothing will have gradients.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")


class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(2, 3), Block(), nn.Linear(3, 1)
        self.reentrant = reentrant

    def forward(self, x):
        return self.head(checkpoint(self.block, self.stem(x), use_reentrant=self.reentrant))

    def truth(self, x):
        trace = Trace()
        h = block(self.block, trace.linear("stem", self.stem, x), trace, "block")
        return trace, trace.linear("head", self.head, h).square().sum()


def run(model, x):
    model(x).square().sum().backward()


@each_method
@each_kind
def test_a_checkpointed_forward_counts_once_and_its_gradients_are_right(reentrant, method):
    model, x = seeded(lambda: Net(reentrant)), batch(4, 2)
    trace, loss = model.truth(x)
    (done,) = captured(model, lambda m: run(m, x), method).passes
    assert_outputs(done, trace.gradients(loss), method)
    assert_parameters(done, parameter_gradients(model, loss))
    assert {(r.layer, r.call) for r in done.outputs} == {(layer, call) for layer, call, _ in trace.tensors}


@each_kind
def test_every_step_of_training_with_checkpoints_is_right(reentrant):
    model, steps = seeded(lambda: Net(reentrant)), [batch(rows, 2) for rows in (4, 1, 3)]
    with capture_gradients(model, keep_gradients=True) as capture:
        for x in steps:
            run(model, x)
    assert len(capture.passes) == 3
    for done, x in zip(capture.passes, steps, strict=True):
        trace, loss = model.truth(x)
        assert_outputs(done, trace.gradients(loss))
        assert_parameters(done, parameter_gradients(model, loss))


@each_method
def test_two_backwards_through_a_checkpoint_are_two_passes(method):
    model, x = seeded(lambda: Net(True)), batch(4, 2)

    def twice(model):
        loss = model(x).square().sum()
        loss.backward(retain_graph=True)
        (3 * loss).backward()

    trace, loss = model.truth(x)
    for done, factor in zip(captured(model, twice, method).passes, (1, 3), strict=True):
        assert_outputs(done, trace.gradients(factor * loss), method)
        assert_parameters(done, parameter_gradients(model, factor * loss))


@each_kind
def test_full_backward_hooks_refuse_a_dict_in_a_checkpoint_as_they_do_outside(reentrant):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x), {"sine": x.sin()}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.packed = Packed()

        def inside(self, x):
            y, other = self.packed(x)
            return y * other["sine"]

        def forward(self, x):
            return checkpoint(self.inside, x, use_reentrant=reentrant)

    model = seeded(Net)
    with pytest.raises(CaptureError, match="'packed'"), capture_gradients(model, "full_backward_hooks", layers=["packed"]):
        run(model, batch(4, 3).requires_grad_())
    assert attached(model) == []


@each_kind
def test_gradients_need_not_be_kept_for_a_checkpoint_to_be_measured(reentrant):
    model, x = seeded(lambda: Net(reentrant)), batch(4, 2)
    trace, loss = model.truth(x)
    with capture_gradients(model) as capture:
        run(model, x)
    for record in capture.passes[0].outputs:
        wanted = trace.gradients(loss)[record.layer, record.call, "0"]
        assert record.statistics.norm == pytest.approx(wanted.norm().item(), rel=1e-9)
    for name, wanted in parameter_gradients(model, loss).items():
        assert parameters(capture.passes[0])[name].statistics.norm == pytest.approx(wanted.norm().item(), rel=1e-9)


@each_kind
@pytest.mark.parametrize("early_stop", [True, False])
def test_a_checkpoint_that_runs_to_its_end_again_is_no_second_call(reentrant, early_stop):
    model, x = seeded(lambda: Net(reentrant)), batch(4, 2)
    trace, loss = model.truth(x)
    with set_checkpoint_early_stop(early_stop):
        (done,) = captured(model, lambda m: run(m, x)).passes
    assert_outputs(done, trace.gradients(loss))


@each_kind
def test_a_sequence_in_segments_is_right(reentrant):
    model, x = seeded(lambda: nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(3, 3), nn.Tanh())))), batch(4, 3)
    x.requires_grad_()
    trace, h = Trace(), x
    for place in range(0, 8, 2):
        h = trace.note(str(place + 1), torch.tanh(trace.linear(str(place), model[place], h)))
    run = lambda m: checkpoint_sequential(m, 3, x, use_reentrant=reentrant).sum().backward()  # noqa: E731
    (done,) = captured(model, run).passes
    assert_outputs(done, trace.gradients(h.sum()))


@each_kind
def test_a_dropout_in_a_checkpoint_draws_as_if_nobody_watched(reentrant):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 3)), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=reentrant))

    gradients = []
    for watched in (False, True):
        model, x = seeded(Noisy), batch(4, 3).requires_grad_()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            if watched:
                with capture_gradients(model):
                    model(x).sum().backward()
            else:
                model(x).sum().backward()
            gradients.append([p.grad for p in model.parameters()] + [torch.get_rng_state()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@each_method
def test_a_checkpoint_without_anything_to_learn_before_it_has_no_gradient_inside(method):
    # Re-entrant checkpoints need an input that requires grad; without one PyTorch warns and computes no gradients inside.
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=True))

    model = seeded(First)
    (done,) = captured(model, lambda m: run(m, batch(4, 2)), method).passes
    assert statuses(done) == {("block", 0, "0"): "not_tracked", ("head", 0, "0"): "ok"}
    assert parameters(done)["block.weight"].status == "no_gradient"
    assert model.block.weight.grad is None


@pytest.mark.parametrize("method", METHODS)
@each_kind
def test_an_exception_in_the_second_run_leaves_nothing_behind(reentrant, method):
    class Fails(nn.Module):
        runs = 0

        def forward(self, x):
            self.runs += 1
            if self.runs == 2:
                raise ValueError("second run")
            return x.sin()

    class WithFailure(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.fails, self.head = nn.Linear(2, 3), Fails(), nn.Linear(3, 1)

        def forward(self, x):
            inner = lambda h: self.head(self.fails(h).sin())  # noqa: E731
            return checkpoint(inner, self.stem(x), use_reentrant=reentrant)

    model, x = seeded(WithFailure), batch(4, 2)

    def fail_and_go_on(model):
        with pytest.raises(ValueError, match="second run"):
            run(model, x)
        model.zero_grad()
        run(model, x)

    capture = captured(model, fail_and_go_on, method)
    trace = Trace()
    h = trace.note("fails", trace.linear("stem", model.stem, x).sin()).sin()
    loss = trace.linear("head", model.head, h).square().sum()
    expected = trace.gradients(loss)
    done = capture.passes[-1]
    found = {r.layer: r for r in done.outputs if r.gradient is not None}
    for (layer, _, _), wanted in expected.items():
        if method == "tensor_hooks" or layer in found:
            torch.testing.assert_close(found[layer].gradient, wanted)
    assert_parameters(done, parameter_gradients(model, loss))
    assert attached(model) == []


def test_a_pass_through_a_checkpoint_keeps_no_gradients_that_nobody_asked_for():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.block = nn.Linear(2, 19), nn.Linear(19, 23)

        def forward(self, x):
            return checkpoint(self.block, self.stem(x), use_reentrant=True)

    model = Wide()
    with capture_gradients(model) as capture:
        for _ in range(20):
            functional.relu(model(torch.ones(1, 2))).sum().backward()
        model.zero_grad()
        gc.collect()
        kept = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor) and o.shape == (23, 19)]
    assert len(capture.passes) == 20
    assert len(kept) <= 1  # the weight itself
