"""What a layer returned and was then changed in place: the gradient is that of what the layer returned, or it is withheld.

PyTorch gives a tensor that is changed in place a new node in the graph; `.grad` of a retained tensor is then the gradient of
what it became (https://github.com/pytorch/pytorch/pull/117552), and full backward hooks make the change raise
(https://github.com/pytorch/pytorch/issues/61519).
"""

import pytest
import torch
from torch import nn
from torch.nn import functional
from truth import Trace, assert_outputs, assert_parameters, batch, captured, each_method, parameter_gradients, seeded

from gradlab import CaptureError, capture_gradients


class Net(nn.Module):
    """Two linear layers with something between them that may work in place; `written_out` is the same, out of place."""

    def __init__(self, between, written_out):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.between, self.written_out = between, written_out

    def forward(self, x):
        return self.last(self.between(self.first(x)))

    def truth(self, x):
        trace = Trace()
        h = trace.linear("first", self.first, x)
        return trace, trace.linear("last", self.last, self.written_out(h))


def assign(h, place, value):
    h[place] = value
    return h


def through_a_view(h, change):
    change(h.view(-1)[2:9])
    return h


def without_grad(h):
    with torch.no_grad():
        h.mul_(3)
    return h


def column(value, place):
    return torch.stack([value if i == place else torch.zeros_like(value) for i in range(4)], 1)


keep = torch.tensor([1.0, 0, 1, 1], dtype=torch.float64)
mask = torch.arange(20).reshape(5, 4) % 3 == 0
span = torch.ones(20, dtype=torch.float64)
span[2:9] = -2.0

CHANGES = {
    "relu_": (lambda h: h.relu_(), lambda h: h.clamp(min=0)),
    "functional relu": (lambda h: functional.relu(h, inplace=True), lambda h: h.clamp(min=0)),
    "iadd": (lambda h: h.__iadd__(1.5), lambda h: h + 1.5),
    "add itself": (lambda h: h.add_(h), lambda h: h + h),
    "imul": (lambda h: h.__imul__(-2), lambda h: h * -2),
    "square": (lambda h: h.pow_(2), lambda h: h * h),
    "zero": (lambda h: h.mul_(keep), lambda h: h * keep),
    "column set to zero": (lambda h: assign(h, (slice(None), 1), 0.0), lambda h: h * keep),
    "column set to another": (
        lambda h: assign(h, (slice(None), 1), h[:, 0] * 2),
        lambda h: torch.stack([h[:, 0], h[:, 0] * 2, h[:, 2], h[:, 3]], 1),
    ),
    "masked fill": (lambda h: h.masked_fill_(mask, -1.0), lambda h: torch.where(mask, torch.full_like(h, -1.0), h)),
    "a slice of a view": (
        lambda h: through_a_view(h, lambda v: v.mul_(-2)),
        lambda h: (h.reshape(-1) * span).reshape(5, 4),
    ),
    "two columns": (
        lambda h: (h[:, :2].mul_(3), h)[1],
        lambda h: h * torch.tensor([3.0, 3, 1, 1], dtype=torch.float64),
    ),
    "the transpose": (lambda h: (h.t().neg_(), h)[1], lambda h: -h),
    "twice": (lambda h: h.add_(1).mul_(-2).relu_(), lambda h: ((h + 1) * -2).clamp(min=0)),
    "dropout without drops": (lambda h: functional.dropout(h, 0.0, inplace=True), lambda h: h),
    "out of place, then in place": (lambda h: h.sin().mul_(2), lambda h: h.sin() * 2),
}  # fmt: skip


@each_method
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_place_after_a_layer_leaves_its_gradient_right(change, method):
    between, written_out = CHANGES[change]
    model, x = seeded(lambda: Net(between, written_out)), batch(5, 3)
    trace, y = model.truth(x)
    loss = y.square().sum()
    capture = captured(model, lambda m: m(x).square().sum().backward(), method)
    if capture is not None:
        assert_outputs(capture.passes[0], trace.gradients(loss), method)
        assert_parameters(capture.passes[0], parameter_gradients(model, loss))


@each_method
@pytest.mark.parametrize("kind", [nn.ReLU, nn.SiLU, nn.ELU, nn.Hardtanh, nn.LeakyReLU, nn.Hardswish])
@pytest.mark.parametrize("layers", [None, "all"])
def test_an_activation_in_place_and_the_layer_before_it_have_their_own_gradients(kind, layers, method):
    model, x = seeded(lambda: nn.Sequential(nn.Linear(3, 4), kind(inplace=True), nn.Linear(4, 2))), batch(5, 3)
    trace = Trace()
    h = trace.note("1", kind(inplace=False)(trace.linear("0", model[0], x)))
    loss = trace.linear("2", model[2], h).square().sum()
    expected = trace.gradients(loss)
    if layers == "all":
        expected["", 0, "0"] = expected["2", 0, "0"]
    capture = captured(model, lambda m: m(x).square().sum().backward(), method, layers=layers)
    if capture is not None:
        assert_outputs(capture.passes[0], expected, method)


@each_method
def test_a_residual_sum_in_place_is_as_right_as_one_out_of_place(method):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm, self.act = nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(inplace=True)

        def forward(self, x):
            out = self.norm(self.linear(x))
            out += x
            return self.act(out)

    model, x, trace = seeded(lambda: nn.Sequential(Block(), Block())), batch(5, 4), Trace()
    h = x
    for name in "01":
        block = model.get_submodule(name)
        inner = trace.linear(f"{name}.linear", block.linear, h)
        inner = trace.note(f"{name}.norm", functional.layer_norm(inner, (4,), block.norm.weight, block.norm.bias))
        h = trace.note(f"{name}.act", (inner + h).clamp(min=0))
    loss = h.square().sum()
    capture = captured(model, lambda m: m(x).square().sum().backward(), method)
    if capture is not None:
        assert_outputs(capture.passes[0], trace.gradients(loss), method)
        assert_parameters(capture.passes[0], parameter_gradients(model, loss))


@each_method
@pytest.mark.parametrize("change", ["relu_", "iadd", "square", "column set to zero", "a slice of a view", "twice"])
def test_a_loss_that_works_in_place_on_the_output_is_no_different(change, method):
    in_place, out_of_place = CHANGES[change]
    model, x, trace = seeded(lambda: nn.Linear(3, 4)), batch(5, 3), Trace()
    expected = trace.gradients(out_of_place(trace.linear("", model, x)).sin().sum())
    capture = captured(model, lambda m: in_place(m(x)).sin().sum().backward(), method)
    if capture is not None:
        assert_outputs(capture.passes[0], expected, method)


@each_method
def test_a_layer_that_changes_its_input_in_place_leaves_the_layer_before_it_right(method):
    class AddOne(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * x

    model, x, trace = seeded(lambda: nn.Sequential(nn.Linear(3, 4), AddOne())), batch(5, 3), Trace()
    h = trace.linear("0", model[0], x) + 1
    expected = trace.gradients(trace.note("1", h * h).sum())
    capture = captured(model, lambda m: m(x).sum().backward(), method)
    if capture is not None:
        assert_outputs(capture.passes[0], expected, method)


@each_method
def test_a_layer_whose_output_is_changed_while_a_view_of_it_is_in_use_keeps_its_gradient(method):
    class Part(nn.Module):
        def forward(self, x):
            return x[:, :2]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.part = nn.Linear(3, 4), Part()

        def forward(self, x):
            whole = self.linear(x)
            part = self.part(whole)
            whole.mul_(2)
            return whole.sum(1) * part.sum(1)

    model, x, trace = seeded(Net), batch(5, 3), Trace()
    whole = 2 * trace.linear("linear", model.linear, x)
    (wanted,) = trace.gradients((whole.sum(1) * whole[:, :2].sum(1)).sum()).values()
    capture = captured(model, lambda m: m(x).sum().backward(), method)
    if capture is not None:
        record = capture.passes[0].outputs[0]
        assert (record.layer, record.gradient is None) == ("linear", method == "retain_grad")
        if record.gradient is not None:
            torch.testing.assert_close(record.gradient, wanted)


@pytest.mark.parametrize("change", ["relu_", "column set to zero", "a slice of a view"])
def test_retain_grad_withholds_what_was_changed_and_says_why(change):
    model, x = seeded(lambda: Net(*CHANGES[change])), batch(5, 3)
    first, last = captured(model, lambda m: m(x).sum().backward(), "retain_grad").passes[0].outputs
    assert (first.layer, first.status, last.status) == ("first", "unsupported", "ok")
    assert "in place" in first.note
    assert "tensor_hooks" in first.note


@pytest.mark.parametrize("change", ["relu_", "column set to zero", "a slice of a view"])
def test_full_backward_hooks_say_which_layers_output_must_not_change(change):
    model, x = seeded(lambda: Net(*CHANGES[change])), batch(5, 3)
    with pytest.raises(CaptureError, match="'first'") as caught, capture_gradients(model, "full_backward_hooks"):
        model(x).sum().backward()
    assert "tensor_hooks" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


@each_method
def test_a_change_in_place_after_backward_changes_no_reading(method):
    model, x = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Sigmoid())), batch(5, 3)
    outputs, trace = [], Trace()
    y = trace.note("1", torch.sigmoid(trace.linear("0", model[0], x)))
    expected = trace.gradients(y.sum())

    def forward_backward_change(model):
        y = model(x)
        outputs.append(y)
        y.sum().backward()
        with torch.no_grad():
            y.zero_()

    assert_outputs(captured(model, forward_backward_change, method).passes[0], expected)


@each_method
@pytest.mark.parametrize("change", [without_grad, lambda h: (h.data.mul_(3), h)[1]], ids=["no_grad", "data"])
def test_a_change_without_grad_or_of_the_data_is_right_or_withheld(change, method):
    model, x = seeded(lambda: Net(change, None)), batch(5, 3)
    capture = captured(model, lambda m: m(x).sum().backward(), method)
    if capture is not None:
        ones = torch.ones(5, 2, dtype=torch.float64)
        assert_outputs(capture.passes[0], {("first", 0, "0"): ones @ model.last.weight, ("last", 0, "0"): ones}, method)
