"""A backward that runs inside another: a checkpoint's second run is part of it, a solver's steps are not."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from truth import (
    assert_outputs,
    assert_parameters,
    batch,
    captured,
    each_method,
    parameter_gradients,
    parameters,
    readings,
    seeded,
)

from gradlab import capture_gradients

X = batch(4, 3)
both_ways = pytest.mark.parametrize("keep_gradients", [True, False])


class Equilibrium(nn.Module):
    """Its backward solves for the gradient with torch.autograd.grad inside a tensor hook."""

    def __init__(self, steps):
        super().__init__()
        self.f, self.head, self.steps = nn.Linear(3, 3), nn.Linear(3, 1), steps

    def forward(self, x):
        z = self.f(x)
        start = z.detach().requires_grad_()
        again = self.f(start)

        def solve(gradient):
            solution = gradient
            for _ in range(self.steps):
                solution = 0.5 * torch.autograd.grad(again, start, solution, retain_graph=True)[0] + gradient
            return solution

        z.register_hook(solve)
        return self.head(z)


@each_method
@both_ways
@pytest.mark.parametrize("steps", [1, 10])
def test_the_steps_of_a_solver_inside_a_backward_are_no_gradients_of_the_loss(steps, keep_gradients, method):
    model = seeded(lambda: Equilibrium(steps))
    with capture_gradients(model, method, keep_gradients=keep_gradients) as capture:
        model(X).sum().backward()
    records = readings(capture.passes[0])
    assert (str(records["f", 1, "0"].status), records["f", 1, "0"].statistics) == ("unsupported", None)
    assert records["f", 1, "0"].note
    assert records["head", 0, "0"].status == "ok"
    named = parameters(capture.passes[0])
    for name, parameter in model.named_parameters():
        assert named[name].statistics.norm == pytest.approx(parameter.grad.norm().item(), rel=1e-6)


class Recompute(torch.autograd.Function):
    """A checkpoint of another hand: it asks for the gradients instead of having them accumulated."""

    @staticmethod
    def forward(context, module, x, *weights):
        context.module = module
        context.save_for_backward(x, *weights)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(context, gradient):
        x, *weights = context.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = context.module(x)
        return None, *torch.autograd.grad(y, [x, *weights], gradient)


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.last(Recompute.apply(self.inner, self.first(x), *self.inner.parameters()))


@pytest.mark.parametrize("method", ["tensor_hooks", "retain_grad"])
def test_a_custom_function_that_asks_for_its_gradients_again_counts_them_once(method):
    model = seeded(Recomputed)
    (done,) = captured(model, lambda m: m(X).square().sum().backward(), method).passes
    first = model.first(X)
    inner = model.inner(first)
    loss = model.last(inner).square().sum()
    expected = torch.autograd.grad(loss, [first, inner], retain_graph=True)
    assert_outputs(done, {("first", 0, "0"): expected[0], ("inner", 0, "0"): expected[1]} | last_of(done), method)
    assert_parameters(done, parameter_gradients(model, loss))


def last_of(done):
    return {("last", 0, "0"): readings(done)["last", 0, "0"].gradient}


@pytest.mark.parametrize("method", ["tensor_hooks", "retain_grad"])
def test_a_parameter_that_is_only_asked_for_inside_is_withheld(method):
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.aside = nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x):
            y, other = self.main(x), self.aside(x).sum()
            y.register_hook(lambda gradient: torch.autograd.grad(other, self.aside.weight, retain_graph=True) and None)
            return y

    (done,) = captured(seeded(Aside), lambda m: m(X).sum().backward(), method).passes
    record = parameters(done)["aside.weight"]
    assert (str(record.status), record.gradient) == ("unsupported", None)
    assert "torch.autograd.grad" in record.note


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.Linear(1, 1), nn.Linear(1, 1)

    def loop(self, h):
        for _ in range(3500):
            h = self.cell(h)
        return h

    def forward(self, x):
        return self.head(checkpoint(self.loop, x, use_reentrant=True))


def test_no_call_inside_a_checkpoint_is_forgotten_before_it_is_run_again():
    model = Loop()
    with capture_gradients(model) as capture:
        model(torch.ones(1, 1, requires_grad=True)).sum().backward()
    calls = [record.call for record in capture.passes[0].outputs if record.layer == "cell"]
    assert calls == list(range(3500))
    assert {str(record.status) for record in capture.passes[0].outputs} <= {"ok", "tiny", "all_zero"}


class Reversible(torch.autograd.Function):
    """Keeps no graph: its backward goes through the layers from the last to the first and runs each again."""

    @staticmethod
    def forward(ctx, x, layers):
        ctx.layers, ctx.inputs = layers, []
        for layer in layers:
            ctx.inputs.append(x)
            x = x + layer(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        for layer, x in zip(reversed(ctx.layers), reversed(ctx.inputs), strict=True):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                torch.autograd.backward(x + layer(x), gradient)
            gradient = x.grad
        return gradient, None


class NamedOtherwise(torch.autograd.Function):
    @staticmethod
    def forward(self, x, layers):
        return Reversible.forward(self, x, layers)

    @staticmethod
    def backward(self, gradient):
        return Reversible.backward(self, gradient)


class WithSetup(torch.autograd.Function):
    """The newer style: the forward is given no context."""

    @staticmethod
    def forward(x, layers):
        inputs = []
        for layer in layers:
            inputs.append(x)
            x = x + layer(x)
        return x, inputs

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.layers, ctx.inputs = inputs[1], output[1]

    @staticmethod
    def backward(ctx, gradient, _):
        return Reversible.backward(ctx, gradient)


class Implicit(torch.autograd.Function):
    """Iterates to a fixed point, and differentiates one more iteration there as often as the solution takes."""

    @staticmethod
    def forward(ctx, x, layers):
        ctx.layer, ctx.x, z = layers[0], x, torch.zeros_like(x)
        for _ in layers:
            z = torch.tanh(0.1 * ctx.layer(z) + x)
        ctx.z = z
        return z

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            z, x = ctx.z.detach().requires_grad_(), ctx.x.detach().requires_grad_()
            again = torch.tanh(0.1 * ctx.layer(z) + x)
        solution = gradient
        for _ in range(5):
            solution = torch.autograd.grad(again, z, solution, retain_graph=True)[0] + gradient
        torch.autograd.backward(again, solution)
        return x.grad, None


class Through(nn.Module):
    """Layers inside a custom function that runs them again in its backward."""

    def __init__(self, function, shared):
        super().__init__()
        self.first, self.f = nn.Linear(3, 3), nn.Linear(3, 3)
        self.g = self.f if shared else nn.Linear(3, 3)
        self.function = function

    def forward(self, x):
        result = self.function.apply(self.first(x), [self.f, self.g])
        return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("method", ["tensor_hooks", "retain_grad"])
@pytest.mark.parametrize("function", [Reversible, NamedOtherwise])
def test_layers_of_a_reversible_function_that_run_once_are_right(function, method):
    model = seeded(lambda: Through(function, shared=False))
    (done,) = captured(model, lambda m: m(X).pow(3).sum().backward(), method).passes
    first = model.first(X)
    f = model.f(first)
    g = model.g(first + f)
    expected = torch.autograd.grad((first + f + g).pow(3).sum(), [first, f, g])
    assert_outputs(done, dict(zip([("first", 0, "0"), ("f", 0, "0"), ("g", 0, "0")], expected, strict=True)), method)


@each_method
@pytest.mark.parametrize(
    ("function", "shared"),
    [(Reversible, True), (NamedOtherwise, True), (WithSetup, True), (WithSetup, False), (Implicit, True)],
)
def test_a_call_that_is_run_again_without_saying_which_it_is_has_no_number(function, shared, method):
    model = seeded(lambda: Through(function, shared))
    (done,) = captured(model, lambda m: m(X).pow(3).sum().backward(), method).passes
    for (layer, _, _), record in readings(done).items():
        if layer in "fg":
            assert (str(record.status), record.gradient) == ("unsupported", None)
            assert "use torch.utils.checkpoint" in record.note or record.note.endswith("use tensor_hooks")
    named = parameters(done)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(named[name].gradient, parameter.grad)


def test_a_layer_that_is_differentiated_again_and_again_has_no_number():
    class Named(Implicit):
        @staticmethod
        def forward(ctx, x, layers):
            return Implicit.forward(ctx, x, layers[:1])

    model = seeded(lambda: Through(Named, shared=True))
    (done,) = captured(model, lambda m: m(X).sum().backward()).passes
    record = readings(done)["f", 0, "0"]
    assert (str(record.status), record.gradient) == ("unsupported", None)
    assert "several gradients" in record.note
