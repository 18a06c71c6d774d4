"""Flags on single layers: each for its own reason, none for the scale of the loss, none by chance."""

import math
from dataclasses import replace

import pytest
from truth import Trace

from gradlab import CutOffs, ExperimentSpec, build_network, diagnose, run_experiment
from gradlab.batches import sample_input
from gradlab.flags import FLAG_TITLES, WHAT_TO_DO, FlagKind

NORMAL = {"sample_input": "standard_normal", "batch_size": 32, "activate_last": False}


def flags(result, cut_offs=None, gradient="outputs"):
    return {(flag.layer, flag.kind): flag for flag in diagnose(result, cut_offs, gradient=gradient).flags}


def measured(**changes):
    return run_experiment(ExperimentSpec().replace(**changes))


def kinds(result, **options):
    return {kind for _, kind in flags(result, **options)}


def test_a_calm_network_has_no_flag():
    assert not flags(measured())
    assert not flags(measured(use_shortcut=True))


def test_a_network_that_overflows_is_flagged_non_finite_with_the_count():
    result = measured(layer_sizes="4x99", gain=1e6, activation="identity")
    found = flags(result)
    for record in result.linear_outputs:
        layer = record.layer.removesuffix(".0")
        assert ((layer, "non_finite") in found) == (record.statistics.nonfinite_count > 0)
    assert "non_finite" in kinds(result)
    flag = next(flag for (_, kind), flag in found.items() if kind == "non_finite")
    assert f"{flag.value} of 4 entries" in flag.sentence


def test_a_layer_whose_gradient_is_zero_is_flagged_all_zero_and_not_tiny():
    result = measured(initializer="normal", sigma_w=0.0, activate_last=False, loss="output_sum")
    assert {layer for layer, kind in flags(result) if kind == "all_zero"} == {f"layers.{depth}" for depth in range(4)}
    assert "tiny" not in kinds(result)


def test_a_layer_that_got_no_gradient_is_flagged_as_that_and_not_as_zero():
    result = measured()
    outputs = tuple(
        replace(record, statistics=None, status="no_gradient") if record.layer == "layers.2.0" else record
        for record in result.outputs
    )
    found = flags(replace(result, outputs=outputs))
    assert set(found) == {("layers.2", "no_gradient")}
    assert "does not depend on it" in found["layers.2", "no_gradient"].sentence


@pytest.mark.parametrize("gradient", ["outputs", "weights"])
def test_a_reading_far_off_the_networks_own_median_is_flagged(gradient):
    result = measured(layer_sizes="64x10-1", activation="sigmoid", **NORMAL)
    records = result.linear_outputs if gradient == "outputs" else result.linear_weights
    sizes = sorted(record.statistics.rms for record in records)
    middle = (sizes[4] + sizes[5]) / 2 if len(sizes) == 10 else sizes[len(sizes) // 2]
    found = flags(result, gradient=gradient)
    for index, record in enumerate(records):
        times = record.statistics.rms / middle
        assert ((f"layers.{index}", "tiny") in found) == (times < 1e-3)
        if times < 1e-3:
            assert found[f"layers.{index}", "tiny"].value == pytest.approx(times)
    assert "tiny" in kinds(result, gradient=gradient)


def test_the_last_layer_is_not_flagged_for_being_large():
    """It tends to have a larger gradient than its neighbours in every network."""
    result = measured(layer_sizes="64x20-1", activation="relu", **NORMAL)
    huge = {layer for layer, kind in flags(result) if kind == "huge"}
    assert huge
    assert "layers.19" not in huge
    strict = CutOffs(huge=1.0)
    assert "layers.19" not in {layer for layer, kind in flags(result, strict) if kind == "huge"}


def dead_by_hand(result):
    """The share of ReLU units with a non-positive input at every sample, by a forward written out."""
    network, x, trace = build_network(result.spec), sample_input(result.spec), Trace()
    shares = []
    for index, layer in enumerate(network.layers):
        z = trace.linear(f"layers.{index}", layer[0], x)
        shares.append((z <= 0).all(dim=0).double().mean().item())
        x = z.clamp(min=0) if len(layer) > 1 else z
    return shares


def test_a_layer_with_mostly_dead_units_is_flagged_with_their_share():
    # Large negative and positive biases decide which unit is ever active, whatever the sample.
    result = measured(layer_sizes="64x8", activation="relu", initializer="normal", sigma_w=0.1, sigma_b=3.0, seed=5, **NORMAL)
    shares, found = dead_by_hand(result)[:-1], flags(result, CutOffs(dead_deviations=0.0))
    flagged = {layer: flag.value for (layer, kind), flag in found.items() if kind == "dead_units"}
    assert flagged == pytest.approx({f"layers.{index}": share for index, share in enumerate(shares) if share > 0.5})
    assert flagged


@pytest.mark.parametrize("seed", range(8))
def test_one_sample_that_misses_half_the_units_by_chance_makes_no_dead_layer(seed):
    """With one sample every ReLU unit is inactive with probability one half: that says nothing about the unit."""
    result = measured(
        layer_sizes="64x12-1",
        activation="relu",
        initializer="he",
        sample_input="standard_normal",
        activate_last=False,
        seed=seed,
    )
    assert any(activity.dead_fraction > 0.5 for activity in result.layers[:-1])
    assert "dead_units" not in kinds(result)
    assert "dead_units" in kinds(result, cut_offs=CutOffs(dead_deviations=0.0))


def test_a_layer_in_which_no_unit_is_active_is_dead_however_small():
    result = measured(activation="relu", initializer="normal", sigma_w=0.0, activate_last=False)
    found = flags(result)
    assert {layer for layer, kind in found if kind == "dead_units"} == {f"layers.{depth}" for depth in range(4)}
    assert "3 of 3 units" in found["layers.0", "dead_units"].sentence


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_huge_inputs_saturate(activation):
    result = measured(layer_sizes="64x6", activation=activation, initializer="normal", sigma_w=1000.0, **NORMAL)
    found = flags(result)
    for activity in result.layers[:-1]:
        assert ((activity.layer, "saturated") in found) == (activity.saturated_fraction > 0.5)
    assert "saturated" in kinds(result)


def test_every_kind_has_a_title_and_says_what_to_do():
    assert list(FLAG_TITLES) == list(WHAT_TO_DO) == list(FlagKind)


def test_a_flag_never_carries_a_number_that_is_none():
    for changes in ({"layer_sizes": "4x99", "gain": 1e6, "activation": "identity"}, {"initializer": "normal", "sigma_w": 0.0}):
        for flag in diagnose(measured(**changes)).flags:
            assert flag.value is None or math.isfinite(flag.value)
            assert "nan" not in flag.sentence.lower().replace("are nan or infinite", "")
