"""Published detectors on one and the same measurement: what they say, and how often a constant on the loss changes it."""

import math

import pytest
import torch

from gradlab import ExperimentSpec, build_network, run_experiment
from gradlab.batches import loss_function, sample_input, target
from gradlab.experiment import with_loss_times
from gradlab.published_rules import RULE_SETS, RuleWord, flips

DEEP = {"sample_input": "standard_normal", "batch_size": 8, "activate_last": False}
ELEVEN = {
    "reference": {},
    "reference with shortcuts": {"use_shortcut": True},
    "ReLU": {"layer_sizes": "64x20-1", "activation": "relu", **DEEP},
    "He ReLU": {"layer_sizes": "128x50-1", "activation": "relu", "initializer": "he", "loss": "output_sum", **DEEP},
    "twice He ReLU": {"layer_sizes": "64x20-1", "activation": "relu", "initializer": "he", "gain": 2.0, **DEEP},
    "sigmoid": {"layer_sizes": "64x10-1", "activation": "sigmoid", **DEEP},
    "residual ReLU": {"layer_sizes": "64x20-1", "activation": "relu", "use_shortcut": True, **DEEP},
    "tanh": {"layer_sizes": "64x20-1", "activation": "tanh", **DEEP},
    "chaotic tanh": {"layer_sizes": "64x20-1", "activation": "tanh", "initializer": "normal", "sigma_w": 3.0, **DEEP},
    "linear": {"layer_sizes": "64x20-1", "activation": "identity", "initializer": "xavier", **DEEP},
    "BatchNorm ReLU": {"layer_sizes": "64x20-1", "activation": "relu", "normalization": "batch_norm", **DEEP},
}


def measured(**changes):
    return run_experiment(ExperimentSpec().replace(**changes))


@pytest.fixture(scope="module")
def tables():
    return {name: flips(measured(**changes)).set_index("rule_set") for name, changes in ELEVEN.items()}


@pytest.mark.parametrize("name", RULE_SETS)
def test_none_calls_the_reference_network_vanishing(name):
    assert RULE_SETS[name].judge(measured()).verdict == "none"


@pytest.mark.parametrize("name", RULE_SETS)
def test_every_one_changes_its_mind_on_some_network_when_the_loss_is_multiplied(name, tables):
    assert any(table.loc[name, "flips"] for table in tables.values())


def test_the_labs_own_verdict_never_changes(tables):
    for table in tables.values():
        assert not table.loc["gradlab", "flips"]


def test_a_flip_is_a_difference_between_the_columns(tables):
    for table in tables.values():
        assert list(table.index) == [*RULE_SETS, "gradlab"]
        words = table[["0.0001", "1.0", "10000.0"]]
        assert list(table["flips"]) == [len(set(row)) > 1 for row in words.itertuples(index=False)]


def gradients_by_hand(spec, factor):
    """Every parameter's gradient with the loss multiplied in the run itself; no hooks, no captured statistics."""
    network = build_network(spec)
    (loss_function(spec)(network(sample_input(spec)), target(spec)) * factor).backward()
    return {name: parameter.grad.double() for name, parameter in network.named_parameters()}


def words_by_hand(gradients):
    """The size rules of each set written out once more on the tensors; "exploding" before "vanishing"."""
    weights = {name: g for name, g in gradients.items() if name.endswith("weight")}
    matrices = [g for g in weights.values() if g.dim() == 2]
    means = [g.abs().mean().item() for g in gradients.values()]
    weight_means = [g.abs().mean().item() for g in weights.values()]
    largest = [g.abs().max().item() for g in gradients.values()]
    norms = [g.norm().item() for g in gradients.values()]
    total = torch.cat([g.flatten() for g in gradients.values()]).norm().item()
    first, last = matrices[0].norm().item(), matrices[-1].norm().item()

    def word(exploding, vanishing):
        return "exploding" if exploding else "vanishing" if vanishing else "none"

    return {
        "sagemaker": word(False, min(means) < 1e-7),
        "autotrainer": word(first / last > 70, first / last < 1e-3 and first < 1e-4),
        "deepdiagnosis": word(False, min(weight_means) < 1e-7),
        "torchdiag": word(max(largest) > 100, min(largest) < 1e-7),
        "trainpulse": word(total > 100, 0 < total < 1e-7),
        "gradscope": word(max(norms) > 1e3, min(norms) < 1e-8),
        "traintools": word(max(norms) >= 1e3, min(norms) <= 1e-12),
        "tensight": word(max(g.abs().max().item() for g in weights.values()) > 1e3, min(weight_means) < 1e-7),
    }


@pytest.mark.parametrize("network", ELEVEN)
@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_the_sizes_are_judged_as_the_rules_written_out_a_second_time(network, factor):
    spec = ExperimentSpec().replace(**ELEVEN[network])
    expected, result = words_by_hand(gradients_by_hand(spec, factor)), run_experiment(spec)
    for name, rule_set in RULE_SETS.items():
        found = rule_set.judge(result, factor).verdict
        if found in ("dead", "saturated"):
            assert expected[name] == "none", name  # asked after the sizes
        else:
            assert found == expected[name], name


@pytest.mark.parametrize("name", RULE_SETS)
@pytest.mark.parametrize("factor", [1e-6, 1e-2, 1e3])
def test_a_loss_factor_is_the_same_as_a_multiplied_result(name, factor):
    result = measured(layer_sizes="16x12-1", activation="relu")
    assert RULE_SETS[name].judge(result, factor) == RULE_SETS[name].judge(with_loss_times(result, factor))


def test_a_rule_at_its_threshold_fires_where_the_source_says_so():
    rules = {name: RULE_SETS[name].rules[-1] for name in ("gradscope", "traintools")}
    assert not rules["gradscope"].fires(1e-8)
    assert rules["traintools"].fires(1e-12)
    for rule_set in RULE_SETS.values():
        for rule in rule_set.rules:
            assert not rule.fires(math.nan)
            assert rule.fires(rule.threshold) == rule.inclusive
            assert rule.fires(0.0 if rule.below is not None else 1e30)


def test_dead_and_saturated_units_are_seen_by_the_sets_that_look_for_them():
    dead = measured(layer_sizes="64x8-1", activation="relu", initializer="normal", sigma_w=1.0, sigma_b=0.0, **DEEP)
    silent = [1 - activity.active_fraction for activity in dead.layers[:-1]]
    never = [activity.dead_fraction for activity in dead.layers[:-1]]
    assert (RULE_SETS["torchdiag"].judge(dead).verdict == "dead") == (max(never) > 0.2)
    assert (RULE_SETS["deepdiagnosis"].judge(dead).verdict == "dead") == (max(silent) >= 0.7)
    saturated = measured(layer_sizes="64x4-1", activation="tanh", initializer="normal", sigma_w=200.0, **DEEP)
    assert max(activity.saturated_fraction for activity in saturated.layers[:-1]) > 0.5
    assert RULE_SETS["sagemaker"].judge(saturated).verdict == "saturated"
    assert RULE_SETS["sagemaker"].judge(saturated).layers


def test_a_gradient_of_zeros_is_dead_to_the_one_that_counts_zeros():
    found = RULE_SETS["autotrainer"].judge(measured(initializer="normal", sigma_w=0.0, activate_last=False))
    assert (found.verdict, found.value) == ("dead", 1.0)


@pytest.mark.parametrize("name", RULE_SETS)
def test_nan_or_infinity_is_named_and_never_compared(name):
    result = measured(layer_sizes="4x99", gain=1e6, activation="identity")
    found = RULE_SETS[name].judge(result)
    assert found.verdict in ("exploding", "non-finite")
    assert found.value is None
    assert found.layers
    assert "NaN or infinity" in found.sentence


@pytest.mark.parametrize("name", RULE_SETS)
def test_a_rule_set_says_where_it_comes_from_and_what_it_compares(name):
    rule_set = RULE_SETS[name]
    assert rule_set.name == name
    assert rule_set.title
    assert rule_set.source
    assert rule_set.link.startswith("https://")
    assert rule_set.year is None or 2019 <= rule_set.year <= 2026
    assert {"vanishing"} <= {rule.word for rule in rule_set.rules} <= set(RuleWord)
    assert len(rule_set.thresholds) == len(rule_set.rules)
    assert all((rule.below is None) != (rule.above is None) for rule in rule_set.rules)
    result = measured(layer_sizes="64x20-1", activation="relu", **DEEP)
    found = rule_set.judge(result)
    if found.value is not None:
        rule = next(rule for rule in rule_set.rules if rule.word == found.verdict)
        assert rule.fires(found.value)
        assert rule.statistic in found.sentence
