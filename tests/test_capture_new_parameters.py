"""Parameters that take the place of others inside the block: under the same name, under another, or inside it."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from truth import assert_parameters, attached, batch, captured, each_method, parameter_gradients, parameters, seeded, small

from gradlab import CaptureWarning, capture_gradients

X = batch(5, 3)


def loss_of(model, x=X):
    return model(x).square().sum()


class Uncertain(nn.Module):
    """The loss uses a parameter that no layer uses: its gradient comes before that of any output."""

    def __init__(self):
        super().__init__()
        self.body, self.log_var = nn.Linear(3, 2), nn.Parameter(torch.zeros(2), requires_grad=False)

    def forward(self, x):
        return self.body(x)

    def loss(self, y):
        return (y.square().mean(0) * (-self.log_var).exp() + self.log_var).sum()


CHANGES = {
    "thawed": lambda model: model.log_var.requires_grad_(True),
    "replaced": lambda model: setattr(model, "log_var", nn.Parameter(torch.ones(2, dtype=torch.float64))),
}


@each_method
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("passes", [1, 2])
def test_a_parameter_that_is_new_before_the_forward_is_seen_even_where_its_gradient_comes_first(passes, change, method):
    model = seeded(Uncertain)

    def run(model):
        for _ in range(passes - 1):
            model.loss(model(X)).backward()
        CHANGES[change](model)
        model.loss(model(X)).backward()

    done = captured(model, run, method).passes[-1]
    assert_parameters(done, parameter_gradients(model, model.loss(model(X))))


@each_method
@pytest.mark.parametrize("change", CHANGES)
def test_a_parameter_that_is_new_after_the_forward_is_right_or_withheld(change, method):
    model = seeded(Uncertain)

    def run(model):
        y = model(X)
        CHANGES[change](model)
        model.loss(y).backward()

    (done,) = captured(model, run, method).passes
    record = parameters(done)["log_var"]
    assert (str(record.status), record.gradient) == ("unsupported", None)
    assert "before the forward" in record.note


@each_method
@pytest.mark.parametrize("assign", [True, False], ids=["loaded", "replaced"])
def test_weights_that_are_untied_are_two_and_tied_again_one(assign, method):
    embedding, head = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
    head.weight = embedding.weight
    model, x = seeded(lambda: nn.Sequential(embedding, head)), torch.tensor([1, 2])

    def run(model):
        loss_of(model, x).backward()
        if assign:
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            model.load_state_dict(state, assign=True)
        else:
            head.weight = nn.Parameter(embedding.weight.detach().clone())
        loss_of(model, x).backward()
        head.weight = embedding.weight
        loss_of(model, x).backward()

    passes = captured(model, run, method).passes
    total = parameter_gradients(model, loss_of(model, x))["0.weight"]
    head.weight = nn.Parameter(embedding.weight.detach().clone())
    apart = parameter_gradients(model, loss_of(model, x))
    for done, expected in zip(passes, ({"0.weight": total, "1.weight": total}, apart, {"0.weight": total}), strict=True):
        assert_parameters(done, expected)
    assert ["shared" in record.note for done in passes for record in done.parameters] == [True] * 2 + [False] * 2 + [True] * 2


@pytest.fixture
def swapping():
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


@pytest.mark.usefixtures("swapping")
@each_method
@pytest.mark.parametrize(
    "change",
    [lambda m: m.load_state_dict({name: t.clone() for name, t in m.state_dict().items()}), lambda m: m.float().double()],
    ids=["loaded", "converted"],
)
def test_a_tensor_whose_inside_is_exchanged_is_still_watched(change, method):
    model = small()

    def run(model):
        change(model)
        loss_of(model).backward()

    (done,) = captured(model, run, method).passes
    assert_parameters(done, parameter_gradients(model, loss_of(model)))
    assert not attached(model)


def parametrized(model):
    parametrizations.orthogonal(model[0])


NEW_NAMES = {
    "pruned": (lambda m: prune.l1_unstructured(m[0], "weight", amount=0.5), lambda m: None),
    "pruned for good": (lambda m: prune.remove(m[0], "weight"), lambda m: prune.l1_unstructured(m[0], "weight", amount=0.5)),
    "parametrised": (parametrized, lambda m: None),
    "no longer parametrised": (lambda m: parametrize.remove_parametrizations(m[0], "weight"), parametrized),
}


@each_method
@pytest.mark.parametrize("change", NEW_NAMES)
@pytest.mark.parametrize("passes", [1, 2])
def test_parameters_under_new_names_take_the_place_of_the_old(passes, change, method):
    rename, prepare = NEW_NAMES[change]
    model = small()
    prepare(model)
    names = [name for name, _ in model.named_parameters()]

    def run(model):
        for _ in range(passes - 1):
            loss_of(model).backward()
        rename(model)
        loss_of(model).backward()

    capture = captured(model, run, method)
    done = capture.passes[-1]
    assert list(parameters(done)) == [name for name, _ in model.named_parameters()]
    assert_parameters(done, parameter_gradients(model, loss_of(model)))
    if passes == 2:
        assert list(parameters(capture.passes[0])) == names
    assert not [name for name, kind, _ in attached(model) if kind == "tensor"]


@each_method
@pytest.mark.parametrize("frozen", [False, True])
def test_a_module_that_takes_anothers_place_is_not_taken_for_a_frozen_or_unused_one(frozen, method):
    model = small()
    model[2].requires_grad_(not frozen)

    def run(model):
        model[2] = nn.Linear(4, 1).double()
        loss_of(model).backward()
        loss_of(model).backward()

    with pytest.warns(CaptureWarning, match="layer '2' was replaced"):
        first, second = captured(model, run, method).passes
    for name in ("2.weight", "2.bias"):
        record = parameters(first)[name]
        assert (str(record.status), record.gradient) == ("unsupported", None)
        assert "begin a capture after" in record.note
    assert_parameters(second, parameter_gradients(model, loss_of(model)))


def test_a_parameter_of_another_shape_is_described_as_it_is():
    model = seeded(lambda: nn.Embedding(4, 2))
    with capture_gradients(model) as capture:
        for rows in (6, 3):
            model.weight.data = torch.ones(rows, 2, dtype=torch.float64)
            model(torch.tensor([1, 2])).sum().backward()
            model.zero_grad()
    assert [done.parameters[0].shape for done in capture.passes] == [(6, 2), (3, 2)]
    assert [done.parameters[0].statistics.numel for done in capture.passes] == [12, 6]
