"""Outputs that are views, and are then changed in place: the gradient is that of what the layer returned, or it is withheld.

A layer may return a view without anyone asking for one: `nn.Linear` with a bias does, wherever its input has three
dimensions. Once a view is changed in place, its place in the graph is left behind, with the hooks that hang there.
"""

import gc
from weakref import ref

import pytest
import torch
from torch import nn
from torch.nn import functional
from truth import METHODS, Trace, assert_outputs, assert_parameters, batch, captured, parameter_gradients, readings, seeded

from gradlab import capture_gradients

TWO = METHODS[:2]  # full backward hooks make a change in place raise
each_method = pytest.mark.parametrize("method", TWO)
TOKENS = batch(10, 3).reshape(2, 5, 3)


class Net(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.first, self.last, self.change = nn.Linear(3, 4), nn.Linear(4, 2), change

    def forward(self, x):
        return self.last(self.change(self.first(x)))


def after(h, *changes):
    for change in changes:
        change(h)
    return h


def gated(h):
    gate = h.sigmoid()
    h += 1.5
    return h * gate


def part_of(h):
    part, gate = h[:, :2], h.sigmoid()
    part.mul_(3)
    return h * gate


ones = torch.ones(2, 5, 4, dtype=torch.float64)
rows = ones.clone()
rows[:, :2] = 3

CHANGES = {
    "relu": (lambda h: h.relu_(), lambda h: h.clamp(min=0)),
    "residual": (lambda h: h.add_(1.5), lambda h: h + 1.5),
    "used before": (gated, lambda h: (h + 1.5) * h.sigmoid()),
    "used before by two": (
        lambda h: (lambda a, b: h.add_(2) * a + b)(h.sigmoid(), h.exp()),
        lambda h: (h + 2) * h.sigmoid() + h.exp(),
    ),
    "used between": (lambda h: (lambda a: h.mul_(2) * a)(h.add_(1).sigmoid()), lambda h: 2 * (h + 1) * (h + 1).sigmoid()),
    "three times": (
        lambda h: after(h, lambda h: h.add_(1), lambda h: h.mul_(-2), lambda h: h.relu_()),
        lambda h: ((h + 1) * -2).clamp(min=0),
    ),
    "a view of it": (lambda h: after(h, lambda h: h.view(-1).mul_(3)), lambda h: h * 3),
    "a part of it": (part_of, lambda h: h * rows * h.sigmoid()),
    "its transpose": (lambda h: after(h, lambda h: h.transpose(1, 2).neg_()), lambda h: -h),
    "a view, seen later": (
        lambda h: (lambda v: after(h, lambda h: h.mul_(2)) * v.view(2, 5, 4))(h.flatten()),
        lambda h: 4 * h * h,
    ),
    "set to zero": (lambda h: h.zero_(), lambda h: h * 0),
    "without a gradient": (lambda h: after(h, lambda h: h.detach().mul_(1)) * 2, lambda h: h * 2),
}  # fmt: skip


@each_method
@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_returns_a_view_of_what_it_made_keeps_its_gradient(change, method):
    in_place, written_out = CHANGES[change]
    model, trace = seeded(lambda: Net(in_place)), Trace()
    h = trace.linear("first", model.first, TOKENS)
    loss = trace.linear("last", model.last, written_out(h)).square().sum()
    (done,) = captured(model, lambda m: m(TOKENS).square().sum().backward(), method).passes
    assert_outputs(done, trace.gradients(loss), method)
    assert_parameters(done, parameter_gradients(model, loss))


class AddOne(nn.Module):
    def forward(self, x):
        return x.add_(1)


@each_method
@pytest.mark.parametrize("layers", [None, "all"])
def test_layers_that_work_in_place_on_one_view_have_gradients_of_their_own(layers, method):
    kinds = (AddOne(), nn.Identity(), nn.Dropout(0.0), AddOne())
    model, trace = seeded(lambda: nn.Sequential(nn.Linear(3, 4), *kinds, nn.Linear(4, 2))).eval(), Trace()
    h = trace.note("1", trace.linear("0", model[0], TOKENS) + 1)
    h = trace.note("3", trace.note("2", h * 1) * 1)
    loss = trace.linear("5", model[5], trace.note("4", h + 1)).square().sum()
    expected = trace.gradients(loss)
    if layers == "all":
        expected["", 0, "0"] = expected["5", 0, "0"]
    capture = captured(model, lambda m: m(TOKENS).square().sum().backward(), method, layers=layers)
    assert_outputs(capture.passes[0], expected, method)


class After(nn.Module):
    """A layer whose output, which may be a view, is used and then changed in place."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        h = self.layer(*(x * 1 for x in inputs))
        h = h[0] if isinstance(h, tuple) else h
        gate = h.sigmoid()
        h += 1
        return h * gate


X = TOKENS.clone().requires_grad_()
RETURNING_VIEWS = {
    "linear": (lambda: nn.Linear(3, 4), (X,), True),
    "attention": (lambda: nn.MultiheadAttention(3, 1), (X, X, X), False),
    "attention, batch first": (lambda: nn.MultiheadAttention(3, 1, batch_first=True), (X, X, X), False),
    "convolution": (lambda: nn.Conv1d(5, 2, 1), (X[0],), True),
    "convolution in two dimensions": (lambda: nn.Conv2d(2, 2, 1), (X,), True),
    "convolution, strided": (lambda: nn.Conv2d(2, 2, 1), (X.transpose(1, 2).contiguous().transpose(1, 2),), True),
    "transposed convolution": (lambda: nn.ConvTranspose1d(5, 2, 1), (X[0],), True),
    "instance norm": (lambda: nn.InstanceNorm1d(5), (X,), True),
    "maximum": (lambda: nn.MaxPool1d(2), (X,), True),
    "average": (lambda: nn.AvgPool1d(2), (X,), True),
    "adaptive average": (lambda: nn.AdaptiveAvgPool1d(2), (X,), True),
    "flatten": (nn.Flatten, (X,), False),
    "unflatten": (lambda: nn.Unflatten(1, (1, 5)), (X,), False),
}  # fmt: skip


@each_method
@pytest.mark.parametrize("kind", RETURNING_VIEWS)
@pytest.mark.filterwarnings("ignore:layer 'layer.out_proj'")  # attention uses its weights without calling it
@pytest.mark.parametrize("layers", [None, ["layer"]])
def test_every_layer_that_returns_a_view_is_right_or_withheld(kind, layers, method):
    build, inputs, has_number = RETURNING_VIEWS[kind]
    model = seeded(lambda: After(build()))
    h = model.layer(*inputs)
    h = (h[0] if isinstance(h, tuple) else h) * 1
    (wanted,) = torch.autograd.grad(((h + 1) * h.sigmoid()).square().sum(), h)
    (done,) = captured(model, lambda m: m(*inputs).square().sum().backward(), method, layers=layers).passes
    record = readings(done)["layer", 0, "0"]
    if method == "tensor_hooks" and has_number:
        torch.testing.assert_close(record.gradient, wanted)
    else:
        assert (str(record.status), record.statistics) == ("unsupported", None)
        assert "in place" in record.note


@each_method
@pytest.mark.parametrize("kind", RETURNING_VIEWS)
def test_a_view_that_nobody_changes_is_read_as_any_output(kind, method):
    build, inputs, _ = RETURNING_VIEWS[kind]
    model = seeded(build)
    h = model(*inputs)
    h = (h[0] if isinstance(h, tuple) else h) * 1
    (wanted,) = torch.autograd.grad(h.sin().sum(), h)

    def run(model):
        h = model(*(x * 1 for x in inputs))
        (h[0] if isinstance(h, tuple) else h).sin().sum().backward()

    (done,) = captured(model, run, method, layers=[""]).passes
    torch.testing.assert_close(readings(done)["", 0, "0"].gradient, wanted)


class Aside(nn.Module):
    """What it returns is a view of something that it has used otherwise."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x):
        h = self.linear(x.reshape(-1, 3))
        self.aside = h.exp().sum()
        return h.view(2, 5, 4)


@each_method
@pytest.mark.parametrize("changed", [False, True])
def test_a_view_of_what_is_used_otherwise_is_not_given_the_gradient_of_its_base(changed, method):
    model = seeded(Aside)

    def run(model):
        h = model(TOKENS)
        h = h.relu_() if changed else h.relu()
        (h.square().sum() + model.aside).backward()

    (done,) = captured(model, run, method, layers=["", "linear"]).passes
    h = model.linear(TOKENS)
    (own,) = torch.autograd.grad(h.clamp(min=0).square().sum(), h, retain_graph=True)
    (base,) = torch.autograd.grad(h.clamp(min=0).square().sum() + h.exp().sum(), h)
    expected = {("linear", 0, "0"): base.reshape(10, 4), ("", 0, "0"): own}
    if changed:
        assert str(readings(done)["", 0, "0"].status) == "unsupported"
        del expected["", 0, "0"]
    assert_outputs(done, expected, method)


@each_method
def test_a_hook_that_replaces_what_a_layer_made_takes_its_base_with_it(method):
    model, kept = seeded(lambda: nn.Linear(3, 4)), []

    def replace(module, inputs, returned):
        kept.append(returned)
        return returned.view(10, 4)

    handle = model.register_forward_hook(replace)

    def run(model):
        h = model(TOKENS)
        aside = kept.pop().exp().sum()
        (h.relu_().sum() + aside).backward()

    record = captured(model, run, method).passes[0].outputs[0]
    handle.remove()
    assert (str(record.status), record.gradient) == ("unsupported", None)


@each_method
def test_a_batch_of_gradients_is_withheld_at_a_view_that_is_changed(method):
    model = seeded(lambda: Net(lambda h: h.relu_()))
    with capture_gradients(model, method) as capture:
        torch.autograd.functional.jacobian(lambda x: model(x).sum((1, 2)), TOKENS, vectorize=True)
    assert {str(record.status) for record in capture.passes[0].outputs} == {"unsupported"}


@pytest.mark.parametrize("changed", [False, True])
def test_a_users_hook_on_a_view_that_replaces_its_gradient_is_not_in_the_reading(changed):
    model = seeded(lambda: nn.Linear(3, 4))

    def run(model):
        h = model(TOKENS)
        h.register_hook(lambda gradient: gradient * 10)
        (h.relu_() if changed else h.relu()).square().sum().backward()

    (record,) = captured(model, run).passes[0].outputs
    h = functional.linear(TOKENS, model.weight, model.bias)
    (wanted,) = torch.autograd.grad(h.clamp(min=0).square().sum(), h)
    torch.testing.assert_close(record.gradient, wanted)


def test_a_users_hook_on_a_view_that_is_used_before_it_is_changed_makes_its_gradient_unknown():
    model = seeded(lambda: nn.Linear(3, 4))

    def run(model):
        h = model(TOKENS)
        h.register_hook(lambda gradient: gradient * 10)
        gated(h).sum().backward()

    (record,) = captured(model, run).passes[0].outputs
    assert (str(record.status), record.gradient) == ("unsupported", None)
    assert "hook" in record.note


def test_a_view_that_changes_after_its_backward_keeps_its_reading_and_is_withheld_in_the_next():
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Flatten()))

    def run(model):
        h = model(TOKENS)
        y = h.sin().sum()
        y.backward(retain_graph=True)
        with torch.no_grad():
            h.zero_()
        h.sum().backward()

    first, second = captured(model, run).passes
    h = functional.linear(TOKENS, model[0].weight, model[0].bias)
    assert_outputs(first, {("0", 0, "0"): h.cos(), ("1", 0, "0"): h.cos().flatten(1)})
    assert str(readings(second)["1", 0, "0"].status) == "unsupported"


@each_method
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "non-reentrant"])
def test_a_view_that_is_changed_inside_a_checkpoint(reentrant, method):
    model, trace = seeded(lambda: Net(lambda h: h.relu_())), Trace()
    x = TOKENS.clone().requires_grad_()
    h = trace.linear("first", model.first, x)
    loss = trace.linear("last", model.last, h.clamp(min=0)).square().sum()

    def run(model):
        y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant)
        y.square().sum().backward()

    (done,) = captured(model, run, method).passes
    assert_outputs(done, trace.gradients(loss), method)


def test_a_view_without_values_that_is_changed_has_no_reading_and_says_why():
    model = nn.Sequential(nn.Linear(3, 4, device="meta"), nn.ReLU(inplace=True))
    with capture_gradients(model) as capture:
        model(torch.ones(2, 5, 3, device="meta")).sum().backward()
    for record in capture.passes[0].outputs:
        assert str(record.status) == "unsupported"
        assert "meta" in record.note


@each_method
def test_the_hooks_on_a_view_and_its_base_go_and_its_memory_with_it(method):
    model = seeded(lambda: nn.Linear(3, 4))
    with capture_gradients(model, method):
        kept, gone = model(TOKENS), model(TOKENS)
        storage = ref(gone.untyped_storage())
        assert kept._backward_hooks
        assert kept._base._backward_hooks
        del gone
        gc.collect()
        assert storage() is None or method == "retain_grad"
        kept.sum().backward()
    assert not kept._backward_hooks
    assert not kept._base._backward_hooks


class Rebased(nn.Module):
    """Returns one view twice; in between its base changes, and the view with it."""

    def __init__(self):
        super().__init__()
        self.linear, self.flatten, self.last = nn.Linear(3, 4), nn.Flatten(0), nn.Dropout(0.1)

    def forward(self, x):
        h = self.linear(x)
        view = self.flatten(h)
        before = view + 1
        h.mul_(2)
        return 5 * before, self.last(view)


@each_method
def test_a_view_whose_base_has_changed_is_read_anew_at_the_layer_that_returns_it_next(method):
    model = seeded(Rebased).eval()
    (done,) = captured(model, lambda m: sum(part.sum() for part in m(batch(2, 3))).backward(), method).passes
    ones = torch.ones(8, dtype=torch.float64)
    assert_outputs(done, {("linear", 0, "0"): 7 * ones.reshape(2, 4), ("last", 0, "0"): ones}, method)
    assert str(readings(done)["flatten", 0, "0"].status) == "unsupported"
