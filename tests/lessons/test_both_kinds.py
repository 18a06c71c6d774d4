"""Weight gradient and output gradient of one layer: what ties them, where they part, and the four signs to look for."""

import math

import pytest
import torch
from hypothesis import given, settings
from specs import experiment_specs

from gradlab import build_network, diagnose, run_experiment
from gradlab.batches import sample_input
from gradlab.lessons.both_kinds import ROUNDING, both_kinds, cancels, factors, identity
from gradlab.lessons.signs import signs
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number

LINEAR = {"activation": "identity", "use_bias": "false", "sample_input": "standard_normal", "loss": "output_sum"}
PARADOX = PRESETS["bias_free_relu"].spec


def measured(**fields):
    return run_experiment(ExperimentSpec.from_dict(fields))


@settings(max_examples=25)
@given(experiment_specs())
def test_the_weight_gradient_is_the_product_for_one_sample_and_at_most_the_product_for_more(spec):
    limits = torch.finfo(getattr(torch, spec.network.dtype))
    samples = spec.batch.batch_size
    for row in both_kinds(run_experiment(spec)):
        if row.share is None or row.product < limits.tiny / limits.eps:
            continue  # no finite numbers, or too small for a digit to be relied on
        assert row.share <= 1 + ROUNDING[spec.network.dtype] * samples
        if samples == 1:
            assert row.share == pytest.approx(1, abs=ROUNDING[spec.network.dtype])


def test_the_parts_are_those_of_the_outer_product_written_out():
    spec = ExperimentSpec().replace(dtype="float64")
    network, h = build_network(spec), sample_input(spec)
    given_to, put_out = [], []
    for layer in network.layers:
        given_to.append(h)
        put_out.append(layer[0](h))
        h = layer[1](put_out[-1])
    found = torch.autograd.grad(h.square().mean(), put_out)
    rows = both_kinds(run_experiment(spec))
    assert [row.layer for row in rows] == [f"layers.{place}" for place in range(5)]
    for row, delta, x in zip(rows, found, given_to, strict=True):
        assert row.output_norm == pytest.approx(delta.norm().item(), rel=1e-12)
        assert row.input_norm == pytest.approx(x.norm().item(), rel=1e-12)
        assert row.weight_norm == pytest.approx((delta.T @ x).norm().item(), rel=1e-12)


def test_samples_that_are_all_alike_reach_the_bound():
    result = measured(batch_size=7)
    assert [row.share for row in both_kinds(result)] == pytest.approx([1] * 5, rel=1e-5)
    assert "Here it is 100 % of it." in identity(result)


def test_for_one_linear_layer_the_share_of_the_bound_is_that_of_the_summed_input():
    result = measured(**LINEAR, layer_sizes="6-1", batch_size=9, activate_last=False)
    inputs = sample_input(result.spec)
    (row,) = both_kinds(result)
    share = inputs.sum(0).norm() / (math.sqrt(9) * inputs.norm())
    assert row.share == pytest.approx(share.item(), rel=1e-5)
    assert f"Here it is {100 * share.item():.3g} % of it." in identity(result)
    assert "9 products" in identity(result)


def test_both_sides_zero_are_equal():
    result = measured(initializer="normal", sigma_w=0)
    assert [(row.weight_norm, row.product, row.share) for row in both_kinds(result)] == [(0, 0, 1)] * 5
    assert "agree in 5 of 5 layers: they are equal." in identity(result)


def test_below_the_smallest_number_the_sides_differ_and_the_sentence_says_why():
    result = measured(**LINEAR, layer_sizes="8x4", gain=3e-22)
    off = [row for row in both_kinds(result) if abs(row.share - 1) > 1e-3]
    assert off
    assert f"In {len(off)} layer" in identity(result)
    assert "entries below 1.2e-38 lose digits in float32, or become zero." in identity(result)


def test_what_is_not_finite_is_compared_with_nothing():
    result = measured(layer_sizes="3x21", gain=1e6, activation="identity")
    assert [row.share for row in both_kinds(result)] == [None] * 20
    assert identity(result) == "No layer has finite numbers on both sides."
    assert factors(result) == ""


def test_in_a_bias_free_relu_network_one_gradient_vanishes_and_the_other_holds():
    result = run_experiment(PARADOX, keep_gradients=True)
    outputs, weights = (diagnose(result, gradient=kind) for kind in ("outputs", "weights"))
    assert outputs.factor == pytest.approx(math.sqrt(1 / 6), rel=0.03)
    assert weights.factor == pytest.approx(1, rel=0.03)
    assert (outputs.verdict, weights.verdict) == ("vanishing", "steady")
    said = factors(result)
    assert f"**{short_number(outputs.factor)}**" in said
    assert f"**{short_number(weights.factor)}**" in said


def test_there_the_product_of_weight_and_gradient_is_the_loss_in_every_layer():
    # Du, Hu & Lee (2018), theorem 2.1; Euler's theorem for a loss that is linear in the output.
    result = run_experiment(PARADOX, keep_gradients=True)
    weights = dict(build_network(PARADOX).named_parameters())
    products = [(weights[r.parameter] * r.gradient).sum().item() for r in result.linear_weights]
    assert products == pytest.approx([result.loss] * 12, rel=1e-4)


@pytest.mark.parametrize(
    "change", [{"use_bias": True}, {"use_shortcut": True}, {"activation": "tanh"}, {"sigma_w": math.sqrt(2)}]
)
def test_the_two_cancel_there_and_not_where_one_of_its_conditions_is_gone(change):
    assert cancels(run_experiment(PARADOX))
    assert not cancels(run_experiment(PARADOX.replace(**change)))


def test_too_few_layers_have_no_factor():
    assert factors(measured(layer_sizes="3-3-1")) == ""


def test_each_sign_is_measured_at_a_layer_that_has_it():
    dead, faint, loud, aside = (sign.record for sign in signs())
    assert [str(record.status) for record in (dead, faint, loud, aside)] == ["all_zero", "tiny", "huge", "no_gradient"]
    assert dead.statistics.norm == 0
    assert faint.statistics.norm == pytest.approx(math.sqrt(3) * 1e-25, rel=1e-6)
    assert loud.statistics.norm == pytest.approx(math.sqrt(3) * 1e25, rel=1e-6)
    assert aside.statistics is None


def test_measuring_the_signs_draws_no_global_random_number():
    before = torch.random.get_rng_state()
    signs()
    assert torch.equal(before, torch.random.get_rng_state())
