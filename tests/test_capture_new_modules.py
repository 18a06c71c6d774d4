"""Modules that come into a model inside the block are not watched, and it is said which."""

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations
from truth import batch, captured, each_method, readings, seeded, small

from gradlab import CaptureWarning, capture_gradients

X = batch(5, 3)


class BuiltLate(nn.Module):
    """Builds its head when it sees the first batch."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), None

    def forward(self, x):
        h = self.body(x)
        if self.head is None:
            self.head = nn.Sequential(nn.Linear(4, 2), nn.Tanh()).to(h)
        return self.head(h)


def step(model):
    model(X).square().sum().backward()


@each_method
@pytest.mark.parametrize("layers", [None, "all"])
def test_a_layer_that_is_built_inside_the_block_is_named(layers, method):
    with pytest.warns(CaptureWarning, match=r"layer .*'head.0'.* came into the model .*begin a capture after") as warned:
        captured(seeded(BuiltLate), lambda model: [step(model), step(model)], method, layers=layers)
    assert len(warned) == 1


def test_nobody_is_told_of_new_layers_where_only_some_were_chosen(recwarn):
    captured(seeded(BuiltLate), step, layers=["body"])
    assert not recwarn


PUT = {
    "as an item": lambda model: model.__setitem__(1, nn.ReLU()),
    "as an attribute": lambda model: setattr(model, "1", nn.ReLU()),
    "among the modules": lambda model: model._modules.update({"1": nn.ReLU()}),
}


@each_method
@pytest.mark.parametrize("put", PUT)
@pytest.mark.parametrize("passes", [0, 1])
def test_a_layer_without_parameters_that_takes_anothers_place_is_not_called_uncalled(passes, put, method):
    def run(model):
        for _ in range(passes):
            step(model)
        PUT[put](model)
        step(model)

    with pytest.warns(CaptureWarning, match="layer '1' was replaced inside the with block"):
        done = captured(small(), run, method).passes[-1]
    record = readings(done)["1", 0, "0"]
    assert (str(record.status), record.statistics) == ("unsupported", None)
    assert "begin a capture after the change" in record.note


@each_method
def test_a_layer_that_is_wrapped_inside_the_block_is_watched_where_it_is_now(method):
    class Adapter(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.down = base, nn.Parameter(torch.ones(4, 3, dtype=torch.float64))

        def forward(self, x):
            return self.base(x) + x @ self.down.T

    def run(model):
        model[0] = Adapter(model[0])
        step(model)

    with pytest.warns(CaptureWarning, match="layer '0' was replaced") as warned:
        (done,) = captured(small(), run, method).passes
    assert len(warned) == 1
    assert str(readings(done)["0", 0, "0"].status) == "ok"


@pytest.mark.parametrize("change", ["another model", "a parametrisation", "none"])
def test_nobody_is_told_of_what_is_no_layer_of_the_model(change, recwarn):
    def run(model):
        if change == "another model":
            nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Tanh()))
        elif change == "a parametrisation":
            parametrizations.weight_norm(model[0])
        step(model)

    captured(small(), run)
    assert not recwarn


@pytest.mark.parametrize("passes", [1, 3])
def test_what_comes_into_the_model_after_the_last_pass_that_was_counted_is_named_when_the_block_ends(passes):
    def run(model):
        for _ in range(passes):
            step(model)
        model.add_module("9", nn.Tanh())

    with pytest.warns(CaptureWarning, match="layer '9' came into the model"):
        captured(small(), run)


def test_networks_can_be_built_while_others_are_captured():
    """Nothing of the whole process is set for a capture, which could not be done while a network is built elsewhere."""
    before = dict(torch_module._global_module_registration_hooks)
    model = small()
    with capture_gradients(model):
        step(model)
        assert torch_module._global_module_registration_hooks == before
