"""What theory expects, against closed forms, other quadratures, plain iteration and measurement."""

import dataclasses
import math
import re
from itertools import product

import numpy
import pytest
import torch
from torch.nn import functional

from gradlab import ExperimentSpec, NetworkSpec, SpecError, build_network, diagnose, run_experiment
from gradlab.diagnosis import per_layer_factor
from gradlab.spec import Activation, Initializer, Normalization
from gradlab.theory import (
    Basis,
    Fate,
    LayerVariances,
    critical_line,
    critical_point,
    depth_scales,
    factor_map,
    gaussian,
    layer_variances,
    limit_of,
    moments,
    predict_factor,
)

PIECEWISE = {Activation.RELU: (0.0, 1.0), Activation.LEAKY_RELU: (0.01, 1.0), Activation.IDENTITY: (1.0, 1.0)}
WIDE = {
    "layer_sizes": "256x16-10", "activate_last": False, "sample_input": "standard_normal", "batch_size": 64,
    "loss": "cross_entropy", "target": "class_labels",
}  # fmt: skip

FUNCTIONS = {
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu": functional.gelu,
    "relu": torch.relu,
    "leaky_relu": functional.leaky_relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "elu": functional.elu,
    "identity": lambda x: x.clone(),
}


BOUNDED = {Activation.TANH, Activation.SIGMOID}


def averages(activation, q):
    """E[φ], E[φ²], E[φ'²] by Gauss-Legendre quadrature on panels that shrink toward zero on both sides."""
    nodes, weights = numpy.polynomial.legendre.leggauss(24)
    edges = numpy.concatenate([[0.0], 12.0 * 2.0 ** numpy.arange(-24, 1)])
    low, width = edges[:-1, None], numpy.diff(edges)[:, None]
    z = (low + width * (nodes + 1) / 2).ravel()
    weight = torch.from_numpy((weights * width / 2).ravel() * numpy.exp(-z * z / 2) / math.sqrt(2 * math.pi)).repeat(2)
    x = (math.sqrt(q) * torch.from_numpy(numpy.concatenate([z, -z]))).requires_grad_()
    y = FUNCTIONS[activation](x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return numpy.array([float((weight * part).sum()) for part in (y.detach(), y.detach() ** 2, slope**2)])


def variances(sigma_w, sigma_b=0.0):
    return LayerVariances(sigma_w_squared=sigma_w**2, sigma_b_squared=sigma_b**2)


def experiment(**changes):
    return ExperimentSpec().replace(**(WIDE | changes))


# --- averages over Gaussians ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1e-6, 0.03, 1.0, 47.0, 1e5])
@pytest.mark.parametrize("activation", Activation)
def test_the_averages_agree_with_another_quadrature(activation, q):
    at = moments(activation, q)
    found = numpy.array([at.mean, at.square, at.slope_square])
    assert found == pytest.approx(averages(activation, q), rel=1e-10, abs=1e-12 * math.sqrt(q))


@pytest.mark.parametrize("q", [1e-12, 0.3, 1e24])
@pytest.mark.parametrize("activation", PIECEWISE)
def test_two_straight_lines_have_averages_in_closed_form(activation, q):
    below, above = PIECEWISE[activation]
    at = moments(activation, q)
    assert at.mean == pytest.approx((above - below) * math.sqrt(q / (2 * math.pi)), rel=1e-12, abs=1e-14 * math.sqrt(q))
    for part, scale in ((at.square, q), (at.slope_square, 1.0), (at.growth, 1.0)):
        assert part == pytest.approx(scale * (below**2 + above**2) / 2, rel=1e-12)


def test_a_tanh_that_saturates_passes_gradients_only_at_its_bend():
    q = 1e24  # E[tanh'²(√q·z)] -> (4/3)/√(2πq), the integral of sech⁴
    at = moments(Activation.TANH, q)
    assert at.slope_square == pytest.approx(4 / 3 / math.sqrt(2 * math.pi * q), rel=1e-9)
    assert at.square == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("activation", Activation)
def test_growth_is_how_the_mean_square_changes_with_the_variance(activation):
    q, step = 0.7, 1e-4
    below, above = (moments(activation, q + side * step).square for side in (-1, 1))
    assert moments(activation, q).growth == pytest.approx((above - below) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("switched_off", [torch.no_grad, torch.inference_mode])
def test_averages_are_the_same_where_gradients_are_switched_off(switched_off):
    expected = moments(Activation.TANH, 2.0)
    gaussian._samples.cache_clear()  # or nothing is worked out anew
    with switched_off():
        assert moments(Activation.TANH, 2.0) == expected


@pytest.mark.parametrize("activation", Activation)
def test_the_averages_reach_from_no_signal_to_the_largest(activation):
    x = torch.zeros((), dtype=torch.float64, requires_grad=True)
    y = FUNCTIONS[activation](x)
    (slope,) = torch.autograd.grad(y, x)  # of a kink that of one side, as in a network whose units are all exactly zero
    nothing, almost = moments(activation, 0.0), moments(activation, 1e-30)
    assert nothing[:3] == pytest.approx((y.item(), y.item() ** 2, slope.item() ** 2))
    assert math.isnan(nothing.growth)
    assert almost[:2] == pytest.approx(nothing[:2], rel=1e-12, abs=1e-14)
    largest, smaller = moments(activation, gaussian.LARGEST), moments(activation, gaussian.LARGEST / 100)
    for part in largest[:3]:
        assert math.isfinite(part)
    # Straight on both sides by then: what is not bounded grows as the variance does, what is bounded no more.
    assert largest.square / smaller.square == pytest.approx(1 if activation in BOUNDED else 100, rel=1e-9)


@pytest.mark.parametrize("variance", [-1e-9, 1e201, math.inf, math.nan])
def test_a_variance_out_of_range_is_refused(variance):
    with pytest.raises(ValueError, match=re.escape(f"variance = {variance}: a number from 0 to")):
        moments(Activation.TANH, variance)


# --- initialisation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(400, 400), (900, 300), (300, 900)])
@pytest.mark.parametrize("initializer", Initializer)
def test_variances_are_those_of_the_weights_and_biases_drawn(initializer, sizes):
    spec = NetworkSpec(layer_sizes=sizes, initializer=initializer, gain=1.5, sigma_w=0.8, sigma_b=0.3)
    linear = build_network(spec, seed=1).layers[0][0]
    expected = layer_variances(spec, 0)
    assert expected.sigma_w_squared == pytest.approx(sizes[0] * linear.weight.square().mean().item(), rel=0.02)
    assert expected.sigma_b_squared == pytest.approx(linear.bias.square().mean().item(), rel=0.3)
    assert layer_variances(dataclasses.replace(spec, use_bias=False), 0).sigma_b_squared == 0


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma_w", "sigma_b"), [(0.5, 0.1), (0.8, 0.0), (1.2, 0.5), (2.0, 0.0)])
@pytest.mark.parametrize("activation", Activation)
def test_a_limit_is_where_iterating_the_layers_leads(activation, sigma_w, sigma_b):
    limit = limit_of(activation, variances(sigma_w, sigma_b), 1.0)
    q = 1.0
    for _ in range(1000):
        q = min(sigma_w**2 * moments(activation, q).square + sigma_b**2, 1e40)
        if not 1e-12 < q < 1e6:
            break
    if limit.fate is Fate.DIVERGES:
        assert q > 1e3
    elif limit.fate is Fate.STAYS:
        assert q == pytest.approx(1.0)
    else:
        assert q == pytest.approx(limit.q_star, rel=1e-6, abs=2e-12)
        at = moments(activation, max(limit.q_star, 1e-18))
        assert limit.chi == pytest.approx(sigma_w**2 * at.slope_square)


@pytest.mark.parametrize("activation", PIECEWISE)
def test_two_straight_lines_settle_stay_die_out_or_diverge_as_their_mean_slope_says(activation):
    passed = sum(slope**2 for slope in PIECEWISE[activation]) / 2
    critical = 1 / math.sqrt(passed)
    settled = limit_of(activation, variances(0.9 * critical, 0.4))
    assert (settled.fate, settled.q_star) == (Fate.SETTLES, pytest.approx(0.16 / (1 - 0.81)))
    assert limit_of(activation, variances(0.9 * critical)).fate is Fate.DIES_OUT
    assert limit_of(activation, variances(1.1 * critical)).fate is Fate.DIVERGES
    assert limit_of(activation, variances(1.1 * critical)).q_star is None
    stays = limit_of(activation, variances(critical), 0.37)
    assert (stays.fate, stays.q_star, stays.chi) == (Fate.STAYS, 0.37, pytest.approx(1.0))
    assert critical_point(activation).sigma_w == pytest.approx(critical, rel=1e-12)
    assert critical_point(activation, 0.3).sigma_w == pytest.approx(critical, rel=1e-12)


@pytest.mark.parametrize("sigma_b", [0.0, 0.05, 0.6])
@pytest.mark.parametrize("activation", Activation)
def test_gradients_shrink_below_the_critical_weights_and_grow_above(activation, sigma_b):
    point = critical_point(activation, sigma_b)

    def chi(sigma_w):
        return limit_of(activation, variances(sigma_w, sigma_b), sigma_w**2 + sigma_b**2).chi

    below, above = chi(0.9999 * point.sigma_w), chi(1.0001 * point.sigma_w)
    assert below < 1 < above or (below < 1 and above == pytest.approx(1, abs=1e-6) and not point.abrupt)
    assert point.abrupt == (above - below > 0.1)


def test_only_activations_with_a_bend_upward_at_zero_jump():
    abrupt = {activation for activation in Activation if critical_point(activation).abrupt}
    assert abrupt == {Activation.GELU, Activation.GELU_TANH, Activation.SILU}


def test_a_critical_line_has_one_point_per_bias():
    line = critical_line(Activation.TANH, [0.0, 0.1, 0.3])
    assert line[0] == pytest.approx(1.0, abs=1e-9)
    assert list(line) == sorted(line)
    assert line[2] == critical_point(Activation.TANH, 0.3).sigma_w


def test_depth_scales_are_the_logarithms_of_the_factors():
    limit = limit_of(Activation.TANH, variances(0.8, 0.3))
    scales = depth_scales(Activation.TANH, variances(0.8, 0.3), limit)
    assert limit.chi < 1
    assert scales.correlation == scales.gradient == pytest.approx(-1 / math.log(limit.chi))
    assert scales.variance == pytest.approx(-1 / math.log(limit.chi_q))


def test_two_inputs_approach_their_settled_correlation_at_the_rate_of_its_depth_scale():
    """The correlation map by Gauss-Hermite over two variables (Poole et al. 2016), in the chaotic phase."""
    sigma_w, sigma_b = 2.0, 0.3
    limit = limit_of(Activation.TANH, variances(sigma_w, sigma_b))
    scale = depth_scales(Activation.TANH, variances(sigma_w, sigma_b), limit).correlation
    nodes, weights = numpy.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    root = math.sqrt(limit.q_star)

    def mapped(c):
        second = c * nodes[:, None] + math.sqrt(1 - c * c) * nodes[None, :]
        handed_on = numpy.tanh(root * nodes)[:, None] * numpy.tanh(root * second)
        return (sigma_w**2 * float(weights @ handed_on @ weights) + sigma_b**2) / limit.q_star

    c = 0.5
    for _ in range(400):
        c = mapped(c)
    assert limit.chi > 1
    assert 0.01 < c < 0.99
    rate = (mapped(c + 1e-4) - mapped(c - 1e-4)) / 2e-4
    assert scale == pytest.approx(-1 / math.log(rate), rel=1e-4)


def test_at_criticality_nothing_has_a_depth_scale():
    critical = critical_point(Activation.TANH, 0.3).sigma_w
    limit = limit_of(Activation.TANH, variances(critical, 0.3))
    scales = depth_scales(Activation.TANH, variances(critical, 0.3), limit)
    assert math.isinf(scales.correlation)
    assert math.isinf(scales.gradient)
    assert 0 < scales.variance < 10


# --- predictions beside measurements ----------------------------------------------------------------------------------


@pytest.mark.parametrize("initializer", ["pytorch_default", "xavier", "orthogonal"])
@pytest.mark.parametrize("activation", Activation)
def test_the_predicted_factor_is_what_the_lab_measures(activation, initializer):
    spec = experiment(activation=activation, initializer=initializer)
    prediction = predict_factor(spec)
    assert (prediction.basis, prediction.applies) == (Basis.MEAN_FIELD, True)
    assert diagnose(run_experiment(spec)).factor == pytest.approx(prediction.factor, rel=0.03)
    assert len(prediction.factors) == len(diagnose(run_experiment(spec)).fitted_layers) - 1


@pytest.mark.parametrize("initializer", ["pytorch_default", "he"])
@pytest.mark.parametrize("activation", Activation)
def test_with_shortcuts_the_measured_factor_lies_between_the_two_estimates(activation, initializer):
    spec = experiment(activation=activation, initializer=initializer, use_shortcut=True)
    prediction = predict_factor(spec)
    assert prediction.basis is Basis.SHORTCUTS
    measured = diagnose(run_experiment(spec)).factor
    assert 0.98 * prediction.factor < measured < 1.02 * prediction.factor_at_most


@pytest.mark.parametrize("normalization", [each for each in Normalization if each is not Normalization.NO_NORM])
@pytest.mark.parametrize("activation", Activation)
def test_with_normalisation_the_measured_factor_is_the_estimate_or_slightly_above(activation, normalization):
    spec = experiment(activation=activation, normalization=normalization, batch_size=256)
    prediction = predict_factor(spec)
    assert prediction.basis is Basis.NORMALIZATION
    assert 0.995 < diagnose(run_experiment(spec)).factor / prediction.factor < 1.03


def test_a_variance_that_has_not_settled_gives_every_layer_its_own_factor():
    prediction = predict_factor(NetworkSpec.of_width(256, 20, activation="tanh", initializer="normal"))
    assert list(prediction.factors) == sorted(prediction.factors)
    assert prediction.factors[0] < 0.8 < prediction.factor < 0.96 < prediction.factors[-1] < 0.99
    assert prediction.limit_factor == pytest.approx(1.0)
    assert any("not settled" in caveat for caveat in prediction.caveats)


def test_the_input_of_the_experiment_is_the_start_of_the_prediction():
    spec = experiment(activation="tanh", initializer="normal", sigma_w=1.2)
    fixed = spec.replace(sample_input="fixed_sample")
    assert predict_factor(fixed).factors[0] > predict_factor(spec).factors[0]  # mean square 2/3 against about 1
    q = 1.44 * 171 / 256  # 171 of 256 entries are 1 or −1
    assert predict_factor(fixed).factors[0] == pytest.approx(1.2 * math.sqrt(averages("tanh", q)[2]), rel=1e-6)


def test_the_predicted_factor_is_fitted_as_the_measured_one_is():
    prediction = predict_factor(experiment(activation="elu", initializer="he"))
    readings = [1.0]
    for factor in reversed(prediction.factors):
        readings.insert(0, readings[0] * factor)
    assert prediction.factor == pytest.approx(per_layer_factor(range(len(readings)), readings), rel=1e-10)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"layer_sizes": "3-3-3-3-3-1"}, "wide"),
        ({"layer_sizes": "64-64-32-32-32-1"}, "different widths"),
        ({"layer_sizes": "64-64-64-1"}, "3 hidden layers"),
        ({"layer_sizes": "64-1"}, "3 hidden layers"),
        ({"layer_sizes": "64-64-1", "normalization": "batch_norm"}, "3 hidden layers"),
        ({"normalization": "batch_norm", "batch_size": 4}, "noisy"),
        ({"normalization": "layer_norm_before", "use_shortcut": True}, "together"),
        ({"normalization": "batch_norm", "gain": 1e-4}, "ε"),
        ({"normalization": "layer_norm_after", "gain": 1e-4}, "ε"),
        ({"gain": 0.0}, "weights are zero"),
        ({"gain": 0.0, "use_shortcut": True, "activation": "relu", "use_bias": False}, "slope is zero"),
        ({"sample_input": "zeros", "use_bias": False, "activation": "relu"}, "slope is zero"),
        ({"activation": "relu", "gain": 1e6}, "too large for float32"),
    ],
)
def test_where_theory_has_no_number_it_says_why(changes, word):
    prediction = predict_factor(experiment(**changes))
    assert not prediction.applies
    assert prediction.factor is None
    assert prediction.basis is Basis.NO_PREDICTION
    assert any(word in reason for reason in prediction.why_not), prediction.why_not
    assert word in prediction.sentence


def test_a_narrow_network_still_has_the_limit_of_wide_ones():
    prediction = predict_factor(ExperimentSpec())
    assert prediction.factor is None
    assert prediction.q_star > 0
    assert prediction.limit_factor == math.sqrt(prediction.chi)


def test_a_prediction_without_obstacles_has_no_reasons_against_it():
    prediction = predict_factor(NetworkSpec.of_width(64, 20, activation="relu"))
    assert (prediction.why_not, prediction.fate) == ((), Fate.SETTLES)
    assert prediction.critical_sigma_w == pytest.approx(math.sqrt(2))
    assert prediction.sentence == "Mean-field theory expects 0.408 per layer toward the input."


def test_caveats_name_a_zero_target_a_narrow_network_and_a_jump():
    assert predict_factor(experiment(activation="relu")).caveats == ()
    zero = predict_factor(experiment(activation="relu", loss="mse", target="zeros")).caveats
    assert any("zero target" in caveat for caveat in zero)
    narrow = predict_factor(experiment(activation="relu", layer_sizes="32x20-10")).caveats
    assert any("32 units" in caveat for caveat in narrow)
    jump = predict_factor(experiment(activation="gelu", initializer="he")).caveats
    assert any("jump" in caveat for caveat in jump)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_scale_of_weights_gives_a_finite_number_or_a_reason(dtype):
    for activation, gain, shortcut in product(Activation, (1e-6, -1e3, 1e6), (False, True)):
        prediction = predict_factor(
            NetworkSpec.of_width(32, 60, activation=activation, gain=gain, use_shortcut=shortcut, dtype=dtype)
        )
        assert bool(prediction.why_not) != prediction.applies
        assert not prediction.applies or (math.isfinite(prediction.factor) and prediction.factor > 0)


# --- maps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [Activation.TANH, Activation.GELU])
def test_a_map_holds_the_prediction_of_every_network_on_it(activation):
    found = factor_map(activation, [0.5, 1.0, 2.0], [4, 12, 30], sigma_b=0.2)
    assert len(found.factors) == 3
    for depth, row in zip(found.depths, found.factors, strict=True):
        for sigma_w, factor in zip(found.sigma_w, row, strict=True):
            network = NetworkSpec.of_width(
                64, depth, activation=activation, initializer="normal", sigma_w=sigma_w, sigma_b=0.2, activate_last=False
            )
            assert factor == pytest.approx(predict_factor(network).factor, rel=1e-10)
    assert found.critical == critical_point(activation, 0.2)


@pytest.mark.parametrize(
    ("sigma_w", "depths", "options"),
    [
        ([0.0], [10], {}),
        ([math.nan], [10], {}),
        ([1.0], [3], {}),
        ([1.0], [201], {}),
        ([1.0], [10], {"sigma_b": -1.0}),
        ([1.0], [10], {"mean_square": math.inf}),
    ],
)
def test_a_map_refuses_what_no_network_can_have(sigma_w, depths, options):
    with pytest.raises(SpecError):
        factor_map(Activation.TANH, sigma_w, depths, **options)
