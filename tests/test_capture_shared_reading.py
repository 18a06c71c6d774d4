"""Layers that return one tensor are measured once between them, and only where nothing can have changed the gradient."""

import pytest
import torch
from torch import nn
from truth import seeded

from gradlab import capture_gradients
from gradlab.capture.measurements import AT_ONCE, FEW, Measurements
from gradlab.statistics import measure

each_size = pytest.mark.parametrize("width", [FEW, 3 * FEW, AT_ONCE + 1], ids=["few", "waiting", "long"])


class Chain(nn.Module):
    """A linear layer, then two layers that return what they are given; `between` is done to the tensor on its way."""

    def __init__(self, width=4, between=lambda tensor: None):
        super().__init__()
        self.linear, self.first, self.second = nn.Linear(2, width), nn.Identity(), nn.Identity()
        self.between = between

    def forward(self, x):
        h = self.linear(x)
        self.between(h)
        h = self.first(h)
        self.between(h)
        return self.second(h)


def factors(model):
    """What the loss multiplies the model's output by, and so the gradient there."""
    return torch.linspace(-1, 2, model.linear.out_features, dtype=model.linear.weight.dtype)


def loss_of(model):
    return (model(torch.ones(1, 2, dtype=model.linear.weight.dtype)) * factors(model)).sum()


def assert_read(backward_pass, **expected):
    """The layers named, and no others, have readings: the statistics of the gradients given."""
    found = {record.layer: record.statistics for record in backward_pass.outputs if record.statistics is not None}
    assert found.keys() == expected.keys()
    for layer, gradient in expected.items():
        assert found[layer] == pytest.approx(measure(gradient), rel=1e-6, abs=1e-12), layer


@pytest.fixture
def measured(monkeypatch):
    """The owners of gradients that were measured, not taken to be the same as another."""
    owners, add = [], Measurements.add

    def noting(self, owner, gradient):
        owners.append(owner)
        add(self, owner, gradient)

    monkeypatch.setattr(Measurements, "add", noting)
    return owners


@each_size
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_tensor_of_three_layers_is_measured_once(width, dtype, measured):
    model = Chain(width).to(dtype)
    with capture_gradients(model) as capture:
        loss_of(model).backward()
        loss_of(model).backward()
    for done in capture.passes:
        assert_read(done, linear=factors(model), first=factors(model), second=factors(model))
        assert [record.backward_index for record in done.outputs] == [0, 1, 2]
    assert len(measured) == 2 * (1 + 2)  # the tensor, and two parameters


@each_size
@pytest.mark.parametrize(
    "change",
    [lambda g: 2 * g, lambda g: g.mul_(2), lambda g: g.data.mul_(2), lambda g: torch.from_numpy(g.numpy().__imul__(2))],
    ids=["replaced", "in place", "behind the version counter", "through numpy"],
)
def test_a_hook_between_two_layers_separates_their_readings(change, width, measured):
    def hook(gradient):
        changed = change(gradient)
        return None if changed is None or changed.data_ptr() == gradient.data_ptr() else changed

    model = seeded(lambda: Chain(width, between=lambda tensor: tensor.register_hook(hook)))
    with capture_gradients(model) as capture:
        loss_of(model).backward()
    g = factors(model)
    assert_read(capture.passes[0], linear=g, first=2 * g, second=4 * g)
    assert len(measured) == 3 + 2


@each_size
def test_a_hook_after_the_last_layer_rewrites_none_of_the_readings(width):
    model = seeded(lambda: Chain(width))
    g = factors(model)
    with capture_gradients(model) as capture:
        output = model(torch.ones(1, 2, dtype=torch.float64))
        output.register_hook(lambda gradient: gradient.data.zero_())
        (output * g).sum().backward()
    assert_read(capture.passes[0], linear=g, first=g, second=g)


def test_a_change_in_place_between_two_layers_separates_their_readings(measured):
    model = seeded(lambda: Chain(between=lambda tensor: tensor.mul_(3)))
    with capture_gradients(model) as capture:
        loss_of(model).backward()
    g = factors(model)
    assert_read(capture.passes[0], linear=9 * g, first=3 * g, second=g)
    assert len(measured) == 3 + 2


@pytest.mark.parametrize("layers", [None, ["second"]])
def test_a_view_whose_base_changes_between_two_layers_is_another_tensor_afterwards(layers):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.first, self.second = nn.Linear(2, 4), nn.Flatten(0), nn.Identity()

        def forward(self, x):
            base = self.linear(x).reshape(2, 2) * 1
            view = self.first(base)
            base.mul_(3)  # the view of before leads nowhere now
            return self.second(view)

    model = seeded(Net)
    with capture_gradients(model, layers=layers) as capture:
        loss_of(model).backward()
    g = factors(model)
    assert_read(capture.passes[0], **({"linear": 3 * g, "second": g} if layers is None else {"second": g}))


def test_hooks_of_two_captures_share_nothing():
    model = seeded(Chain)
    with capture_gradients(model) as outer, capture_gradients(model, layers=["first", "second"]) as inner:
        loss_of(model).backward()
    g = factors(model)
    assert_read(outer.passes[0], linear=g, first=g, second=g)
    assert_read(inner.passes[0], first=g, second=g)


def test_a_tensor_that_comes_back_in_a_later_round_belongs_to_both():
    model = seeded(Chain)
    g = factors(model)
    with capture_gradients(model) as capture:
        h = model.linear(torch.ones(1, 2, dtype=torch.float64))
        (model.first(h) * g).sum().backward(retain_graph=True)
        (model.second(h) * 5 * g).sum().backward()
    first, second = capture.passes
    assert_read(first, linear=g, first=g)
    assert_read(second, linear=5 * g, first=5 * g, second=5 * g)


def test_a_leaf_that_two_layers_return_is_read_at_both_and_keeps_no_hook():
    model = nn.Sequential(nn.Identity(), nn.Identity())
    x = torch.ones(3, requires_grad=True)
    with capture_gradients(model) as capture:
        for factor in (1, 2):
            (factor * model(x)).sum().backward()
            assert len(x._backward_hooks) <= 4
    for factor, done in zip((1, 2), capture.passes, strict=True):
        assert_read(done, **{"0": torch.full((3,), 1.0 * factor), "1": torch.full((3,), 1.0 * factor)})
    assert not x._backward_hooks


def test_kept_gradients_of_one_tensor_are_copies_of_their_own():
    model = seeded(Chain)
    with capture_gradients(model, keep_gradients=True) as capture:
        loss_of(model).backward()
    kept = [record.gradient for record in capture.passes[0].outputs]
    kept[0].zero_()
    assert torch.equal(kept[1], factors(model)[None])
    assert torch.equal(kept[2], factors(model)[None])


def test_a_batch_of_gradients_is_withheld_from_every_layer_that_shares_it():
    model = seeded(Chain)
    with capture_gradients(model) as capture:
        output = model(torch.ones(1, 2, dtype=torch.float64))
        torch.autograd.grad(output, list(model.parameters()), torch.eye(4, dtype=torch.float64)[:, None], is_grads_batched=True)
    assert [str(record.status) for record in capture.passes[0].outputs] == ["unsupported"] * 3


def test_a_gradient_that_is_differentiated_again_is_read_at_every_layer():
    model = seeded(Chain)
    parameters = list(model.parameters())
    with capture_gradients(model) as capture:
        output = model(torch.ones(1, 2, dtype=torch.float64))
        torch.autograd.grad(output.square().sum(), parameters, create_graph=True)
    g = 2 * output.detach()
    assert_read(capture.passes[0], linear=g, first=g, second=g)


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "non-reentrant"])
def test_a_checkpoint_that_is_run_again_twice_is_read_once_a_pass(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.linear = seeded(Chain), nn.Linear(2, 2).double()

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.inner, self.linear(x), use_reentrant=reentrant)

    model = Checkpointed()
    g = factors(model.inner)
    with capture_gradients(model, layers=["inner.linear", "inner.first", "inner.second"]) as capture:
        loss = (model(torch.ones(1, 2, dtype=torch.float64)) * g).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert len(capture.passes) == 2
    for done in capture.passes:
        assert_read(done, **{"inner.linear": g, "inner.first": g, "inner.second": g})


def test_a_graph_that_outlives_the_block_has_no_hook_of_ours():
    model = seeded(Chain)
    with capture_gradients(model):
        output = model(torch.ones(1, 2, dtype=torch.float64))
        output.sum().backward(retain_graph=True)
    assert not output._backward_hooks
