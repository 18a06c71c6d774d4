"""One tensor in several places: returned by two layers, twice by one, or given to a layer under two names.

Full backward hooks hand every layer wrapped copies of its inputs and outputs, so that what was one tensor becomes two
(https://github.com/pytorch/pytorch/issues/61446).
"""

import pytest
import torch
from torch import nn
from truth import assert_outputs, batch, captured, each_method, seeded, statuses


@each_method
def test_layers_that_return_one_tensor_share_its_gradient(method):
    returns_its_input = nn.Identity(), nn.Dropout(0.5), nn.Flatten(), nn.Sequential()
    model, x = seeded(lambda: nn.Sequential(nn.Identity(), nn.Linear(3, 4), *returns_its_input)).eval(), batch(5, 3)
    expected = torch.cos(x @ model[1].weight.T + model[1].bias).detach()
    done = captured(model, lambda m: m(x).sin().sum().backward(), method).passes[0]
    assert_outputs(done, {("0", 0, "0"): None} | {(str(place), 0, "0"): expected for place in range(1, 6)}, method)
    assert statuses(done)["0", 0, "0"] == "not_tracked"


@pytest.mark.filterwarnings("ignore:layer 'same' returns its input")
@each_method
def test_a_tensor_that_two_layers_return_has_one_gradient_wherever_it_goes(method):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.same = nn.Linear(3, 2), nn.Identity()

        def forward(self, x):
            h = self.linear(x)
            return self.same(h) + 3 * h

    four = torch.full((4, 2), 4.0, dtype=torch.float64)
    done = captured(seeded(Both), lambda m: m(batch(4, 3)).sum().backward(), method).passes[0]
    assert_outputs(done, {("linear", 0, "0"): four, ("same", 0, "0"): four}, method)


@each_method
def test_one_tensor_in_two_places_of_an_output_has_one_gradient(method):
    class Twice(nn.Module):
        def forward(self, x):
            h = x * 2
            return h, h

    model = seeded(lambda: nn.Sequential(nn.Linear(3, 2), Twice()))

    def run(model):
        a, b = model(batch(4, 3))
        (a + 3 * b).sum().backward()

    four = torch.full((4, 2), 4.0, dtype=torch.float64)
    capture = captured(model, run, method)
    if capture is not None:
        assert_outputs(capture.passes[0], {("0", 0, "0"): 2 * four, ("1", 0, "0"): four, ("1", 0, "1"): four}, method)


class Attention(nn.Module):
    """Takes one path where two of its arguments are one object, another where they are not, as nn.MultiheadAttention does."""

    def __init__(self):
        super().__init__()
        self.own, self.cross = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, query, key, mask=None, other_mask=None):
        same = query is (key[0] if isinstance(key, list) else key) if mask is None else mask is other_mask
        return self.own(query) if same else self.cross(query)


@each_method
@pytest.mark.parametrize(
    "call",
    [
        lambda m, h, x: m(h, h),
        lambda m, h, x: m(h, key=h),
        lambda m, h, x: m(h, [h]),
        lambda m, h, x: m(h, None, x, x),
        lambda m, h, x: m(h, None, x, other_mask=x),
    ],
    ids=["two arguments", "by keyword", "in a list", "two that need no gradient", "one of them by keyword"],
)
def test_being_watched_does_not_change_which_path_a_layer_takes(call, method):
    model, x = seeded(lambda: nn.ModuleDict({"stem": nn.Linear(3, 3), "attention": Attention()})), batch(4, 3)
    own = model["attention"].own
    h = nn.functional.linear(x, model["stem"].weight, model["stem"].bias)
    y = nn.functional.linear(h, own.weight, own.bias)
    at_h, at_y = torch.autograd.grad(y.square().sum(), [h, y])
    run = lambda m: call(m["attention"], m["stem"](x), x).square().sum().backward()  # noqa: E731
    capture = captured(model, run, method, layers=["stem", "attention.own", "attention.cross", "attention"])
    if capture is not None:
        found = statuses(capture.passes[0])
        assert (found["attention.own", 0, "0"], found["attention.cross", 0, "0"]) != ("never_called", "ok")
        expected = {("stem", 0, "0"): at_h, ("attention.own", 0, "0"): at_y, ("attention", 0, "0"): at_y}
        assert_outputs(capture.passes[0], expected, method)


@each_method
def test_a_layer_may_be_given_its_input_by_keyword_only(method):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(2.0))

        def forward(self, *, x):
            return x * self.weight

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.scale = nn.Linear(3, 2), Scale()

        def forward(self, x):
            return self.scale(x=self.linear(x))

    ones = torch.ones(4, 2, dtype=torch.float64)
    done = captured(seeded(Net), lambda m: m(batch(4, 3)).sum().backward(), method).passes[0]
    assert_outputs(done, {("linear", 0, "0"): 2 * ones, ("scale", 0, "0"): ones}, method)
