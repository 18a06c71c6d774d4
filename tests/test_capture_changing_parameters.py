"""Parameters that are frozen, thawed, replaced or turned to another precision while they are watched; `.grad` overwritten."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from truth import assert_parameters, batch, captured, each_method, parameter_gradients, parameters, small, statuses

from gradlab import capture_gradients


def loss_of(model, x):
    return model(x).square().sum()


X = batch(5, 3)

THAWS = {
    "thawed": lambda model: model.requires_grad_(True),
    "loaded by assignment": lambda model: model.load_state_dict(small().state_dict(), assign=True),
    "replaced": lambda model: [setattr(model[i], "weight", nn.Parameter(model[i].weight.detach() * 2)) for i in (0, 2)],
}


@each_method
@pytest.mark.parametrize("change", THAWS)
@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad])
def test_parameters_that_change_after_an_evaluation_are_seen(change, context, method):
    model = small()
    if change == "thawed":
        model.requires_grad_(False)

    def run(model):
        with context():
            model(X)
        THAWS[change](model)
        loss_of(model, X).backward()

    (done,) = captured(model, run, method).passes
    assert {str(record.status) for record in done.parameters} == {"ok"}
    assert_parameters(done, parameter_gradients(model, loss_of(model, X)))


@each_method
@pytest.mark.parametrize("change", THAWS)
def test_parameters_that_change_between_two_passes_are_seen(change, method):
    model = small()
    if change == "thawed":
        model[0].requires_grad_(False)

    def run(model):
        loss_of(model, X).backward()
        THAWS[change](model)
        loss_of(model, X).backward()

    _, done = captured(model, run, method).passes
    assert {str(record.status) for record in done.parameters} == {"ok"}
    assert_parameters(done, parameter_gradients(model, loss_of(model, X)))


def test_parameters_frozen_between_two_passes_are_seen():
    model = small()

    def run(model):
        loss_of(model, X).backward()
        model[0].requires_grad_(False)
        loss_of(model, X).backward()

    first, second = captured(model, run).passes
    assert (parameters(first)["0.weight"].status, parameters(second)["0.weight"].status) == ("ok", "not_tracked")


@each_method
def test_a_network_turned_to_another_precision_says_so(method):
    model = small().float()

    def run(model):
        loss_of(model, X.float()).backward()
        loss_of(model.double(), X).backward()

    with capture_gradients(model, method, keep_gradients=True) as capture:
        run(model)
    for done, dtype in zip(capture.passes, ("float32", "float64"), strict=True):
        for record in (*done.outputs, *done.parameters):
            assert record.dtype == dtype
            assert str(record.gradient.dtype) == f"torch.{dtype}"
    model.zero_grad()


@each_method
def test_an_averaged_teacher_called_with_its_own_weights_does_not_hide_the_student(method):
    model = small()
    average = {name: p.detach() * 0.9 for name, p in model.named_parameters()}

    def distance(model):
        wanted = functional_call(model, average, (X,))
        return (model(X) - wanted).square().sum()

    (done,) = captured(model, lambda m: distance(m).backward(), method).passes
    assert_parameters(done, parameter_gradients(model, distance(model)))
    assert {status for (_, call, _), status in statuses(done).items() if call == 0} == {"not_tracked"}


@pytest.mark.parametrize("damage", [
    lambda model: model.zero_grad(set_to_none=False),
    lambda model: model.zero_grad(),
    lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1e-9),
    lambda model: [p.grad.fill_(float("nan")) for p in model.parameters()],
    lambda model: torch.optim.Adam(model.parameters(), lr=1.0).step(),
    lambda model: [setattr(p, "grad", None) for p in model.parameters()],
], ids=["zeroed in place", "set to None", "clipped", "overwritten", "stepped", "deleted"])  # fmt: skip
@each_method
def test_what_happens_to_grad_after_backward_changes_no_reading(damage, method):
    model = small()
    wanted = parameter_gradients(model, loss_of(model, X))

    def run(model):
        loss_of(model, X).backward()
        damage(model)

    (done,) = captured(model, run, method).passes
    assert_parameters(done, wanted)


@each_method
def test_an_optimiser_that_steps_inside_backward_consumes_no_reading(method):
    model = small()
    wanted = parameter_gradients(model, loss_of(model, X))
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    (done,) = captured(model, lambda m: loss_of(m, X).backward(), method).passes
    assert_parameters(done, wanted)
    assert all(parameter.grad is None for parameter in model.parameters())
