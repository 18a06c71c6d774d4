"""What can be chosen when a capture is made, and how what cannot be is refused."""

import inspect
import math

import pytest
import torch
from torch import nn
from truth import METHODS, attached, batch, captured, each_method, seeded, small

from gradlab import CaptureError, capture_gradients


class Nested(nn.Module):
    """A body with a name of its own and a parameter beside its layers."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)
        self.spare = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.tensor([0.5, 2.0]))

    def forward(self, x):
        return self.head(self.body(x)) * self.scale


def run(model, x=None):
    model(batch(5, 3) if x is None else x).square().sum().backward()


def test_the_signature_is_the_documented_one():
    signature = inspect.signature(capture_gradients)
    assert {name: p.default for name, p in signature.parameters.items()} == {
        "model": inspect.Parameter.empty, "method": "tensor_hooks", "layers": None, "keep_passes": 100,
        "keep_gradients": False, "loss_scale": 1.0,
    }  # fmt: skip


@each_method
@pytest.mark.parametrize(
    ("layers", "names"), [(["head"], ["head"]), ("body.1", ["body.1"]), ({"head", "body"}, ["body", "head"])]
)
def test_only_the_chosen_layers_are_watched(layers, names, method):
    model = seeded(Nested)
    with capture_gradients(model, method, layers=layers) as capture:
        watched = {name for name, _, _ in attached(model)}
        run(model)
    (done,) = capture.passes
    assert [record.layer for record in done.outputs] == names
    assert {record.layer for record in done.parameters} <= {*names, "body.0"}
    assert not any(name.startswith("spare") for name in watched)


@pytest.mark.parametrize(
    ("layers", "near"),
    [
        (["haed"], "'head'"),
        ("body.2", "'body.1'"),
        (["head", "bdy"], "'body'"),
        (["Head"], "'head'"),
        ("encoder.layer", "near"),
    ],
)
def test_an_unknown_layer_is_refused_with_names_near_it(layers, near):
    model = seeded(Nested)
    wrong = layers if isinstance(layers, str) else layers[-1]
    with pytest.raises(CaptureError) as caught, capture_gradients(model, layers=layers):
        pytest.fail("the block must not run")
    assert repr(wrong) in str(caught.value)
    assert near in str(caught.value)
    assert attached(model) == []


@pytest.mark.parametrize("method", ["tensor_hook", "", None, "full_backward_hook", 3])
def test_an_unknown_method_is_refused_with_the_methods_there_are(method):
    with pytest.raises(CaptureError) as caught:
        capture_gradients(small(), method)
    assert all(name in str(caught.value) for name in METHODS)
    assert repr(method) in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"keep_passes": 0}, {"keep_passes": -1}, {"keep_passes": 1.5}, {"keep_passes": True}, {"keep_passes": "all"},
        {"loss_scale": 0.0}, {"loss_scale": -1.0}, {"loss_scale": math.nan}, {"loss_scale": math.inf}, {"loss_scale": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_an_impossible_option_is_refused_by_its_name(options):
    with pytest.raises(CaptureError, match=next(iter(options))):
        capture_gradients(small(), **options)


@pytest.mark.parametrize("model", [None, nn.Linear, "model", torch.ones(1), lambda x: x])
def test_only_a_module_can_be_watched(model):
    with pytest.raises(CaptureError, match="Module"):
        capture_gradients(model)


@each_method
def test_a_method_may_be_given_as_the_plain_text_of_its_name(method):
    assert captured(small(), run, str(method)).passes[0].outputs[0].status == "ok"


@pytest.mark.parametrize(("keep", "kept"), [(1, [6]), (3, [4, 5, 6]), (100, [1, 2, 3, 4, 5, 6]), (None, [1, 2, 3, 4, 5, 6])])
def test_the_latest_passes_are_kept(keep, kept):
    model, x = seeded(lambda: nn.Linear(3, 1)), batch(1, 3)
    with capture_gradients(model, keep_passes=keep, keep_gradients=True) as capture:
        for factor in range(1, 7):
            (factor * model(x)).sum().backward()
    assert [done.outputs[0].gradient.item() for done in capture.passes] == kept


def test_a_hundred_passes_are_kept_unless_said_otherwise():
    model, x = nn.Linear(1, 1), torch.ones(1, 1)
    with capture_gradients(model) as capture:
        for factor in range(105):
            (factor * model(x)).sum().backward()
    assert [done.outputs[0].statistics.max for done in capture.passes] == list(range(5, 105))


def test_a_models_own_dict_of_layers_may_be_called_as_pytorch_calls_its_parametrisations():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parametrizations = nn.ModuleDict({"weight": nn.Linear(3, 4), "other": nn.Sequential(nn.Linear(4, 2))})

        def forward(self, x):
            return self.parametrizations["other"](self.parametrizations["weight"](x))

    (done,) = captured(seeded(Net), run).passes
    layers = ["parametrizations.weight", "parametrizations.other.0"]
    assert [(record.layer, str(record.status)) for record in done.outputs] == [(layer, "ok") for layer in layers]
    assert [(record.layer, record.role) for record in done.parameters] == [
        (layer, role) for layer in layers for role in ("weight", "bias")
    ]
