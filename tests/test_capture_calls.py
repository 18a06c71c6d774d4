"""Layers called several times, never, or around their forward; forwards and backwards in every order that training uses."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from truth import (
    METHODS,
    Trace,
    assert_outputs,
    assert_parameters,
    batch,
    captured,
    each_method,
    forward,
    parameter_gradients,
    parameters,
    readings,
    seeded,
    small,
    statuses,
)

from gradlab import CaptureWarning


def truth(model, x, factor=1.0):
    """The gradients of factor · Σ model(x)², of one forward and one backward."""
    trace = Trace()
    loss = factor * forward(model, x, trace).square().sum()
    return trace.gradients(loss), parameter_gradients(model, loss)


class Recurrent(nn.Module):
    """One linear layer and one activation, called as often as asked."""

    def __init__(self, times):
        super().__init__()
        self.times = times
        self.cell, self.act, self.head = nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)

    def forward(self, x):
        for _ in range(self.times):
            x = self.act(self.cell(x))
        return self.head(x)


@each_method
@pytest.mark.parametrize("times", [1, 2, 5])
def test_every_call_of_a_layer_has_a_gradient_of_its_own(times, method):
    model, x, trace = seeded(lambda: Recurrent(times)), batch(4, 3), Trace()
    h = x
    for _ in range(times):
        h = trace.note("act", torch.tanh(trace.linear("cell", model.cell, h)))
    loss = trace.linear("head", model.head, h).square().sum()
    done = captured(model, lambda m: m(x).square().sum().backward(), method).passes[0]
    assert_outputs(done, trace.gradients(loss), method)
    assert_parameters(done, parameter_gradients(model, loss))
    calls = [(record.layer, record.call) for record in done.outputs]
    assert calls == [(name, call) for call in range(times) for name in ("cell", "act")] + [("head", 0)]
    if times == 1 or method != "full_backward_hooks":  # which do not say which call they report, so that all are withheld
        assert [record.backward_index for record in done.outputs] == list(range(2 * times, -1, -1))


@each_method
@pytest.mark.parametrize("layers", [None, "all", ["b.0"], ["a.0", "b.0"]])
def test_one_module_under_two_names_is_one_layer_called_twice(layers, method):
    shared = seeded(lambda: nn.Linear(3, 3))
    model = nn.ModuleDict({"a": nn.Sequential(shared, nn.Tanh()), "b": nn.Sequential(shared)})
    x, trace = batch(4, 3), Trace()
    h = trace.note("a.1", torch.tanh(trace.linear("a.0", shared, x)))
    loss = trace.linear("a.0", shared, h).square().sum()
    expected = trace.gradients(loss)
    done = captured(model, lambda m: m["b"](m["a"](x)).square().sum().backward(), method, layers=layers).passes[0]
    names = {"a.0"} if layers in (None, "all") else set(layers)
    wanted = {(name, call, "0"): expected["a.0", call, "0"] for name in names for call in range(2)}
    found = {key: record for key, record in readings(done).items() if key[0] in names}
    assert found.keys() == wanted.keys()
    for key, gradient in wanted.items():
        if found[key].gradient is None:
            assert (method, str(found[key].status)) == ("full_backward_hooks", "unsupported")
        else:
            torch.testing.assert_close(found[key].gradient, gradient)


@each_method
def test_several_forwards_before_one_backward_are_several_calls(method):
    model, trace = small(), Trace()
    inputs = [batch(rows, 3) for rows in (1, 2, 5)]
    loss = sum(forward(model, x, trace).square().sum() for x in inputs)
    done = captured(model, lambda m: sum(m(x).square().sum() for x in inputs).backward(), method).passes
    assert len(done) == 1
    assert_outputs(done[0], trace.gradients(loss), method)
    assert_parameters(done[0], parameter_gradients(model, loss))
    assert [record.shape[0] for record in done[0].outputs] == [1, 1, 1, 2, 2, 2, 5, 5, 5]


@each_method
def test_a_forward_that_the_loss_does_not_use_has_no_gradient(method):
    model, x = small(), batch(2, 3)

    def run(model):
        model(x)
        model(x).square().sum().backward()

    done = captured(model, run, method).passes[0]
    outputs, _ = truth(model, x)
    unused, used = {(layer, 0, "0"): None for layer in "012"}, {(layer, 1, "0"): outputs[layer, 0, "0"] for layer in "012"}
    assert_outputs(done, unused | used, method)
    assert {statuses(done)[layer, 0, "0"] for layer in "012"} == {"no_gradient"}


class Around(nn.Module):
    """Uses its layers in other ways than calling them."""

    def __init__(self, how):
        super().__init__()
        self.linear, self.act, self.how = nn.Linear(3, 2), nn.Tanh(), how

    def forward(self, x):
        return self.act(self.how(self.linear, x))


@each_method
@pytest.mark.parametrize(
    "how",
    [lambda m, x: m.forward(x), lambda m, x: functional.linear(x, m.weight, m.bias), lambda m, x: x @ m.weight.T + m.bias],
    ids=["forward", "functional", "by hand"],
)
def test_a_layer_that_is_not_called_has_no_output_and_says_so(how, method):
    model, x = seeded(lambda: Around(how)), batch(4, 3)
    with pytest.warns(CaptureWarning, match="'linear'") as caught:
        (done,) = captured(model, lambda m: (m(x).sum().backward(), m(x).sum().backward()), method).passes[:1]
    assert len([w for w in caught if issubclass(w.category, CaptureWarning)]) == 1
    assert statuses(done)["linear", 0, "0"] == "never_called"
    h = functional.linear(x, model.linear.weight, model.linear.bias)
    assert_parameters(done, parameter_gradients(model, torch.tanh(h).sum()))
    assert_outputs(done, {("act", 0, "0"): torch.ones_like(h)})


def test_attention_uses_the_weights_of_a_layer_it_never_calls():
    model, x = seeded(lambda: nn.MultiheadAttention(4, 2, batch_first=True)), batch(6, 4).reshape(2, 3, 4)
    with pytest.warns(CaptureWarning, match="out_proj"):
        (done,) = captured(model, lambda m: m(x, x, x)[0].square().sum().backward()).passes
    assert statuses(done)["out_proj", 0, "0"] == "never_called"
    y, _ = model(x, x, x)
    (wanted,) = torch.autograd.grad(y.square().sum(), y, retain_graph=True)
    assert torch.equal(readings(done)["", 0, "0"].gradient, wanted)
    assert_parameters(done, parameter_gradients(model, y.square().sum()))


@each_method
def test_the_forward_order_is_the_order_of_the_calls_not_of_the_names(method):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.right, self.left, self.stem, self.unused = (nn.Linear(2, 2) for _ in range(5))

        def forward(self, x):
            stem = self.stem(x)
            left = self.left(stem)
            self.unused(stem)
            return self.head(left + 2 * self.right(x))

    (done,) = captured(seeded(Branches), lambda m: m(batch(3, 2)).sum().backward(), method).passes
    assert [record.layer for record in done.outputs] == ["stem", "left", "unused", "right", "head"]
    assert [record.forward_index for record in done.outputs] == [0, 1, 2, 3, 4]
    assert statuses(done)["unused", 0, "0"] == "no_gradient"
    arrived = sorted((r for r in done.outputs if r.backward_index is not None), key=lambda r: r.backward_index)
    assert arrived[0].layer == "head"
    assert {record.backward_index for record in arrived} == {0, 1, 2, 3}


@pytest.mark.parametrize("method", METHODS)
def test_gradients_that_stop_are_missing_and_dead_units_are_zero(method):
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, gradient):
            return None

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.dead, self.detached, self.cut, self.live = (nn.Linear(2, 2) for _ in range(4))
            nn.init.constant_(self.dead.bias, -100.0)

        def forward(self, x):
            return self.dead(x).relu() + self.detached(x).detach() + Cut.apply(self.cut(x)) + self.live(x)

    (done,) = captured(seeded(Net), lambda m: m(batch(3, 2)).sum().backward(), method).passes
    assert {layer: status for (layer, _, _), status in statuses(done).items()} == {
        "dead": "all_zero", "detached": "no_gradient", "cut": "no_gradient", "live": "ok",
    }  # fmt: skip
    found = parameters(done)
    assert (found["dead.weight"].status, found["cut.weight"].status) == ("all_zero", "no_gradient")
    assert found["dead.weight"].statistics.norm == 0.0
    assert found["detached.weight"].statistics is None


def test_a_layer_that_keeps_its_parameters_in_a_list_is_a_layer():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(2.0))])
            self.shifts = nn.ParameterDict({"up": nn.Parameter(torch.tensor(1.0))})

        def forward(self, x):
            return self.weights[0] * x + self.weights[1] * x.sin() + self.shifts["up"]

    model, x, trace = seeded(lambda: nn.Sequential(Mixture(), nn.Linear(3, 1))), batch(4, 3), Trace()
    h = trace.note("0", 0.5 * x + 2 * x.sin() + model[0].shifts["up"])
    loss = trace.linear("1", model[1], h).square().sum()
    (done,) = captured(model, lambda m: m(x).square().sum().backward()).passes
    assert_outputs(done, trace.gradients(loss))
    assert [record.parameter for record in done.parameters] == [
        "0.weights.0", "0.weights.1", "0.shifts.up", "1.weight", "1.bias",
    ]  # fmt: skip
