"""The verdicts that must come out for named networks, whatever the loss is multiplied by."""

import pytest
from measuring import spec_of

from gradlab import Verdict, build_network, capture_gradients, diagnose, run_experiment
from gradlab.batches import loss_function, sample_input, target
from gradlab.experiment import with_loss_times
from gradlab.presets import PRESETS

WIDE_RELU = {"layer_sizes": "512x50-10", "activation": "relu", "initializer": "he"}
NAMED = {
    "reference, plain": (PRESETS["reference"].spec, {Verdict.VANISHING}),
    "reference, shortcuts": (PRESETS["reference_shortcut"].spec, {Verdict.STEADY}),
    "default ReLU, 20 layers": (spec_of(layer_sizes="64x20-10", activation="relu"), {Verdict.VANISHING}),
    "He ReLU, 50 wide layers, labels": (spec_of(**WIDE_RELU), {Verdict.STEADY}),
    "He ReLU, 50 wide layers, output sum": (spec_of(**WIDE_RELU, loss="output_sum"), {Verdict.STEADY}),
    "twice He, 20 layers": (
        spec_of(layer_sizes="64x20-10", activation="relu", initializer="he", gain=2.0),
        {Verdict.EXPLODING},
    ),
    "default sigmoid, 10 layers": (spec_of(layer_sizes="64x10-10", activation="sigmoid"), {Verdict.VANISHING}),
    "residual default ReLU, 20 layers": (
        spec_of(layer_sizes="64x20-10", activation="relu", use_shortcut=True),
        set(Verdict) - {Verdict.VANISHING, Verdict.WEAKENING, Verdict.TOO_SHALLOW, Verdict.NOT_MEASURABLE},
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_network_has_its_verdict_at_every_scale_of_the_loss(name):
    spec, allowed = NAMED[name]
    result = run_experiment(spec)
    found = diagnose(result)
    assert found.verdict in allowed
    for factor in (1e-6, 1e-4, 1e4):
        scaled = diagnose(with_loss_times(result, factor))
        assert (scaled.verdict, scaled.severe) == (found.verdict, found.severe)
        assert scaled.factor == pytest.approx(found.factor, rel=1e-5)


@pytest.mark.parametrize("factor", [1e-6, 1e-4, 1e4])
def test_the_reference_trail_keeps_its_shape_when_the_loss_itself_is_multiplied(factor):
    spec = PRESETS["reference"].spec
    network = build_network(spec)
    with capture_gradients(network) as capture:
        (factor * loss_function(spec)(network(sample_input(spec)), target(spec))).backward()
    for scaled, record in zip(capture.passes[-1].outputs, run_experiment(spec).outputs, strict=True):
        assert scaled.statistics.rms == pytest.approx(factor * record.statistics.rms, rel=1e-5)


def test_the_reference_network_loses_its_signal_and_shortcuts_keep_it():
    plain, shortcut = (diagnose(run_experiment(PRESETS[name].spec)) for name in ("reference", "reference_shortcut"))
    assert (plain.factor, plain.attenuation) == (pytest.approx(0.285, abs=5e-4), pytest.approx(0.023, abs=5e-4))
    assert (shortcut.factor, shortcut.attenuation) == (pytest.approx(1.06, abs=5e-3), pytest.approx(1.18, abs=5e-3))
