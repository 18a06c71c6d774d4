"""The gradient of every parameter, of one backward pass, whatever happens to `.grad` and to the parameter around it."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from truth import (
    assert_parameters,
    batch,
    captured,
    each_method,
    parameter_gradients,
    parameters,
    readings,
    seeded,
    small,
    statuses,
)

from gradlab import CaptureWarning, capture_gradients


def loss_of(model, x):
    return model(x).square().sum()


X = batch(5, 3)


@each_method
@pytest.mark.parametrize("frozen", [("0.weight",), ("0.bias", "2.bias"), ("0.weight", "0.bias"), ("2.weight", "2.bias")])
def test_a_frozen_parameter_is_not_tracked_and_the_others_are_right(frozen, method):
    model = small()
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    (done,) = captured(model, lambda m: loss_of(m, X).backward(), method).passes
    assert_parameters(done, parameter_gradients(model, loss_of(model, X)))
    assert {name for name, record in parameters(done).items() if record.status == "not_tracked"} == set(frozen)
    assert (statuses(done)["0", 0, "0"] == "not_tracked") == (set(frozen) >= {"0.weight", "0.bias"})


@each_method
def test_a_frozen_network_passes_gradients_on_to_an_input_that_wants_them(method):
    model, x = small().requires_grad_(False), batch(5, 3).requires_grad_()
    (done,) = captured(model, lambda m: loss_of(m, x).backward(), method).passes
    assert {str(record.status) for record in done.parameters} == {"not_tracked"}
    assert set(statuses(done).values()) == {"ok"}


@each_method
def test_a_reading_does_not_share_memory_with_grad(method):
    class Position(nn.Module):
        """At batch size 1 the gradient of the output is a view of the memory that becomes `.grad`."""

        def __init__(self):
            super().__init__()
            self.position = nn.Parameter(torch.zeros(2, 3))

        def forward(self, x):
            return x + self.position.unsqueeze(0)

    model, x = seeded(Position), torch.ones(1, 2, 3, dtype=torch.float64)
    with capture_gradients(model, method, keep_gradients=True) as capture:
        for factor in (2.0, 5.0):
            (factor * model(x)).sum().backward()
    assert [done.outputs[0].gradient.unique().tolist() for done in capture.passes] == [[2.0], [5.0]]
    assert [done.parameters[0].gradient.unique().tolist() for done in capture.passes] == [[2.0], [5.0]]
    assert model.position.grad.unique().tolist() == [7.0]


@each_method
def test_tied_weights_are_one_tensor_with_one_gradient_under_each_name(method):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body, self.head = nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.body(self.embed(tokens))))

    model, tokens = seeded(Tied), torch.tensor([[0, 2, 2, 4]])
    loss = model(tokens).square().sum()
    (wanted,) = torch.autograd.grad(loss, model.embed.weight)
    (done,) = captured(model, lambda m: m(tokens).square().sum().backward(), method).passes
    found = parameters(done)
    for name, other in (("embed.weight", "head.weight"), ("head.weight", "embed.weight")):
        torch.testing.assert_close(found[name].gradient, wanted)
        assert other in found[name].note
    assert found["body.weight"].note == ""
    assert [(r.layer, r.role) for r in done.parameters if r.parameter in ("embed.weight", "head.weight")] == [
        ("embed", "weight"), ("head", "weight"),
    ]  # fmt: skip


@each_method
def test_a_lazy_module_is_measured_in_its_first_pass(method):
    model = seeded(lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1)))
    (done,) = captured(model, lambda m: loss_of(m, X).backward(), method).passes
    assert_parameters(done, parameter_gradients(model, loss_of(model, X)))
    assert [(r.module_type, r.shape) for r in done.outputs] == [("Linear", (5, 4)), ("ReLU", (5, 4)), ("Linear", (5, 1))]
    assert [r.shape for r in done.parameters] == [(4, 3), (4,), (1, 4), (1,)]


@each_method
def test_a_lazy_module_that_never_runs_is_never_called(method):
    model = nn.ModuleDict({"used": nn.Linear(3, 1).double(), "lazy": nn.LazyLinear(4)})
    (done,) = captured(model, lambda m: m["used"](X).sum().backward(), method).passes
    assert statuses(done)["lazy", 0, "0"] == "never_called"
    assert parameters(done)["lazy.weight"].statistics is None
    assert parameters(done)["lazy.weight"].shape is None


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@each_method
@pytest.mark.parametrize("wrap", [
    parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal, nn.utils.spectral_norm,
    nn.utils.weight_norm,
], ids=["weight_norm", "spectral_norm", "orthogonal", "old spectral_norm", "old weight_norm"])  # fmt: skip
def test_a_parametrised_weight_has_the_gradients_of_what_it_is_made_from(wrap, method):
    def build():
        return nn.Sequential(wrap(nn.Linear(3, 3)), nn.Tanh(), nn.Linear(3, 1))

    model, plain = seeded(build).eval(), seeded(build).eval()
    plain.load_state_dict(model.state_dict())
    wanted = parameter_gradients(plain, loss_of(plain, X))
    (done,) = captured(model, lambda m: loss_of(m, X).backward(), method).passes
    assert_parameters(done, wanted)
    assert [record.layer for record in done.outputs] == ["0", "1", "2"]
    assert {record.layer for record in done.parameters} == {"0", "2"}
    roles = {record.parameter: record.role for record in done.parameters if record.layer == "0"}
    assert all(role == ("bias" if name == "0.bias" else "weight") for name, role in roles.items())


def test_a_cached_parametrisation_is_measured_as_an_uncached_one():
    model = seeded(lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3)), nn.Tanh(), nn.Linear(3, 1)))

    def run(model):
        with parametrize.cached():
            (loss_of(model, X) + loss_of(model, 2 * X)).backward()

    (done,) = captured(model, run).passes
    assert_parameters(done, parameter_gradients(model, loss_of(model, X) + loss_of(model, 2 * X)))


@pytest.mark.parametrize(
    ("make", "roles"),
    [
        (lambda: nn.Linear(2, 2), {"weight": "weight", "bias": "bias"}),
        (lambda: nn.LayerNorm(2), {"weight": "weight", "bias": "bias"}),
        (
            lambda: nn.LSTM(2, 2),
            {"weight_ih_l0": "weight", "weight_hh_l0": "weight", "bias_ih_l0": "bias", "bias_hh_l0": "bias"},
        ),
        (
            lambda: nn.MultiheadAttention(2, 1),
            {"in_proj_weight": "weight", "in_proj_bias": "bias", "out_proj.weight": "weight", "out_proj.bias": "bias"},
        ),
        (lambda: nn.PReLU(), {"weight": "weight"}),
        (lambda: Weightless(), {"weightless": "other", "heavy_weight_decay": "other", "linear.weight": "weight"}),
    ],
)  # fmt: skip
def test_the_role_comes_from_owner_and_attribute_not_from_a_search_for_weight(make, roles):
    model = make()
    with pytest.warns(CaptureWarning, match="forward was not seen"), capture_gradients(model) as capture:
        sum(parameter.sum() for parameter in model.parameters()).backward()
    assert {record.parameter: record.role for record in capture.passes[0].parameters} == roles


class Weightless(nn.Module):
    def __init__(self):
        super().__init__()
        self.weightless = nn.Parameter(torch.zeros(1))
        self.heavy_weight_decay = nn.Parameter(torch.zeros(1))
        self.linear = nn.Linear(1, 1, bias=False)


@each_method
def test_a_module_that_returns_its_own_parameter_has_that_parameters_gradient(method):
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(torch.ones(3))

        def forward(self):
            return self.value

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.constant, self.linear = Constant(), nn.Linear(3, 1)

        def forward(self, x):
            return self.linear(x + self.constant())

    model = seeded(Net)

    def run(model):
        for factor in (1, 3):
            (factor * loss_of(model, X)).backward()

    for done, factor in zip(captured(model, run, method).passes, (1, 3), strict=True):
        wanted = parameter_gradients(model, factor * loss_of(model, X))
        assert_parameters(done, wanted)
        record = readings(done)["constant", 0, "0"]
        if record.gradient is None:
            assert (method, record.status) == ("retain_grad", "unsupported")
        else:
            torch.testing.assert_close(record.gradient, wanted["constant.value"])
        assert len(done.outputs) == 2


def test_a_backward_for_some_inputs_only_reaches_those():
    model = small()
    (done,) = captured(model, lambda m: loss_of(m, X).backward(inputs=[m[2].weight])).passes
    wanted = parameter_gradients(model, loss_of(model, X))
    assert_parameters(done, {"2.weight": wanted["2.weight"], "0.weight": None, "0.bias": None, "2.bias": None})
