"""The contract of `capture_gradients` on ordinary models: what is recorded, what can be chosen, what is refused."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from truth import (
    METHODS,
    Trace,
    assert_outputs,
    assert_parameters,
    attached,
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

import gradlab
from gradlab import CaptureError, capture_gradients
from gradlab.statistics import GradientStatistics


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


def nested_truth(model, x):
    trace = Trace()
    h = trace.linear("body.0", model.body[0], x)
    h = trace.note("body", trace.note("body.1", h.clamp(min=0)))
    y = trace.note("", trace.linear("head", model.head, h) * model.scale)
    return trace, y


def run(model, x=None):
    model(batch(5, 3) if x is None else x).square().sum().backward()


@each_method
@pytest.mark.parametrize("layers", [None, "all"])
def test_every_layer_gets_the_gradient_at_its_output(method, layers):
    model = seeded(Nested)
    trace, y = nested_truth(model, batch(5, 3))
    expected = trace.gradients(y.square().sum())
    capture = captured(model, run, method, layers=layers)
    if layers is None:  # leaves, and the root as the owner of `scale`
        del expected["body", 0, "0"]
    assert_outputs(capture.passes[0], expected)
    assert_parameters(capture.passes[0], parameter_gradients(model, y.square().sum()))
    assert readings(capture.passes[0]).keys() == expected.keys() | {("spare", 0, "0")}


@each_method
def test_a_record_says_where_its_gradient_was_and_when_it_came(method):
    model = seeded(Nested)
    (done,) = captured(model, run, method).passes
    assert [(r.layer, r.module_type, r.shape, r.dtype, r.forward_index, r.backward_index) for r in done.outputs] == [
        ("body.0", "Linear", (5, 4), "float64", 0, 3),
        ("body.1", "ReLU", (5, 4), "float64", 1, 2),
        ("head", "Linear", (5, 2), "float64", 2, 1),
        ("", "Nested", (5, 2), "float64", 3, 0),
        ("spare", "Linear", None, None, None, None),
    ]
    assert [(r.parameter, r.layer, r.role, r.shape, r.dtype) for r in done.parameters] == [
        ("scale", "", "other", (2,), "float64"),
        ("body.0.weight", "body.0", "weight", (4, 3), "float64"),
        ("body.0.bias", "body.0", "bias", (4,), "float64"),
        ("head.weight", "head", "weight", (2, 4), "float64"),
        ("head.bias", "head", "bias", (2,), "float64"),
        ("spare.weight", "spare", "weight", (2, 4), "float64"),
        ("spare.bias", "spare", "bias", (2,), "float64"),
    ]
    order = sorted((r for r in done.parameters if r.backward_index is not None), key=lambda r: r.backward_index)
    assert [r.layer for r in order if r.role == "weight"] == ["head", "body.0"]


@each_method
def test_a_layer_that_did_not_run_is_recorded_as_never_called(method):
    (done,) = captured(seeded(Nested), run, method).passes
    assert statuses(done)["spare", 0, "0"] == "never_called"
    assert readings(done)["spare", 0, "0"].statistics is None
    assert parameters(done)["spare.weight"].status == "no_gradient"


def test_the_tables_carry_the_fields_of_the_records():
    capture = captured(seeded(Nested), run)
    for table, records in (
        (capture.table(), capture.passes[-1].outputs),
        (capture.parameter_table(), capture.passes[-1].parameters),
        (capture.passes[0].table(), capture.passes[0].outputs),
        (capture.passes[0].parameter_table(), capture.passes[0].parameters),
    ):
        fields = [f.name for f in dataclasses.fields(records[0]) if f.name not in ("statistics", "gradient")]
        assert list(table.columns) == [*fields, *GradientStatistics._fields]
        assert list(table["layer"]) == [record.layer for record in records]
        assert [math.isnan(norm) for norm in table["norm"]] == [record.statistics is None for record in records]
        measured = [record.statistics.norm for record in records if record.statistics]
        assert list(table["norm"].dropna()) == measured


def test_a_record_cannot_be_changed():
    (done,) = captured(small(), run).passes
    for record in (done.outputs[0], done.parameters[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.status = "ok"


def test_gradients_are_kept_only_where_asked_for():
    model = small()
    with capture_gradients(model) as capture:
        run(model)
    records = [*capture.passes[0].outputs, *capture.passes[0].parameters]
    assert all(record.gradient is None and record.statistics is not None for record in records)


@each_method
def test_a_model_that_is_one_layer_has_the_empty_name(method):
    model = seeded(lambda: nn.Linear(3, 2))
    (done,) = captured(model, lambda m: m(batch(2, 3)).sum().backward(), method).passes
    assert statuses(done) == {("", 0, "0"): "ok"}
    assert torch.equal(done.outputs[0].gradient, torch.ones(2, 2, dtype=torch.float64))
    assert [(r.parameter, r.layer, r.role) for r in done.parameters] == [("weight", "", "weight"), ("bias", "", "bias")]


@each_method
def test_a_pass_can_be_read_inside_the_block_and_stays_what_it_was(method):
    model, x = seeded(lambda: nn.Linear(3, 1)), batch(1, 3)
    with capture_gradients(model, method, keep_gradients=True) as capture:
        assert capture.passes == ()
        (2 * model(x)).sum().backward()
        first = capture.passes[0]
        read = first.outputs[0].gradient.item()
        model.weight.grad.mul_(100)
        (5 * model(x)).sum().backward()
        assert len(capture.passes) == 2
        assert capture.passes[0] is first
    assert read == first.outputs[0].gradient.item() == 2
    assert torch.equal(parameters(first)["weight"].gradient, 2 * x)
    assert capture.table()["max"].item() == 5


def test_a_table_that_is_asked_for_before_any_backward_says_what_is_missing():
    model = small()
    capture = capture_gradients(model)
    with pytest.raises(CaptureError, match="with"):
        capture.table()
    with capture:
        with pytest.raises(CaptureError, match="no layer"):
            capture.table()
        output = model(batch(1, 3))
        with pytest.raises(CaptureError, match="backward"):
            capture.parameter_table()
        output.sum().backward()
    assert len(capture.table()) == 3


def test_a_capture_is_entered_once():
    model = small()
    with capture_gradients(model) as capture:
        with pytest.raises(CaptureError, match="once"), capture:
            pytest.fail("the block must not run twice")
        run(model)
    with pytest.raises(CaptureError, match="once"), capture:
        pytest.fail("the block must not run twice")
    assert len(capture.passes) == 1
    assert attached(model) == []


@pytest.mark.parametrize("inner", METHODS)
@pytest.mark.parametrize("outer", METHODS)
def test_a_capture_inside_a_capture_is_right_too(outer, inner):
    model = seeded(Nested)
    trace, y = nested_truth(model, batch(5, 3))
    expected = trace.gradients(y.square().sum())
    with capture_gradients(model, outer, layers="all", keep_gradients=True) as one:
        run(model)
        with capture_gradients(model, inner, layers="all", keep_gradients=True) as other:
            run(model)
        run(model)
    assert (len(one.passes), len(other.passes)) == (3, 1)
    for done, method in zip((*one.passes, *other.passes), (outer, outer, outer, inner), strict=True):
        # Two captures that both read .grad cannot both have it: one of them must say so.
        assert_outputs(done, expected, "retain_grad" if outer == inner == "retain_grad" else method)
    assert attached(model) == []


@each_method
def test_captures_of_two_models_do_not_mix(method):
    one, other = small(), small()
    with capture_gradients(one, method) as first, capture_gradients(other, method) as second:
        run(one)
        run(other)
        run(one)
    assert (len(first.passes), len(second.passes)) == (2, 1)


def test_public_names_are_those_of_the_capture_package():
    assert gradlab.capture_gradients is gradlab.capture.capture_gradients
    assert {str(status) for status in gradlab.Status} == {
        "ok", "tiny", "huge", "all_zero", "non_finite", "empty", "no_gradient", "not_tracked", "never_called", "unsupported",
    }  # fmt: skip
