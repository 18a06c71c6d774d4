"""What went forward: measured in the run itself, which it does not change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from specs import SIZES, experiment_specs, network_specs
from truth import METHODS, everything_on

from gradlab import ExperimentSpec, build_network, run_experiment
from gradlab.activity import SATURATED_OUTSIDE, ForwardActivity, derivative
from gradlab.batches import loss_function, sample_input, target
from gradlab.networks import ACTIVATIONS
from gradlab.spec import Activation, Normalization


def measured(**changes):
    return run_experiment(ExperimentSpec().replace(**changes))


def forward_by_hand(spec):
    """For each layer what went into its linear map, what came out, and what went into its activation."""
    network, x = build_network(spec), sample_input(spec)
    seen = []
    with torch.no_grad():
        for index, layer in enumerate(network.layers):
            h = network.layer_norms[index](x) if spec.network.normalization is Normalization.LAYER_NORM_BEFORE else x
            linear = layer[0](h)
            before = layer[1](linear) if spec.network.normalization is Normalization.BATCH_NORM else linear
            activated = spec.network.activate_last or index < spec.network.depth - 1
            out = ACTIVATIONS[spec.network.activation].build()(before) if activated else before
            seen.append((h, linear, before if activated else None))
            x = x + out if spec.network.use_shortcut and x.shape == out.shape else out
            if spec.network.normalization is Normalization.LAYER_NORM_AFTER:
                x = network.layer_norms[index](x)
    return seen


SMALL = SIZES.map(lambda sizes: sizes[:9])


@given(experiment_specs(network_specs(sizes=SMALL)))
@settings(max_examples=40, deadline=None)
def test_any_experiment_says_what_went_forward_as_a_forward_written_out(spec):
    spec = spec.replace(gain=1.0, sigma_w=1.0, sigma_b=0.1)
    layers = run_experiment(spec).layers
    assert [activity.layer for activity in layers] == [f"layers.{index}" for index in range(spec.network.depth)]
    for activity, (h, z, before) in zip(layers, forward_by_hand(spec), strict=True):
        assert activity.input_norm == pytest.approx(h.double().norm().item(), rel=1e-5)
        assert activity.output_rms == pytest.approx(z.double().square().mean().sqrt().item(), rel=1e-5)
        if before is None or spec.network.activation is Activation.IDENTITY:
            assert activity.dead_fraction is activity.active_fraction is activity.rarely_active_fraction is None
        if before is None or spec.network.activation not in SATURATED_OUTSIDE:
            assert activity.saturated_fraction is None
        if before is not None and spec.network.activation is Activation.RELU:
            silent = before <= 0
            assert activity.dead_fraction == pytest.approx(silent.all(dim=0).double().mean().item())
            assert activity.active_fraction == pytest.approx(1 - silent.double().mean().item())


@given(experiment_specs(network_specs(sizes=SMALL)))
@settings(max_examples=40, deadline=None)
def test_with_one_sample_a_weights_gradient_is_as_long_as_its_two_factors_together(spec):
    """‖∂L/∂W‖ = ‖δ‖·‖h‖: with one sample the gradient of a weight is the product of a column and a row."""
    if spec.network.normalization is Normalization.BATCH_NORM:
        spec = spec.replace(normalization="no_norm")
    result = run_experiment(spec.replace(batch_size=1, gain=1.0, sigma_w=1.0, sigma_b=0.1))
    for activity, delta, weight in zip(result.layers, result.linear_outputs, result.linear_weights, strict=True):
        product = delta.statistics.norm * activity.input_norm
        assert weight.statistics.norm == pytest.approx(product, rel=1e-4, abs=1e-30)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("normalization", Normalization)
def test_looking_on_changes_no_bit_of_output_loss_or_gradient(method, normalization):
    spec = ExperimentSpec().replace(
        layer_sizes="5-8-8-8-3", normalization=normalization, capture_method=method, use_shortcut=True,
        sample_input="standard_normal", batch_size=4,
    )  # fmt: skip
    network = build_network(spec)
    output = network(sample_input(spec))
    loss = loss_function(spec)(output, target(spec))
    loss.backward()
    result = run_experiment(spec, keep_gradients=True)
    assert result.output == tuple(map(tuple, output.tolist()))
    assert result.loss == loss.item()
    for (name, parameter), record in zip(network.named_parameters(), result.parameters, strict=True):
        assert record.parameter == name
        assert torch.equal(record.gradient, parameter.grad)
    without = {"tensor_hooks": run_experiment(spec.replace(capture_method="tensor_hooks")).layers}
    assert result.layers == without["tensor_hooks"]


def test_nothing_stays_on_the_network_also_after_an_error():
    spec = ExperimentSpec()
    network = build_network(spec)
    before = everything_on(network)
    with ForwardActivity(network, spec.network) as activity:
        network(sample_input(spec))
        assert len(activity.layers()) == 5
    assert everything_on(network) == before
    assert activity.layers() == ()
    with pytest.raises(RuntimeError), ForwardActivity(network, spec.network):
        network(torch.zeros(1, 17))
    assert everything_on(network) == before


FLAT = {
    Activation.RELU: ([-1.0, 0.0], [1e-30, 2.0]),
    Activation.LEAKY_RELU: ([], [-5.0, 0.0, 5.0]),
    Activation.TANH: ([-30.0, 30.0], [-5.0, 0.0, 5.0]),
    Activation.SIGMOID: ([200.0, -200.0], [-20.0, 0.0, 10.0]),
    Activation.ELU: ([-200.0], [-5.0, 0.0, 5.0]),
    Activation.SILU: ([-200.0], [-5.0, 0.0, 5.0]),
    Activation.GELU: ([-200.0], [-3.0, 0.0, 5.0]),
    Activation.GELU_TANH: ([-200.0], [-3.0, 0.0, 5.0]),
}


@pytest.mark.parametrize("activation", FLAT)
def test_a_unit_passes_no_gradient_where_the_slope_is_exactly_zero(activation):
    flat, sloped = FLAT[activation]
    assert (derivative(activation, torch.tensor([flat])) == 0).all()
    assert (derivative(activation, torch.tensor([sloped])) != 0).all()


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=20), st.sampled_from(Activation))
def test_the_slope_is_that_of_a_small_step(points, activation):
    x = torch.tensor(points, dtype=torch.float64)
    x = torch.where(x.abs() < 1e-3, 1.0, x)  # away from the kinks
    apply = ACTIVATIONS[activation].build()
    step = (apply(x + 1e-6) - apply(x - 1e-6)) / 2e-6
    torch.testing.assert_close(derivative(activation, x), step, rtol=1e-5, atol=1e-7)


def test_rarely_active_is_less_than_one_sample_in_a_hundred():
    result = measured(
        layer_sizes="20-400-1", activation="relu", sample_input="standard_normal", batch_size=1000, initializer="normal",
        sigma_b=2.0, activate_last=False,
    )  # fmt: skip
    ((_, _, before), _) = forward_by_hand(result.spec)
    counts = (before > 0).sum(dim=0)
    assert result.layers[0].rarely_active_fraction == (counts < 10).double().mean().item()
    assert result.layers[0].rarely_active_fraction > result.layers[0].dead_fraction


@pytest.mark.parametrize(("activation", "low", "high"), [("tanh", -9.4999, 9.4999), ("sigmoid", -23.0, 16.99999)])
def test_saturated_inputs_lie_beyond_the_published_bounds(activation, low, high):
    result = measured(
        layer_sizes="50-50-50", activation=activation, initializer="normal", sigma_w=30.0, sample_input="standard_normal",
        batch_size=16,
    )  # fmt: skip
    for activity, (_, _, before) in zip(result.layers, forward_by_hand(result.spec), strict=True):
        assert activity.saturated_fraction == ((before < low) | (before > high)).double().mean().item()
        assert 0 < activity.saturated_fraction < 1


def test_what_overflowed_has_no_size():
    layers = measured(layer_sizes="4x99", gain=1e6, activation="identity").layers
    assert layers[0].output_rms is not None
    assert layers[-1].output_rms is None
    assert layers[-1].input_norm is None
