"""The verdict on a trail: its factor, its evidence, and what cannot change it."""

import math
from itertools import combinations
from statistics import median

import pytest

from gradlab import CutOffs, ExperimentSpec, Verdict, diagnose, run_experiment
from gradlab.presets import PRESETS


def verdict_on(**changes):
    return diagnose(run_experiment(ExperimentSpec().replace(**changes)))


@pytest.mark.parametrize(
    ("preset", "verdict", "factor", "attenuation"),
    [("reference", "vanishing", 0.285, 0.023), ("reference_shortcut", "steady", 1.06, 1.18)],
)
def test_the_reference_experiment_vanishes_and_shortcuts_hold_it(preset, verdict, factor, attenuation):
    found = diagnose(run_experiment(PRESETS[preset].spec))
    assert found.verdict == verdict
    assert found.factor == pytest.approx(factor, rel=5e-3)
    assert found.attenuation == pytest.approx(attenuation, rel=2e-2)
    assert found.fitted_layers == ("layers.0.0", "layers.1.0", "layers.2.0", "layers.3.0")


@pytest.mark.parametrize(
    ("changes", "verdict", "severe"),
    [
        ({"layer_sizes": "64x20-1", "activation": "relu"}, "vanishing", True),
        ({"layer_sizes": "64x10-1", "activation": "sigmoid"}, "vanishing", True),
        ({"layer_sizes": "64x20-1", "activation": "relu", "initializer": "he", "gain": 2.0}, "exploding", True),
        ({"layer_sizes": "512x50-1", "activation": "relu", "initializer": "he", "loss": "output_sum"}, "steady", False),
    ],
)
def test_named_networks_have_their_verdict(changes, verdict, severe):
    found = verdict_on(sample_input="standard_normal", batch_size=8, activate_last=False, **changes)
    assert (found.verdict, found.severe) == (verdict, severe)


def test_the_factor_is_ten_to_the_median_of_all_slopes():
    result = run_experiment(PRESETS["deep_sigmoid"].spec)
    linear = [record for record in result.outputs if record.module_type == "Linear"][:-1]
    logs = [math.log10(record.statistics.rms) for record in linear]
    slope = median((logs[j] - logs[i]) / (j - i) for i, j in combinations(range(len(logs)), 2))
    assert diagnose(result).factor == pytest.approx(10**-slope)


def test_a_sum_instead_of_a_mean_changes_no_verdict():
    settings = {"layer_sizes": "16x12-4", "sample_input": "standard_normal", "batch_size": 8}
    mean, total = verdict_on(loss="mse", **settings), verdict_on(loss="mse_sum", **settings)
    assert total.verdict == mean.verdict
    assert total.factor == pytest.approx(mean.factor, rel=1e-5)


@pytest.mark.parametrize("sizes", ["3-1", "3-3-1", "3-4-4-1"])
def test_a_line_through_fewer_than_three_layers_is_no_trend(sizes):
    found = verdict_on(layer_sizes=sizes)
    assert found.verdict is Verdict.TOO_SHALLOW
    assert found.factor is None
    assert "shallow" in found.sentence


def test_layers_of_another_width_are_not_fitted():
    assert verdict_on(layer_sizes="8-32-16-16-16-16-4").fitted_layers == tuple(f"layers.{depth}.0" for depth in (1, 2, 3, 4))


def test_a_gradient_that_dries_up_is_vanishing_and_it_is_said_where():
    found = verdict_on(layer_sizes="8x199-1")
    assert found.verdict is Verdict.VANISHING
    assert "exactly zero" in found.sentence


def test_a_gradient_that_is_zero_everywhere_has_no_trend():
    assert verdict_on(initializer="normal", sigma_w=0).verdict is Verdict.NOT_MEASURABLE


def test_the_cut_offs_can_be_changed():
    result = run_experiment(PRESETS["reference"].spec)
    assert diagnose(result, CutOffs(vanishing=0.001)).verdict is Verdict.WEAKENING
