"""The verdict on a trail: its factor, its evidence, and what cannot change it."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations
from statistics import median

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from specs import SIZES, experiment_specs, network_specs

from gradlab import CutOffs, ExperimentSpec, SpecError, Verdict, build_network, capture_gradients, diagnose, run_experiment
from gradlab.batches import loss_function, sample_input, target
from gradlab.diagnosis import disagreement, per_layer_factor, verdict_on
from gradlab.experiment import with_loss_times
from gradlab.presets import PRESETS


def verdict_of(**changes):
    return diagnose(run_experiment(ExperimentSpec().replace(**changes)))


def measured_again(spec, *, loss_factor=1.0, order=None):
    """The experiment run once more, its loss multiplied in the run itself and its batch permuted."""
    network, x, wanted = build_network(spec), sample_input(spec), target(spec)
    if order is not None:
        x, wanted = x[order], wanted[order]
    with capture_gradients(network) as capture:
        (loss_function(spec)(network(x), wanted) * loss_factor).backward()
    last = capture.passes[-1]
    return replace(run_experiment(spec), outputs=last.outputs, parameters=last.parameters)


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


NAMED = [
    ({"layer_sizes": "64x20-1", "activation": "relu"}, "vanishing", True),
    ({"layer_sizes": "64x10-1", "activation": "sigmoid"}, "vanishing", True),
    ({"layer_sizes": "64x20-1", "activation": "relu", "initializer": "he", "gain": 2.0}, "exploding", True),
    ({"layer_sizes": "512x50-1", "activation": "relu", "initializer": "he", "loss": "output_sum"}, "steady", False),
    (
        {
            "layer_sizes": "512x50-10",
            "activation": "relu",
            "initializer": "he",
            "loss": "cross_entropy",
            "target": "class_labels",
        },
        "steady",
        False,
    ),
]


@pytest.mark.parametrize(("changes", "verdict", "severe"), NAMED)
def test_named_networks_have_their_verdict(changes, verdict, severe):
    found = verdict_of(sample_input="standard_normal", batch_size=8, activate_last=False, **changes)
    assert (found.verdict, found.severe) == (verdict, severe)


@pytest.mark.parametrize("seed", range(3))
def test_a_residual_network_of_twenty_layers_does_not_vanish(seed):
    found = verdict_of(
        layer_sizes="64x20-1", activation="relu", activate_last=False, use_shortcut=True, sample_input="standard_normal",
        batch_size=8, seed=seed,
    )  # fmt: skip
    assert found.factor > 1
    assert found.verdict in (Verdict.STEADY, Verdict.GROWING, Verdict.EXPLODING)


def independent_judgement(spec, gradient="outputs"):
    """The rule once more, from tensors: the gradients of the linear maps of the most common hidden width."""
    result = run_experiment(spec, keep_gradients=True)
    if gradient == "outputs":
        tensors = {record.layer: record.gradient for record in result.outputs}
    else:
        tensors = {record.layer: record.gradient for record in result.parameters if record.parameter.endswith("0.weight")}
    widths = spec.network.layer_sizes[1:-1]
    if not widths:
        return "too_shallow", None
    ((width, _),) = Counter(widths).most_common(1)
    depths = [depth for depth, size in enumerate(widths) if size == width]
    if len(depths) < 3:
        return "too_shallow", None
    logs = {}
    for depth in depths:
        square = tensors[f"layers.{depth}.0"].double().square().mean().item()
        if 0 < square < math.inf:
            logs[depth] = math.log10(square) / 2
    if len(logs) < len(depths):
        return None  # other rules hold where a reading is missing
    slope = median((logs[j] - logs[i]) / (j - i) for i, j in combinations(depths, 2))
    attenuation = -slope * (len(depths) - 1)
    bounds = [(-1, "vanishing"), (math.log10(0.5), "weakening"), (math.log10(2), "steady"), (1, "growing")]
    return next((word for bound, word in bounds if attenuation < bound), "exploding"), attenuation


@given(
    experiment_specs(network_specs(sizes=SIZES.map(lambda sizes: sizes[:13]))),
    st.sampled_from(["outputs", "weights"]),
)
@settings(max_examples=40, deadline=None)
def test_any_network_gets_the_verdict_of_the_rule_written_out_a_second_time(spec, gradient):
    # Calm weights, so that most networks have a reading everywhere.
    spec = spec.replace(gain=1.0, sigma_w=min(spec.network.sigma_w, 2.0), sigma_b=0.1)
    expected = independent_judgement(spec, gradient)
    assume(expected is not None)
    word, attenuation = expected
    found = diagnose(run_experiment(spec), gradient=gradient)
    if attenuation is None:
        assert (found.verdict, found.attenuation) == (word, None)
        return
    assert math.log10(found.attenuation) == pytest.approx(attenuation, abs=1e-4)
    if min(abs(attenuation - bound) for bound in (-1, math.log10(0.5), math.log10(2), 1)) > 1e-3:
        assert found.verdict == word


EVERY_KIND = [
    {},
    {"use_shortcut": True},
    {"layer_sizes": "16x12-1", "activation": "relu"},
    {"layer_sizes": "16x12-1", "activation": "relu", "initializer": "he", "gain": 2.0},
    {"layer_sizes": "16x12-1", "activation": "tanh", "initializer": "normal", "sigma_w": 1.4},
    {"layer_sizes": "16x12-1", "activation": "tanh", "initializer": "normal", "sigma_w": 40.0},
    {"layer_sizes": "8-16-16-32-16-16-4", "normalization": "batch_norm"},
    {"layer_sizes": "3-3-1"},
]


@pytest.mark.parametrize("changes", EVERY_KIND, ids=str)
@pytest.mark.parametrize("gradient", ["outputs", "weights"])
def test_no_factor_on_the_loss_changes_a_verdict_or_a_flag(changes, gradient):
    spec = ExperimentSpec().replace(sample_input="standard_normal", batch_size=8, **changes)
    usual = diagnose(run_experiment(spec), gradient=gradient)
    for factor in (1e-6, 1e-4, 1e-2, 1e2, 1e4):
        for result in (measured_again(spec, loss_factor=factor), with_loss_times(run_experiment(spec), factor)):
            found = diagnose(result, gradient=gradient)
            assert (found.verdict, found.severe, found.fitted_layers) == (usual.verdict, usual.severe, usual.fitted_layers)
            assert [(flag.layer, flag.kind) for flag in found.flags] == [(flag.layer, flag.kind) for flag in usual.flags]
            if usual.factor is not None:
                assert found.factor == pytest.approx(usual.factor, rel=1e-3)


def test_a_loss_multiplied_afterwards_reads_as_one_multiplied_in_the_run():
    spec = ExperimentSpec().replace(layer_sizes="4-6-6-6-2", sample_input="standard_normal", batch_size=3, dtype="float64")
    afterwards, in_the_run = with_loss_times(run_experiment(spec), 1e4), measured_again(spec, loss_factor=1e4)
    assert afterwards.loss == pytest.approx(1e4 * run_experiment(spec).loss)
    for one, other in zip(afterwards.outputs + afterwards.parameters, in_the_run.outputs + in_the_run.parameters, strict=True):
        assert one.statistics == pytest.approx(other.statistics, rel=1e-12)
        assert one.status == other.status


@given(experiment_specs(network_specs(sizes=SIZES.map(lambda sizes: sizes[:13]))), st.randoms())
@settings(max_examples=25, deadline=None)
def test_the_order_of_the_batch_changes_nothing(spec, random):
    spec = spec.replace(gain=1.0, sigma_w=1.5, sigma_b=0.1, dtype="float64")
    order = list(range(spec.batch.batch_size))
    random.shuffle(order)
    usual, found = diagnose(run_experiment(spec)), diagnose(measured_again(spec, order=torch.tensor(order)))
    # BatchNorm over rows all alike divides rounding errors by rounding errors: no number there survives a permutation.
    assume(spec.network.normalization != "batch_norm" or spec.batch.sample_input == "standard_normal")
    assert found.verdict == usual.verdict
    if usual.factor is not None:
        assert found.factor == pytest.approx(usual.factor, rel=1e-4)


MIRROR = {
    "vanishing": "exploding",
    "weakening": "growing",
    "steady": "steady",
    "growing": "weakening",
    "exploding": "vanishing",
}


@given(st.lists(st.floats(1e-12, 1e12), min_size=3, max_size=30))
def test_a_list_read_the_other_way_round_turns_only_the_direction(sizes):
    depths, cut_offs = range(len(sizes)), CutOffs()
    there, back = per_layer_factor(depths, sizes), per_layer_factor(depths, sizes[::-1])
    assert there * back == pytest.approx(1)
    attenuation = there ** (len(sizes) - 1)
    if all(abs(math.log(attenuation / bound)) > 1e-6 for bound in (0.1, 0.5, 2, 10)):
        assert verdict_on(back ** (len(sizes) - 1), cut_offs) == MIRROR[verdict_on(attenuation, cut_offs)]


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e6), st.integers(5, 20), st.data())
def test_one_odd_layer_does_not_move_the_line(factor, size, count, data):
    sizes = [size * factor**-depth for depth in range(count)]
    sizes[data.draw(st.integers(0, count - 1))] *= data.draw(st.sampled_from([1e-9, 1e9]))
    # One point of n takes part in n−1 of n(n−1)/2 slopes: from five points on that is too few to reach the median.
    assert per_layer_factor(range(count), sizes) == pytest.approx(factor, rel=1e-6)


def test_the_evidence_follows_the_verdict():
    for preset in PRESETS.values():
        found = diagnose(run_experiment(preset.spec))
        if found.factor is None:
            assert (found.attenuation, found.crossed, found.fitted_layers, found.steps_against) == (None, None, (), None)
            continue
        assert found.attenuation == pytest.approx(found.factor ** (len(found.fitted_layers) - 1))
        assert (found.crossed is None) == (found.verdict is Verdict.STEADY)
        if found.crossed:
            assert found.crossed.value == getattr(found.cut_offs, found.crossed.name)
            assert found.severe == found.crossed.name.startswith("severe")
            beyond = found.attenuation < found.crossed.value if found.factor < 1 else found.attenuation > found.crossed.value
            assert beyond


def test_the_reference_crosses_the_cut_off_of_vanishing_and_no_other():
    found = diagnose(run_experiment(ExperimentSpec()))
    assert found.crossed == ("vanishing", 0.1)
    assert found.sentence == "0.285 per layer toward the input: 2.3 % is left after 4 hidden layers."


def test_a_trail_that_does_not_fall_at_every_step_is_not_said_to():
    """The published list of weight gradients has layer 0 above layer 1."""
    found = diagnose(run_experiment(ExperimentSpec()), gradient="weights")
    assert found.steps_against == 1
    assert "1 of 3 steps goes the other way" in found.sentence
    assert diagnose(run_experiment(ExperimentSpec())).steps_against == 0


def test_weights_that_cancel_the_scale_make_the_two_gradients_disagree():
    """Du, Hu, Lee (2018): without biases ⟨W, ∂L/∂W⟩ is the same in every ReLU layer, whatever the output gradients do."""
    spec = ExperimentSpec().replace(
        layer_sizes="256x12-1", activation="relu", activate_last=False, use_bias=False, initializer="normal", sigma_w=8**0.5,
        sample_input="standard_normal", loss="output_sum",
    )  # fmt: skip
    result = run_experiment(spec)
    outputs, weights = diagnose(result), diagnose(result, gradient="weights")
    assert outputs.factor == pytest.approx(2, rel=0.05)
    assert weights.factor == pytest.approx(1, rel=0.05)
    assert "exploding" in disagreement(outputs, weights)
    assert "steady" in disagreement(outputs, weights)
    assert disagreement(outputs, outputs) is None


def test_another_gradient_than_the_two_is_refused():
    with pytest.raises(SpecError, match=r"'biases'.*weights or outputs"):
        diagnose(run_experiment(ExperimentSpec()), gradient="biases")


def test_a_sum_instead_of_a_mean_changes_no_verdict():
    settings = {"layer_sizes": "16x12-4", "sample_input": "standard_normal", "batch_size": 8}
    mean, total = verdict_of(loss="mse", **settings), verdict_of(loss="mse_sum", **settings)
    assert total.verdict == mean.verdict
    assert total.factor == pytest.approx(mean.factor, rel=1e-5)


@pytest.mark.parametrize("sizes", ["3-1", "3-3-1", "3-4-4-1"])
def test_a_line_through_fewer_than_three_layers_is_no_trend(sizes):
    found = verdict_of(layer_sizes=sizes)
    assert found.verdict is Verdict.TOO_SHALLOW
    assert found.factor is None
    assert "shallow" in found.sentence


def test_layers_of_another_width_are_not_fitted():
    assert verdict_of(layer_sizes="8-32-16-16-16-16-4").fitted_layers == tuple(f"layers.{depth}.0" for depth in (1, 2, 3, 4))


def test_a_gradient_that_dries_up_is_vanishing_and_it_is_said_where():
    found = verdict_of(layer_sizes="8x199-1")
    assert found.verdict is Verdict.VANISHING
    assert "exactly zero" in found.sentence


def zeroed(result, depths):
    """The result with the gradients of some linear maps exactly zero."""
    names = {f"layers.{depth}.0" for depth in depths}
    nothing = run_experiment(result.spec.replace(initializer="normal", sigma_w=0.0)).linear_outputs[0]
    outputs = tuple(
        replace(record, statistics=nothing.statistics, status=nothing.status) if record.layer in names else record
        for record in result.outputs
    )
    return replace(result, outputs=outputs)


def test_a_gradient_that_is_cut_off_is_not_called_steady():
    result = run_experiment(ExperimentSpec().replace(layer_sizes="8x9-1", use_shortcut=True))
    assert diagnose(result).verdict is not Verdict.VANISHING
    found = diagnose(zeroed(result, range(3)))
    assert found.verdict is Verdict.NOT_MEASURABLE
    assert "3 nearest the input get exactly zero" in found.sentence
    assert "the one nearest the input gets exactly zero" in diagnose(zeroed(result, range(1))).sentence


def test_one_layer_without_a_reading_is_left_out_and_mentioned():
    result = run_experiment(ExperimentSpec().replace(layer_sizes="8x9-1", use_shortcut=True))
    found = diagnose(zeroed(result, [3]))
    assert "layers.3.0" not in found.fitted_layers
    assert len(found.fitted_layers) == len(diagnose(result).fitted_layers) - 1
    assert "1 more" in found.sentence


def test_a_gradient_that_is_zero_everywhere_has_no_trend():
    assert verdict_of(initializer="normal", sigma_w=0).verdict is Verdict.NOT_MEASURABLE


def test_the_cut_offs_can_be_changed():
    result = run_experiment(PRESETS["reference"].spec)
    found = diagnose(result, CutOffs(vanishing=0.001))
    assert found.verdict is Verdict.WEAKENING
    assert found.crossed == ("weakening", 0.5)
