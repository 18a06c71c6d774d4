"""Figures of mean-field theory, by the lab's quadrature."""

import math

import pytest
import torch

from gradlab.spec import Activation
from gradlab.theory import Fate, LayerVariances, critical_point, limit_of


def variances(sigma_w_squared, sigma_b_squared=0.0):
    return LayerVariances(sigma_w_squared=sigma_w_squared, sigma_b_squared=sigma_b_squared)


@pytest.mark.parametrize(
    ("sigma_b_squared", "sigma_w_squared", "q_star"),
    [(0.01, 1.4242, 0.2733), (0.04, 1.7008, 0.5121), (0.05, 1.7610, 0.5701), (0.09, 1.9477, 0.7635), (0.3, 2.5051, 1.461)],
)
def test_the_critical_line_of_tanh(sigma_b_squared, sigma_w_squared, q_star):
    """χ₁ = 1 (Poole et al. 2016; Schoenholz et al. 2017; Pennington et al. 2017 quote 1.76 at 0.05)."""
    critical = critical_point(Activation.TANH, math.sqrt(sigma_b_squared)).sigma_w
    limit = limit_of(Activation.TANH, variances(critical**2, sigma_b_squared))
    assert critical**2 == pytest.approx(sigma_w_squared, abs=1e-4)
    assert limit.q_star == pytest.approx(q_star, abs=1e-4 if q_star < 1 else 5e-4)  # the last is given to 3 decimals
    assert limit.chi == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(
    ("sigma_w", "q_star", "chi"),
    [
        (1.3, 0.4090, 1.0644),
        (1.5, 0.7934, 1.1393),
        (2.0, 2.1215, 1.3627),
        (2.5, 3.9610, 1.6070),
        (3.0, 6.3054, 1.8600),
    ],
)
def test_tanh_without_biases_settles_and_amplifies(sigma_w, q_star, chi):
    limit = limit_of(Activation.TANH, variances(sigma_w**2))
    assert limit.fate is Fate.SETTLES
    assert limit.q_star == pytest.approx(q_star, rel=1e-4)
    assert limit.chi == pytest.approx(chi, rel=1e-4)


def test_tanh_at_weight_scale_four_by_two_quadratures():
    """χ₁ is 2.3768 here. Gauss-Hermite rules of few nodes give figures such as 2.384: they miss the narrow bend of tanh."""
    z = torch.linspace(-12, 12, 400_001, dtype=torch.float64)
    density = torch.exp(-z * z / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    q = 16.0
    for _ in range(40):
        q = 16 * float(torch.tanh(math.sqrt(q) * z) ** 2 @ density)
    chi = 16 * float(torch.cosh(math.sqrt(q) * z) ** -4 @ density)
    limit = limit_of(Activation.TANH, variances(16.0))
    assert (limit.q_star, limit.chi) == (pytest.approx(q, rel=1e-10), pytest.approx(chi, rel=1e-10))
    assert limit.q_star == pytest.approx(12.4998, rel=1e-4)
    assert limit.chi == pytest.approx(2.3768, rel=1e-4)


def test_tanh_with_its_customary_gain():
    """Gain 5/3 on weights of variance 1/fan_in, as torch.nn.init.calculate_gain has it."""
    limit = limit_of(Activation.TANH, variances(25 / 9))
    assert limit.q_star == pytest.approx(1.1785, abs=1e-4)
    assert math.sqrt(limit.q_star) / (5 / 3) == pytest.approx(0.6513, abs=1e-4)  # of the activations
    assert limit.chi == pytest.approx(1.2098, abs=1e-4)
    assert math.sqrt(limit.chi) == pytest.approx(1.100, abs=1e-3)


@pytest.mark.parametrize("sigma_w_squared", [1 / 3, 1.0, 2.0, 8.0])
def test_relu_passes_half_of_a_gradients_mean_square(sigma_w_squared):
    """χ₁ = σ_w²/2 (He et al. 2015)."""
    assert limit_of(Activation.RELU, variances(sigma_w_squared)).chi == pytest.approx(sigma_w_squared / 2, rel=1e-12)


def test_the_critical_weights_of_leaky_relu():
    """σ_w² = 2/(1 + a²) (He et al. 2015), with the lab's a = 0.01."""
    assert critical_point(Activation.LEAKY_RELU).sigma_w ** 2 == pytest.approx(2 / (1 + 0.01**2), rel=1e-12)
