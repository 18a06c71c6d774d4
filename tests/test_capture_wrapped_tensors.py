"""Full backward hooks have PyTorch wrap what layers take and return: what is said where the model notices."""

import pytest
import torch
from torch import nn
from truth import attached, batch, seeded

from gradlab import CaptureError, CaptureWarning, capture_gradients


class View(torch.autograd.Function):
    """A view of a custom function may not be changed in place, with a capture or without. PyTorch has a `View` too."""

    @staticmethod
    def forward(ctx, a):
        return a.view_as(a)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Model(nn.Module):
    def __init__(self, after):
        super().__init__()
        self.linear, self.same, self.after = nn.Linear(3, 3), nn.Identity(), after

    def forward(self, x):
        return self.after(self, self.linear(x))


def run(after, method="full_backward_hooks"):
    model = seeded(lambda: Model(after))
    try:
        with capture_gradients(model, method) as capture:
            model(batch(4, 3)).sum().backward()
    finally:
        assert not attached(model)
    return capture


WRAPPING = {
    "in place": lambda model, h: h.mul_(2),
    "a view in place": lambda model, h: h[0].mul_(2),
    "a view of a view": lambda model, h: h.view(-1)[1:].add_(1),
    "detached in place": lambda model, h: model.linear(h.detach_()),
}  # fmt: skip


@pytest.mark.parametrize("after", WRAPPING.values(), ids=WRAPPING)
def test_what_the_wrapping_forbids_names_the_layer_and_another_method(after):
    with pytest.raises(CaptureError, match=r"layer 'linear'.*in place|in place.*layer 'linear'") as caught:
        run(after)
    assert "use method='tensor_hooks'" in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert run(after, "tensor_hooks").passes


def test_the_first_layer_may_change_what_it_is_given_in_place():
    model, x = seeded(lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1))), batch(4, 3).requires_grad_()

    def step(method):
        with capture_gradients(model, method, keep_gradients=True) as capture:
            model(x * 2).sum().backward()
        return capture

    with pytest.raises(CaptureError, match=r"first layer is given is changed in place.*use method='tensor_hooks'"):
        step("full_backward_hooks")
    torch.testing.assert_close(step("tensor_hooks").passes[0].outputs[0].gradient, model[1].weight.detach().expand(4, 3))


class Pair(nn.Module):
    """A layer that returns two tensors, the first of which the model changes in place."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x):
        return x * self.weight, x + self.weight


@pytest.mark.parametrize("after", [*list(WRAPPING.values())[:3], lambda model, h: h.T.tanh_()])
def test_one_of_several_tensors_that_a_layer_returned_may_not_be_changed_in_place(after):
    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair = Pair()

        def forward(self, x):
            first, second = self.pair(x)
            after(self, first)
            return first + second

    model, x = seeded(Uses), batch(4, 3).requires_grad_()
    with pytest.raises(CaptureError, match=r"use method='tensor_hooks'"), capture_gradients(model, "full_backward_hooks"):
        model(x).sum().backward()
    with capture_gradients(model, keep_gradients=True) as capture:
        model(x).sum().backward()
    torch.testing.assert_close(capture.passes[0].outputs[1].gradient, torch.ones_like(x))


def raises(error):
    def after(model, h):
        raise error

    return after


OWN = {
    "a view of a custom function": lambda model, h: View.apply(h).mul_(2),
    "one of several views of its own": lambda model, h: h.unbind()[0].mul_(2),
    "a message that quotes PyTorch": raises(RuntimeError("View is created inside a custom Function; BackwardHookFunction")),
    "another exception that quotes PyTorch": raises(ValueError("Can't detach views in-place")),
}  # fmt: skip


@pytest.mark.parametrize("after", OWN.values(), ids=OWN)
def test_an_error_of_the_model_itself_passes_unchanged(after):
    messages = []
    for method in ("tensor_hooks", "full_backward_hooks"):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            run(after, method)
        assert not isinstance(caught.value, CaptureError)
        messages.append((type(caught.value), str(caught.value)[:40]))
    assert messages[0] == messages[1]


def test_a_model_with_such_hooks_of_its_own_is_not_promised_that_another_method_helps():
    model = seeded(lambda: Model(WRAPPING["in place"]))
    model.linear.register_full_backward_hook(lambda *_: None)
    with (
        pytest.raises(CaptureError, match="if that fails too, it is the model's own"),
        capture_gradients(model, "full_backward_hooks"),
    ):
        model(batch(4, 3))


def same(model, h):
    return h * 2 if model.same(h) is h else h * 3


def tagged_before(model, h):
    h.scale = 7.0
    return h * getattr(model.same(h), "scale", 1.0)


class Tagging(nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        h.scale = 7.0
        return h


def tagged_inside(model, h):
    h = model.tag(h)
    return h * getattr(h, "scale", 1.0)


@pytest.mark.filterwarnings("ignore:layer 'same' returns its input")
@pytest.mark.parametrize(("after", "match"), [(tagged_before, "layer 'same' is given"), (tagged_inside, "layer 'tag' returns")])
def test_an_attribute_that_the_wrapping_drops_is_named(after, match):
    def build():
        model = Model(after)
        model.tag = Tagging(3, 3)
        return model

    losses = []
    for method in ("tensor_hooks", "full_backward_hooks"):
        model = seeded(build)
        with capture_gradients(model, method):
            if method == "tensor_hooks":
                loss = model(batch(4, 3)).sum()
            else:
                with pytest.warns(CaptureWarning, match=f"{match} a tensor with attributes of its own .scale."):
                    loss = model(batch(4, 3)).sum()
            loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(7 * losses[1])


def test_a_layer_that_returns_its_input_is_named_where_the_loss_goes_past_it():
    with pytest.warns(CaptureWarning, match="layer 'same' returns its input.*as with `is`"):
        capture = run(same)
    (record,) = (record for record in capture.passes[0].outputs if record.layer == "same")
    assert record.status == "unsupported"
    assert run(lambda model, h: model.same(h)).passes  # no warning
