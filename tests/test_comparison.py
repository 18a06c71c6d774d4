"""Two experiments side by side: what differs is listed, one difference makes a comparison, the trails are paired."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specs import SIZES, experiment_specs, network_specs

from gradlab import ExperimentSpec, SpecError, diagnose, run_experiment
from gradlab.comparison import FIELD_TITLES, compare, compare_results, differences_between
from gradlab.parting import PARTING_FACTOR
from gradlab.spec import FIELDS

PLAIN = ExperimentSpec()
SHORTCUT = PLAIN.replace(use_shortcut=True)


@pytest.mark.parametrize("gradient", ["outputs", "weights"])
def test_shortcuts_alone_make_a_comparison(gradient):
    found = compare(PLAIN, SHORTCUT, gradient=gradient)
    assert found.is_controlled
    assert found.word == "comparison"
    assert [(d.field, d.a, d.b) for d in found.differences] == [("use_shortcut", False, True)]
    assert found.diagnosis_a == diagnose(run_experiment(PLAIN), gradient=gradient)
    assert found.diagnosis_b == diagnose(run_experiment(SHORTCUT), gradient=gradient)


def parting_by_hand(spec_a, spec_b):
    """From the definition, on the weights' tensors: the first layer from the output end after which nothing comes back."""
    trails = []
    for spec in (spec_a, spec_b):
        records = [r for r in run_experiment(spec, keep_gradients=True).parameters if r.parameter.endswith(".0.weight")]
        sizes = [r.gradient.double().square().mean().sqrt().item() for r in records][::-1]
        trails.append([size / sizes[0] for size in sizes])
    ratios = [b / a for a, b in zip(*trails, strict=True)]
    for start in range(len(ratios)):
        rest = ratios[start:]
        if all(ratio > PARTING_FACTOR for ratio in rest) or all(ratio < 1 / PARTING_FACTOR for ratio in rest):
            return f"layers.{len(ratios) - 1 - start}", ratios[-1]
    return None, ratios[-1]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sizes", ["3-3-3-3-3-1", "8x12-2"])
def test_the_trails_part_where_the_definition_says(seed, sizes):
    a, b = (spec.replace(seed=seed, layer_sizes=sizes) for spec in (PLAIN, SHORTCUT))
    layer, times = parting_by_hand(a, b)
    found = compare(a, b, gradient="weights").parting
    assert found.layer_a == found.layer_b == layer
    assert found.times == pytest.approx(times, rel=1e-4)
    assert ("do not part" in found.sentence) == (layer is None)
    if layer:
        assert f"part at {layer}:" in found.sentence


def test_the_sentence_names_the_network_that_keeps_more_whichever_comes_first():
    there, back = compare(PLAIN, SHORTCUT), compare(SHORTCUT, PLAIN)
    assert "the network with shortcuts keeps more" in there.sentence
    assert there.sentence == back.sentence
    assert there.parting.times * back.parting.times == pytest.approx(1)


def test_a_factor_on_one_loss_moves_no_parting():
    usual = compare(PLAIN, SHORTCUT)
    total = compare(PLAIN.replace(layer_sizes="3-3-3-3-3-4", loss="mse_sum"), SHORTCUT.replace(layer_sizes="3-3-3-3-3-4"))
    mean = compare(PLAIN.replace(layer_sizes="3-3-3-3-3-4"), SHORTCUT.replace(layer_sizes="3-3-3-3-3-4"))
    assert total.parting.layer_a == mean.parting.layer_a
    assert total.parting.times == pytest.approx(mean.parting.times, rel=1e-5)
    assert usual.parting.layer_a


EXTRA = {
    "seed": (7, "other weights (seed)"),
    "layer_sizes": ("3-3-3-1", "layer sizes"),
    "activation": ("tanh", "activation"),
    "activate_last": (False, "activation after the last layer"),
    "initializer": ("he", "initialisation"),
    "gain": (2.0, "gain"),
    "normalization": ("layer_norm_after", "normalisation"),
    "use_bias": (False, "biases"),
    "dtype": ("float64", "precision"),
    "sample_input": ("zeros", "sample input"),
    "batch_size": (2, "batch size"),
    "target": ("standard_normal", "target"),
    "loss": ("l1", "loss"),
}


@pytest.mark.parametrize("field", EXTRA)
def test_one_more_difference_is_no_comparison_and_is_named(field):
    value, title = EXTRA[field]
    found = compare(PLAIN, SHORTCUT.replace(**{field: value}))
    assert not found.is_controlled
    assert found.word.startswith("No comparison: besides shortcuts")
    assert title in found.word
    assert {d.field for d in found.differences} == {"use_shortcut", field}
    alone = compare(PLAIN, PLAIN.replace(**{field: value}), under_study=field)
    assert alone.is_controlled


WITHOUT_EFFECT = [
    ({}, {"sigma_w": 2.0}),
    ({}, {"sigma_b": 0.5}),
    ({"initializer": "normal", "use_bias": False}, {"sigma_b": 0.5}),
    ({}, {"capture_method": "retain_grad"}),
    ({"loss": "output_sum"}, {"target": "standard_normal"}),
    ({"activation": "identity"}, {"activate_last": False}),
    ({"layer_sizes": "3-2", "activate_last": False}, {"activation": "relu"}),
    ({"layer_sizes": "3-4-5-1"}, {"use_shortcut": True}),
]


@pytest.mark.parametrize(("base", "change"), WITHOUT_EFFECT, ids=str)
def test_a_field_that_nobody_uses_is_listed_without_effect_and_changes_no_number(base, change):
    a, b = PLAIN.replace(**base), PLAIN.replace(**base, **change)
    (difference,) = differences_between(a, b)
    assert difference.field in change
    assert not difference.has_effect
    one, other = run_experiment(a), run_experiment(b)
    assert [r.statistics for r in one.linear_outputs] == [r.statistics for r in other.linear_outputs]
    assert [r.statistics for r in one.parameters] == [r.statistics for r in other.parameters]


def test_a_field_without_effect_does_not_spoil_a_comparison():
    found = compare(PLAIN, SHORTCUT.replace(sigma_w=3.0, capture_method="retain_grad"))
    assert found.is_controlled
    assert len(found.differences) == 3


def test_a_shortcut_with_nowhere_to_go_is_no_comparison():
    found = compare(PLAIN.replace(layer_sizes="3-4-5-1"), SHORTCUT.replace(layer_sizes="3-4-5-1"))
    assert not found.is_controlled
    assert "no effect here" in found.word


def test_the_same_twice_is_no_comparison():
    found = compare(PLAIN, PLAIN)
    assert not found.is_controlled
    assert found.differences == ()
    assert "no difference in shortcuts" in found.word
    assert found.parting.layer_a is None


def test_another_seed_means_other_weights_and_other_input_where_it_is_drawn():
    drawn = {"sample_input": "standard_normal", "target": "standard_normal"}
    (fixed,) = differences_between(PLAIN, PLAIN.replace(seed=1))
    (moving,) = differences_between(PLAIN.replace(**drawn), PLAIN.replace(**drawn, seed=1))
    assert fixed.title == "other weights (seed)"
    assert moving.title == "other weights and input and target (seed)"


def test_a_trail_of_exact_zeros_is_said_to_be_that():
    found = compare(PLAIN, PLAIN.replace(gain=0.0), under_study="gain")
    assert found.parting.times == 0
    assert "exactly zero" in found.sentence
    swapped = compare(PLAIN.replace(gain=0.0), PLAIN, under_study="gain")
    assert swapped.parting.times == math.inf
    assert "inf" not in swapped.sentence
    assert "∞" not in swapped.sentence


def test_without_a_reading_at_the_output_end_nothing_is_claimed():
    silent = PLAIN.replace(initializer="normal", sigma_w=0.0, activate_last=False)
    found = compare(PLAIN, silent)
    assert found.parting.times is None
    assert "cannot be said" in found.sentence


def test_with_a_reading_at_the_output_end_alone_nothing_is_claimed():
    found = compare(PLAIN.replace(gain=0.0), PLAIN.replace(gain=0.0, use_shortcut=True))
    assert found.parting.times is None
    assert "cannot be said: beyond layers.4" in found.sentence


def test_a_parting_at_the_last_layer_to_be_compared_names_it_once():
    zeros = PLAIN.replace(sample_input="zeros")
    found = compare(zeros, zeros.replace(use_shortcut=True), gradient="weights")
    assert found.sentence.startswith("The trails part at layers.1: there the network with shortcuts keeps")
    assert found.sentence.count("layers.1") == 1


def test_networks_of_different_depth_are_paired_from_the_output_end():
    table = compare(PLAIN.replace(layer_sizes="5x7-2"), PLAIN.replace(layer_sizes="9-4-4-2")).table()
    assert list(table["layer_a"]) == [f"layers.{depth}" for depth in range(6, -1, -1)]
    assert list(table["layer_b"]) == ["layers.2", "layers.1", "layers.0", "", "", "", ""]
    assert list(table["step"]) == list(range(1, 8))
    assert table["ratio"].notna().tolist() == [True] * 3 + [False] * 4
    assert table["reading_b"].isna().tolist() == [False] * 3 + [True] * 4


def test_the_table_joins_the_readings_layer_by_layer():
    found = compare(PLAIN, SHORTCUT)
    table = found.table().set_index("layer_a")
    for record_a, record_b in zip(found.a.linear_outputs, found.b.linear_outputs, strict=True):
        row = table.loc[record_a.layer.removesuffix(".0")]
        assert row["layer_b"] == record_b.layer.removesuffix(".0")
        assert row["reading_a"] == record_a.statistics.rms
        assert row["ratio"] == pytest.approx(record_b.statistics.rms / record_a.statistics.rms)
        assert row["fitted_a"] == (record_a.layer != "layers.4.0")
    assert table["relative_ratio"].iloc[0] == 1
    assert table["relative_ratio"].iloc[-1] == pytest.approx(found.parting.times)


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(SpecError, match="under_study = 'depth'"):
        compare(PLAIN, SHORTCUT, under_study="depth")


def test_every_field_has_a_title():
    assert list(FIELD_TITLES) == list(FIELDS)


SMALL = experiment_specs(network_specs(sizes=SIZES.map(lambda sizes: sizes[:7])))


@given(SMALL, SMALL, st.sampled_from(sorted(FIELDS)), st.sampled_from(["outputs", "weights"]))
@settings(max_examples=40, deadline=None)
def test_any_two_experiments_can_be_held_side_by_side(spec_a, spec_b, under_study, gradient):
    found = compare_results(run_experiment(spec_a), run_experiment(spec_b), under_study=under_study, gradient=gradient)
    a, b = spec_a.to_dict(), spec_b.to_dict()
    assert {d.field: (d.a, d.b) for d in found.differences} == {name: (a[name], b[name]) for name in a if a[name] != b[name]}
    assert found.is_controlled == ({d.field for d in found.differences if d.has_effect} == {under_study})
    assert (found.word == "comparison") == found.is_controlled
    assert len(found.table()) == max(spec_a.network.depth, spec_b.network.depth)
    for word in ("nan", "inf", "∞", "None"):
        assert word not in found.sentence
