"""Exceptions in the user's code pass unchanged and spoil nothing that comes after; a block without gradients says why."""

import pytest
import torch
from torch import nn
from truth import (
    assert_parameters,
    attached,
    batch,
    captured,
    each_method,
    everything_on,
    parameter_gradients,
    seeded,
    statuses,
)

from gradlab import CaptureWarning, capture_gradients


def small():
    return seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1)))


X = batch(5, 3)


def step(model, x=X):
    loss = model(x).square().sum()
    loss.backward()
    return loss.detach()


class Fails(nn.Module):
    """Raises in forward, when asked to."""

    def __init__(self):
        super().__init__()
        self.linear, self.last, self.broken = nn.Linear(3, 3), nn.Linear(3, 1), None

    def forward(self, x):
        h = self.linear(x)
        if self.broken == "forward":
            raise KeyError("mine")
        if self.broken == "backward":
            h = Bomb.apply(h)
        if self.broken == "hook":
            h = h * 1
            h.register_hook(explode)
        return self.last(h)


class Bomb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise KeyError("mine")


def explode(gradient):
    raise KeyError("mine")


@each_method
@pytest.mark.parametrize("where", ["forward", "backward", "hook"])
def test_the_users_own_exception_passes_unchanged_and_leaves_nothing(where, method):
    model = seeded(Fails)
    before = everything_on(model)
    model.broken = where
    with pytest.raises(KeyError) as caught, capture_gradients(model, method):
        step(model)
    assert caught.value.args == ("mine",)
    model.broken = None
    model.zero_grad()
    assert everything_on(model) == before


@each_method
@pytest.mark.parametrize("where", ["forward", "backward", "hook"])
def test_after_an_exception_the_next_step_is_measured_right(where, method):
    model = seeded(Fails)

    def fail_and_go_on(model):
        model.broken = where
        with pytest.raises(KeyError):
            step(model)
        model.broken = None
        model.zero_grad()
        step(model)
        step(model)

    passes = captured(model, fail_and_go_on, method).passes
    wanted = parameter_gradients(model, model(X).square().sum())
    h = nn.functional.linear(X, model.linear.weight, model.linear.bias)
    y = nn.functional.linear(h, model.last.weight, model.last.bias)
    at_h, at_y = torch.autograd.grad(y.square().sum(), [h, y])
    assert len(passes) == 2
    for done in passes:
        assert_parameters(done, wanted)
        readings = [record for record in done.outputs if record.gradient is not None]
        assert [record.layer for record in readings] == ["linear", "last"]
        torch.testing.assert_close(readings[0].gradient, at_h)
        torch.testing.assert_close(readings[1].gradient, at_y)


@each_method
def test_a_backward_that_is_tried_again_on_the_same_graph_is_measured_right(method):
    model, tries = small().eval(), []

    def fails_once(gradient):
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("mine")

    def run(model):
        hidden = model[0](X)
        between = hidden * 1
        between.register_hook(fails_once)
        loss = model[1:](between).square().sum()
        with pytest.raises(KeyError):
            loss.backward(retain_graph=True)
        loss.backward()

    done = captured(model, run, method, layers=["0", "1", "3"]).passes[-1]
    h = nn.functional.linear(X, model[0].weight, model[0].bias)
    a = torch.tanh(h)
    y = nn.functional.linear(a, model[3].weight, model[3].bias)
    wanted = dict(zip("013", torch.autograd.grad(y.square().sum(), [h, a, y]), strict=True))
    for record in done.outputs:
        if record.gradient is None:
            assert (method != "tensor_hooks", record.status) == (True, "unsupported")
        else:
            torch.testing.assert_close(record.gradient, wanted[record.layer])


@each_method
def test_a_failed_backward_does_not_turn_up_in_the_next_one(method):
    model = seeded(lambda: nn.ModuleDict({name: nn.Linear(3, 3) for name in "abc"}))

    def run(model):
        h = model["a"](X) * 1
        h.register_hook(explode)
        with pytest.raises(KeyError):
            model["b"](h).sum().backward()
        model["c"](X).sum().backward()

    (done,) = captured(model, run, method).passes
    assert statuses(done) == {("a", 0, "0"): "no_gradient", ("b", 0, "0"): "no_gradient", ("c", 0, "0"): "ok"}


@each_method
def test_a_block_without_a_backward_says_what_is_missing(method):
    model = small()
    cases = {
        "no layer of the model ran": lambda: None,
        "backward": lambda: model(X),
        "no_grad": lambda: torch.no_grad()(model)(X),
        "frozen": lambda: model.requires_grad_(False)(X),
    }
    for said, run in cases.items():
        with pytest.warns(CaptureWarning, match=said), capture_gradients(model, method) as capture:
            run()
        assert capture.passes == ()
    model.requires_grad_(True)


@each_method
@pytest.mark.parametrize(("run", "said"), [
    (lambda m: torch.no_grad()(m)(X).sum().backward(), "no_grad"),
    (lambda m: m.requires_grad_(False)(X).sum().backward(), "frozen"),
    (lambda m: m(X).detach().sum().backward(), "detached"),
], ids=["no_grad", "frozen", "detached"])  # fmt: skip
def test_a_backward_without_a_graph_raises_torchs_error_with_a_note(run, said, method):
    model = small()
    with pytest.raises(RuntimeError, match="does not require grad") as caught, capture_gradients(model, method):
        run(model)
    assert said in "".join(caught.value.__notes__)
    assert attached(model) == []


@each_method
def test_an_exception_from_the_loss_scale_passes_unchanged(method):
    model = small()

    def scale():
        raise KeyError("mine")

    with pytest.raises(KeyError), capture_gradients(model, method, loss_scale=scale):
        step(model)
    assert attached(model) == []


def test_where_the_method_can_see_no_output_the_diagnosis_says_so():
    model, x = nn.Sequential(nn.Identity()), torch.randn(2, 3, requires_grad=True)
    with (
        pytest.warns(CaptureWarning, match="leaf tensor.*use tensor_hooks"),
        capture_gradients(model, "retain_grad") as capture,
    ):
        model(x).sum().backward()
    assert capture.passes == ()
