"""Gradients that are differentiated again: gradient penalties, Hessian products, meta learning.

Only the outer backward is a pass. Its output gradients are those autograd gives for the outer loss; an inner call of
`torch.autograd.grad(create_graph=True)` fires the same hooks (https://github.com/pytorch/pytorch/issues/88312).
"""

import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from truth import METHODS, Trace, assert_outputs, assert_parameters, batch, captured, each_method, parameter_gradients, seeded

from gradlab import capture_gradients


def smooth():
    # Softplus: its backward uses its input, not its output, so that every method sees the whole second derivative.
    return seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1)))


def forward(model, x, trace):
    h = trace.note("1", functional.softplus(trace.linear("0", model[0], x)))
    return trace.linear("2", model[2], h)


def penalty(output, x):
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


@each_method
def test_a_gradient_penalty_leaves_one_pass_with_the_gradients_of_the_whole_loss(method):
    model, x, trace = smooth(), batch(4, 3).requires_grad_(), Trace()
    y = forward(model, x, trace)
    loss = y.square().mean() + 10 * penalty(y, x)

    def run(model):
        output = model(x)
        (output.square().mean() + 10 * penalty(output, x)).backward()

    (done,) = captured(model, run, method).passes
    assert_outputs(done, trace.gradients(loss), method)
    assert_parameters(done, parameter_gradients(model, loss))


@pytest.mark.parametrize(
    "activation",
    [nn.Softplus(), nn.Tanh(), nn.Sigmoid(), nn.ReLU(), nn.Identity(), nn.LeakyReLU(0.2)],
    ids=lambda module: type(module).__name__,
)
@pytest.mark.parametrize("method", METHODS)
def test_a_penalty_alone_is_one_pass_whatever_the_activation(activation, method):
    model, x = seeded(lambda: nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 1))), batch(4, 3).requires_grad_()
    (done,) = captured(model, lambda m: penalty(m(x), x).backward(), method).passes
    assert_parameters(done, parameter_gradients(model, penalty(model(x), x)))


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid, nn.Softplus, nn.GELU])
def test_tensor_hooks_give_what_autograd_gives_for_the_output(activation):
    model, x = seeded(lambda: nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 1))), batch(4, 3).requires_grad_()
    h = functional.linear(x, model[0].weight, model[0].bias)
    a = model[1](h)
    y = functional.linear(a, model[2].weight, model[2].bias)
    wanted = torch.autograd.grad(y.square().mean() + penalty(y, x), [h, a, y])

    def run(model):
        output = model(x)
        (output.square().mean() + penalty(output, x)).backward()

    (done,) = captured(model, run).passes
    assert_outputs(done, {(layer, 0, "0"): g for layer, g in zip("012", wanted, strict=True)})


@each_method
def test_several_inner_gradients_of_one_loss_leave_one_pass(method):
    model, x, trace = smooth(), batch(4, 3).requires_grad_(), Trace()
    y = forward(model, x, trace)
    loss = y.square().mean() + penalty(y, x) + penalty(y * y, x)

    def run(model):
        output = model(x)
        (output.square().mean() + penalty(output, x) + penalty(output * output, x)).backward()

    (done,) = captured(model, run, method).passes
    assert_outputs(done, trace.gradients(loss), method)


def test_inner_gradients_push_no_finished_pass_out():
    model, x = smooth(), batch(4, 3).requires_grad_()
    with capture_gradients(model, keep_passes=2) as capture:
        (2 * model(x).sum()).backward()
        (3 * model(x).sum()).backward()
        (model(x).sum() + penalty(model(x), x) + penalty(model(x), x)).backward()
    assert len(capture.passes) == 2
    assert capture.passes[0].outputs[-1].statistics.max == 3


@each_method
def test_an_inner_gradient_that_nothing_differentiates_is_a_pass(method):
    model, x = smooth(), batch(4, 3).requires_grad_()
    inner = []
    capture = captured(model, lambda m: inner.append(torch.autograd.grad(m(x).sum(), x, create_graph=True)), method)
    trace = Trace()
    expected = trace.gradients(forward(model, x, trace).sum())
    (done,) = capture.passes
    assert_outputs(done, expected, method)


@each_method
def test_a_saliency_map_before_the_training_step_is_a_pass_of_its_own(method):
    model, x = smooth(), batch(4, 3).requires_grad_()

    def run(model):
        torch.autograd.grad(model(x).sum(), x)
        model(x).square().sum().backward()

    saliency, step = captured(model, run, method).passes
    for done, of in ((saliency, lambda y: y.sum()), (step, lambda y: y.square().sum())):
        trace = Trace()
        assert_outputs(done, trace.gradients(of(forward(model, x, trace))), method)


@each_method
def test_backward_with_create_graph_twice_is_two_passes(method):
    model, x = smooth(), batch(4, 3)

    def second_loss(gradients):
        return sum(g.square().sum() for g in gradients)

    def run(model):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
            model(x).square().sum().backward(create_graph=True)
        second_loss([p.grad for p in model.parameters()]).backward()

    first, second = captured(model, run, method).passes
    trace = Trace()
    loss = forward(model, x, trace).square().sum()
    assert_outputs(first, trace.gradients(loss), method)
    inner = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    assert_outputs(second, trace.gradients(second_loss(inner)), method)
    assert_parameters(second, parameter_gradients(model, second_loss(inner)))
    model.zero_grad()


def test_a_frozen_networks_backward_with_create_graph_counts_like_any_other():
    model, x = smooth().requires_grad_(False), batch(4, 3).requires_grad_()

    def run(model):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
            model(x).square().sum().backward(create_graph=True)
        x.grad.square().sum().backward()

    first, second = captured(model, run).passes
    trace = Trace()
    loss = forward(model, x, trace).square().sum()
    assert_outputs(first, trace.gradients(loss))
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    assert_outputs(second, trace.gradients(slope.square().sum()))
    x.grad = None


@each_method
@pytest.mark.parametrize("products", [1, 2])
def test_a_hessian_vector_product_is_one_pass(products, method):
    model, x = smooth(), batch(4, 3)
    weights = list(model.parameters())
    direction = [torch.ones_like(weight) for weight in weights]

    def along(gradients):
        return sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))

    def run(model):
        gradients = torch.autograd.grad(model(x).square().sum(), weights, create_graph=True)
        for _ in range(products):
            torch.autograd.grad(along(gradients), weights, retain_graph=True)

    passes = captured(model, run, method).passes
    assert len(passes) == products
    trace = Trace()
    loss = forward(model, x, trace).square().sum()
    product = along(torch.autograd.grad(loss, weights, create_graph=True))
    for done in passes:
        assert_outputs(done, trace.gradients(product), method)
        assert_parameters(done, parameter_gradients(model, product))


@each_method
def test_a_jacobian_row_by_row_is_a_pass_a_row(method):
    model, x = seeded(lambda: nn.Linear(3, 2)), batch(1, 3).requires_grad_()
    passes = captured(model, lambda m: torch.autograd.functional.jacobian(m, x), method).passes
    assert [done.outputs[0].gradient.tolist() for done in passes] == [[[1.0, 0.0]], [[0.0, 1.0]]]


def test_an_inner_learning_step_with_other_weights_leaves_the_models_own_gradients_right():
    model, x = smooth(), batch(4, 3)
    named = dict(model.named_parameters())

    def adapted(call):
        gradients = torch.autograd.grad(call(named).square().sum(), list(named.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(named.items(), gradients, strict=True)}
        return call(fast).square().sum()

    def by_hand(weights):
        h = functional.softplus(functional.linear(x, weights["0.weight"], weights["0.bias"]))
        return functional.linear(h, weights["2.weight"], weights["2.bias"])

    wanted = torch.autograd.grad(adapted(by_hand), list(named.values()))
    (done,) = captured(model, lambda m: adapted(lambda weights: functional_call(m, weights, (x,))).backward()).passes
    assert_parameters(done, dict(zip(named, wanted, strict=True)))


@each_method
def test_a_second_derivative_inside_a_function_of_ones_own_is_part_of_the_outer_backward(method):
    class Energy(torch.autograd.Function):
        """Its backward runs the engine again."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(again.sin().sum(), again)
            return gradient * slope

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.last(Energy.apply(self.first(x)))

    model, x, trace = seeded(Net), batch(4, 3), Trace()
    loss = trace.linear("last", model.last, trace.linear("first", model.first, x).sin()).square().sum()
    (done,) = captured(model, lambda m: m(x).square().sum().backward(), method).passes
    assert_outputs(done, trace.gradients(loss), method)
