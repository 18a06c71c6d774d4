"""Singular values, fluctuations and correlations of Jacobians at initialisation."""

import math
from statistics import mean

import pytest
import torch

from gradlab import NetworkSpec, build_network


def linear_network(width, depth, initializer, seed=0):
    spec = NetworkSpec.of_width(width, depth, activation="identity", initializer=initializer, use_bias=False)
    return build_network(spec, seed)


@pytest.mark.parametrize(("initializer", "expected"), [("xavier", 8 / (3 * math.pi)), ("pytorch_default", 0.490)])
def test_the_mean_singular_value_of_a_layers_jacobian(initializer, expected):
    """Glorot & Bengio 2010 report about 0.8 for their normalised initialisation and 0.5 for the standard one.

    The value for large layers is that of the quarter-circle law (Marchenko & Pastur 1967): 8/(3π), or 1/√3 of it.
    """
    layer = linear_network(500, 1, initializer).layers[0]
    jacobian = torch.autograd.functional.jacobian(layer, torch.randn(500, generator=torch.Generator().manual_seed(0)))
    assert torch.linalg.svdvals(jacobian).mean().item() == pytest.approx(expected, abs=0.01)


def end_to_end(network):
    product = torch.eye(network.layers[0][0].in_features)
    for layer in network.layers:
        product = layer[0].weight.detach() @ product
    return product


def largest_square_over_its_limit(depth, seeds=4):
    """The largest squared singular value of 600 × 600 Gaussian layers, over its limit for wide ones; mean over seeds."""
    limit = (depth + 1) ** (depth + 1) / depth**depth
    products = (end_to_end(linear_network(600, depth, "normal", seed)) for seed in range(seeds))
    return mean(torch.linalg.matrix_norm(product, 2).item() ** 2 / limit for product in products)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_the_largest_singular_value_of_gaussian_layers_grows_with_depth(depth):
    """(L + 1)^(L + 1)/L^L for the square: 4, 6.75, 9.48, 14.9 (Pennington, Schoenholz & Ganguli 2017)."""
    assert 0.95 <= largest_square_over_its_limit(depth) <= 1.02


def test_ten_gaussian_layers_of_600_units_are_still_below_the_limit_of_wide_ones():
    """28.5 in the limit (the same source). At this width single seeds give 0.86 to 1.00 of it and their mean is 0.92."""
    assert 0.87 <= largest_square_over_its_limit(10) <= 0.97


def test_orthogonal_layers_have_all_singular_values_one_at_any_depth():
    """Dynamical isometry (Saxe, McClelland & Ganguli 2014)."""
    values = torch.linalg.svdvals(end_to_end(linear_network(200, 20, "orthogonal")))
    assert values.min().item() == pytest.approx(1, abs=1e-4)
    assert values.max().item() == pytest.approx(1, abs=1e-4)


def test_in_narrow_relu_networks_the_gradient_is_log_normal_with_the_depth_over_the_width():
    """log‖Ju‖² is about N(−β/2, β) with β = 5·Σ 1/width (Hanin 2018; Hanin & Nica 2018)."""
    draws, width, depth = 1000, 50, 50
    generator = torch.Generator().manual_seed(0)
    h, v = torch.randn(2, draws, width, 1, generator=generator)
    v = v / v.norm(dim=1, keepdim=True)
    for _ in range(depth):
        weight = torch.randn(draws, width, width, generator=generator) * math.sqrt(2 / width)
        h, v = weight @ h, weight @ v
        v, h = v * (h > 0), h.relu()
    logs = v.squeeze(-1).double().square().sum(1).log()
    beta = 5 * depth / width
    assert logs.var().item() == pytest.approx(beta, rel=0.2)
    assert logs.mean().item() == pytest.approx(-beta / 2, abs=3 * math.sqrt(beta / draws) + 0.1)  # −2.52 for −2.5 is published


@pytest.mark.parametrize(("use_shortcut", "expected"), [(False, 0.489), (True, 0.753)])
def test_the_gradients_of_two_inputs_have_half_in_common_after_one_relu_layer(use_shortcut, expected):
    """1/2 per layer in plain networks, 3/4 in residual ones (Balduzzi et al. 2017, the shattered gradients problem)."""
    common = mean(common_part(use_shortcut, seed) for seed in range(12))
    assert common == pytest.approx(expected, abs=0.03)


def common_part(use_shortcut, seed, width=512, inputs=64):
    """The mean cosine between the gradients at different inputs, of one layer with He's weights."""
    network = build_network(
        NetworkSpec.of_width(width, 1, activation="relu", initializer="he", use_shortcut=use_shortcut), seed
    )
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(inputs, width, generator=generator, requires_grad=True)
    direction = torch.randn(width, generator=generator)
    (gradient,) = torch.autograd.grad((network(x) @ direction).sum(), x)
    gradient = gradient / gradient.norm(dim=1, keepdim=True)
    return ((gradient @ gradient.T).sum().item() - inputs) / (inputs * (inputs - 1))
