"""Forwards and backwards in every order that training uses: each backward is a pass, with the gradients of that pass alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from truth import (
    Trace,
    assert_outputs,
    assert_parameters,
    batch,
    captured,
    each_method,
    forward,
    parameter_gradients,
    seeded,
    small,
    statuses,
)

from gradlab import capture_gradients


def truth(model, x, factor=1.0):
    """The gradients of factor · Σ model(x)², of one forward and one backward."""
    trace = Trace()
    loss = factor * forward(model, x, trace).square().sum()
    return trace.gradients(loss), parameter_gradients(model, loss)


@each_method
@pytest.mark.parametrize("zero", [True, False])
def test_every_backward_is_a_pass_with_its_own_gradients(zero, method):
    model, x = small(), batch(2, 3)

    def run(model):
        for factor in (1.0, -3.0, 0.5):
            (factor * model(x).square().sum()).backward()
            if zero:
                model.zero_grad()

    passes = captured(model, run, method).passes
    assert len(passes) == 3
    for done, factor in zip(passes, (1.0, -3.0, 0.5), strict=True):
        outputs, weights = truth(model, x, factor)
        assert_outputs(done, outputs)
        assert_parameters(done, weights)


@each_method
def test_a_stale_grad_from_before_does_not_count(method):
    model, x = small(), batch(2, 3)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e6)
    _, weights = truth(model, x)
    done = captured(model, lambda m: m(x).square().sum().backward(), method).passes[0]
    assert_parameters(done, weights)
    torch.testing.assert_close(model[0].bias.grad, 1e6 + weights["0.bias"])


@each_method
@pytest.mark.parametrize("times", [2, 3])
def test_several_backwards_on_one_graph_are_several_passes_of_one_forward(times, method):
    model, x = small(), batch(2, 3)

    def run(model):
        loss = model(x).square().sum()
        for factor in range(1, times + 1):
            (factor * loss).backward(retain_graph=True)

    passes = captured(model, run, method).passes
    assert len(passes) == times
    for factor, done in enumerate(passes, 1):
        outputs, weights = truth(model, x, factor)
        assert_outputs(done, outputs)
        assert_parameters(done, weights)


@each_method
def test_two_forwards_and_then_their_backwards_are_two_passes(method):
    model, one, other = small(), batch(2, 3), batch(5, 3)

    def run(model):
        first, second = model(one).square().sum(), model(other).square().sum()
        second.backward()
        (3 * first).backward()

    passes = captured(model, run, method).passes
    assert len(passes) == 2
    for done, x, call, factor in zip(passes, (other, one), (1, 0), (1, 3), strict=True):
        outputs, weights = truth(model, x, factor)
        expected = {(layer, call, "0"): outputs[layer, 0, "0"] for layer in "012"}
        assert_outputs(done, expected | {(layer, 1 - call, "0"): None for layer in "012"}, method)
        assert_parameters(done, weights)


@each_method
def test_a_backward_on_an_earlier_graph_finds_its_own_forward(method):
    model, one, other = small(), batch(2, 3), batch(5, 3)

    def run(model):
        first = model(one).square().sum()
        first.backward(retain_graph=True)
        model(other).square().sum().backward()
        (2 * first).backward()

    passes = captured(model, run, method).passes
    assert [done.outputs[0].shape[0] for done in passes] == [2, 5, 2]
    for done, x, factor in zip(passes, (one, other, one), (1, 1, 2), strict=True):
        assert_outputs(done, truth(model, x, factor)[0], method)


@each_method
def test_one_loss_over_two_rounds_counts_calls_through(method):
    model, one, other, trace = small(), batch(2, 3), batch(5, 3), Trace()

    def run(model):
        first = model(one)
        first.sum().backward(retain_graph=True)
        (model(other).square().sum() * first.sum()).backward()

    _, second = captured(model, run, method).passes
    before, after = forward(model, one, trace), forward(model, other, trace)
    assert_outputs(second, trace.gradients(after.square().sum() * before.sum()), method)
    assert [record.call for record in second.outputs] == [0, 0, 0, 1, 1, 1]


@each_method
def test_one_backward_over_two_losses_is_one_pass(method):
    model, x = small(), batch(2, 3)

    def run(model):
        y = model(x)
        torch.autograd.backward([y.square().sum(), 2 * y.square().sum()])

    (done,) = captured(model, run, method).passes
    assert_outputs(done, truth(model, x, 3)[0])


@each_method
def test_a_backward_from_outside_gradients_needs_no_scalar_loss(method):
    model, x, cotangent = small(), batch(4, 3), batch(4, 1)
    trace = Trace()
    y = forward(model, x, trace)
    (done,) = captured(model, lambda m: m(x).backward(cotangent), method).passes
    assert_outputs(done, trace.gradients((y * cotangent).sum()))


@each_method
def test_autograd_grad_is_a_pass_too(method):
    model, x = small(), batch(2, 3)
    outputs, weights = truth(model, x)

    def run(model):
        found = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        assert all(torch.allclose(f, w) for f, w in zip(found, weights.values(), strict=True))

    (done,) = captured(model, run, method).passes
    assert_outputs(done, outputs, method)
    assert_parameters(done, weights)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_gradient_for_the_input_alone_passes_the_outputs_and_no_parameter():
    model, x = small(), batch(2, 3).requires_grad_()
    (done,) = captured(model, lambda m: torch.autograd.grad(m(x).square().sum(), x)).passes
    assert_outputs(done, truth(model, x)[0])
    assert {str(record.status) for record in done.parameters} == {"no_gradient"}


@each_method
def test_the_forwards_of_two_networks_in_turns_are_kept_apart(method):
    generator, critic = small(), seeded(lambda: nn.Sequential(nn.Linear(1, 4), nn.Softplus(), nn.Linear(4, 1)), 1)
    noise, real = batch(4, 3), batch(4, 1)

    def step():
        critic.zero_grad()
        (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
        generator.zero_grad()
        (-critic(generator(noise)).mean()).backward()

    with (
        capture_gradients(generator, method, keep_gradients=True) as first,
        capture_gradients(critic, method, keep_gradients=True) as second,
    ):
        step()
    assert (len(first.passes), len(second.passes)) == (1, 2)
    trace = Trace()
    h = functional.softplus(functional.linear(forward(generator, noise, trace), critic[0].weight, critic[0].bias))
    expected = trace.gradients(-functional.linear(h, critic[2].weight, critic[2].bias).mean())
    if method == "tensor_hooks":  # the first round holds the detached forward too
        calls = {(r.layer, r.call): r.gradient for r in first.passes[0].outputs}
        assert all(calls[layer, 0] is None for layer in "012")
        for layer in "012":
            torch.testing.assert_close(calls[layer, 1], expected[layer, 0, "0"])
    assert [r.call for r in second.passes[0].outputs] == [0, 0, 0, 1, 1, 1]
    assert [r.call for r in second.passes[1].outputs] == [0, 0, 0]


@each_method
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)])
def test_evaluations_between_forward_and_backward_do_not_disturb(context, method):
    model, x = small(), batch(2, 3)

    def run(model):
        model.eval()
        with context():
            model(batch(7, 3))
        model.train()
        y = model(x)
        with context():
            model(batch(6, 3))
        y.square().sum().backward()

    (done,) = captured(model, run, method).passes
    outputs, weights = truth(model, x)
    expected = {(layer, 1, "0"): outputs[layer, 0, "0"] for layer in "012"}
    assert_outputs(done, expected | {(layer, call, "0"): None for layer in "012" for call in (0, 2)})
    assert {status for (_, call, _), status in statuses(done).items() if call != 1} == {"not_tracked"}
    assert_parameters(done, weights)


@each_method
def test_a_forward_between_two_passes_belongs_to_the_next(method):
    model, x = small(), batch(2, 3)

    def run(model):
        model(x).square().sum().backward()
        with torch.no_grad():
            model(batch(7, 3))
        model(x).square().sum().backward()

    first, second = captured(model, run, method).passes
    assert [record.call for record in first.outputs] == [0, 0, 0]
    assert [(record.call, record.shape[0]) for record in second.outputs] == [(0, 7)] * 3 + [(1, 2)] * 3


class Scaled(nn.Module):
    """One of its layers returns its own parameter: a leaf, which every forward shares."""

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(4))

        def forward(self):
            return self.factor

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 4), self.Scale()

    def forward(self, x):
        return self.linear(x) * self.scale()


@each_method
def test_a_leaf_does_not_say_which_of_two_forwards_its_gradient_belongs_to(method):
    model, x = seeded(Scaled), batch(5, 3)

    def run(model):
        first = model(x).sum()
        first.backward(retain_graph=True)
        model(x)
        first.backward()

    before, after = captured(model, run, method).passes
    if method == "tensor_hooks":
        assert statuses(before)["scale", 0, "0"] == "ok"
    assert {status for (layer, _, _), status in statuses(after).items() if layer == "scale"} == {"unsupported"}
    assert statuses(after)["linear", 0, "0"] == ("unsupported" if method == "retain_grad" else "ok")
    assert_parameters(after, parameter_gradients(model, model(x).sum()))


@each_method
def test_a_capture_may_begin_and_end_inside_another_backward(method):
    model, x, captures = small(), batch(5, 3), []

    def inside(gradient):
        with torch.enable_grad():
            captures.append(captured(model, lambda m: m(x).square().sum().backward(), method))

    start = torch.ones(3, requires_grad=True)
    again = start * 3
    again.register_hook(inside)
    again.sum().backward()
    (done,) = captures[0].passes
    outputs, parameters = truth(model, x)
    assert_outputs(done, outputs, method)
    assert_parameters(done, parameters)
