"""The lab's networks: PyTorch's own weights, forwards as a textbook writes them, and no trace in global random state."""

import math
import random
from itertools import pairwise

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

from gradlab import ExperimentSpec, NetworkSpec, build_network
from gradlab.spec import Activation, Initializer, Normalization, SampleInput, Target

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
FORMULAS = {  # written out, not the modules again
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3))),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "relu": lambda x: x * (x > 0),
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "tanh": lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "elu": lambda x: torch.where(x > 0, x, torch.exp(x) - 1),
    "identity": lambda x: x,
}


def weights(network):
    return [parameter for name, parameter in network.named_parameters() if name.endswith("0.weight")]


def normalized(x, over):
    return (x - x.mean(over, keepdim=True)) / torch.sqrt(x.var(over, unbiased=False, keepdim=True) + 1e-5)


def written_out(spec, network, x):
    """The forward as the specification says it, from the network's own weights and plain formulas."""
    for index in range(spec.depth):
        linear = network.layers[index][0]
        h = normalized(x, 1) if spec.normalization == "layer_norm_before" else x
        h = h @ linear.weight.T + (0 if linear.bias is None else linear.bias)
        if spec.normalization == "batch_norm":
            h = normalized(h, 0)
        if spec.activate_last or index < spec.depth - 1:
            h = FORMULAS[spec.activation](h)
        x = x + h if spec.use_shortcut and spec.layer_sizes[index] == spec.layer_sizes[index + 1] else h
        if spec.normalization == "layer_norm_after":
            x = normalized(x, 1)
    return x


def double_input(size, rows=4):
    return torch.linspace(-2, 2, rows * size, dtype=torch.float64).reshape(rows, size).sin()


@pytest.mark.parametrize("seed", [0, 1, 123, 2**31, 2**32 - 1])
@pytest.mark.parametrize("sizes", [(3, 3, 3, 3, 3, 1), (1, 1), (1, 5, 1), (2, 15, 16, 17, 3), (256, 64, 10), (4096, 3)])
def test_default_weights_are_what_torch_draws_after_manual_seed(sizes, seed):
    network = build_network(NetworkSpec(layer_sizes=sizes), seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        drawn = [nn.Linear(size, after) for size, after in pairwise(sizes)]
    for layer, linear in zip(network.layers, drawn, strict=True):
        assert torch.equal(layer[0].weight, linear.weight)
        assert torch.equal(layer[0].bias, linear.bias)


def test_default_weights_without_bias_are_what_torch_draws_without_bias():
    network = build_network(NetworkSpec(layer_sizes=(5, 7, 2), use_bias=False), 3)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        drawn = [nn.Linear(5, 7, bias=False), nn.Linear(7, 2, bias=False)]
    assert [name for name, _ in network.named_parameters() if "bias" in name] == []
    assert all(torch.equal(ours, linear.weight) for ours, linear in zip(weights(network), drawn, strict=True))


@pytest.mark.parametrize("initializer", Initializer)
def test_a_double_network_has_the_single_precision_weights_widened(initializer):
    options = {"layer_sizes": (6, 9, 2), "initializer": initializer, "sigma_b": 0.3, "gain": 1.7}
    single = build_network(NetworkSpec(**options), 5)
    double = build_network(NetworkSpec(**options, dtype="float64"), 5)
    for name, parameter in double.named_parameters():
        assert parameter.dtype is torch.float64
        assert torch.equal(parameter, single.get_parameter(name).double())


@pytest.mark.parametrize(
    ("initializer", "options", "variance"),
    [
        ("pytorch_default", {}, 1 / (3 * 400)),
        ("xavier", {}, 2 / (400 + 300)),
        ("he", {}, 2 / 400),
        ("orthogonal", {}, 1 / 400),
        ("normal", {}, 1 / 400),
        ("normal", {"sigma_w": 1.5}, 2.25 / 400),
        ("he", {"gain": 2.0}, 4 * 2 / 400),
        ("pytorch_default", {"gain": -3.0}, 9 / (3 * 400)),
        ("normal", {"sigma_w": 0.0}, 0.0),
        ("xavier", {"gain": 0.0}, 0.0),
    ],
)
def test_weights_have_the_variance_their_initialiser_promises(initializer, options, variance):
    (weight,) = weights(build_network(NetworkSpec(layer_sizes=(400, 300), initializer=initializer, **options), 11))
    # 120,000 draws: the variance of a normal sample deviates by √(2/n) = 0.4 %, five of them is 2 %.
    assert weight.var().item() == pytest.approx(variance, rel=0.02)
    assert weight.mean().item() == pytest.approx(0, abs=5 * math.sqrt(variance / weight.numel()) + 1e-12)


@pytest.mark.parametrize(
    ("initializer", "options", "variance"),
    [
        ("pytorch_default", {"gain": 5.0}, 1 / (3 * 4)),
        ("xavier", {}, 0.0),
        ("he", {}, 0.0),
        ("orthogonal", {}, 0.0),
        ("normal", {}, 0.0),
        ("normal", {"sigma_b": 0.5}, 0.25),
    ],
)
def test_biases_have_the_variance_their_initialiser_promises(initializer, options, variance):
    network = build_network(NetworkSpec(layer_sizes=(4, 4096), initializer=initializer, **options), 12)
    assert network.layers[0][0].bias.var().item() == pytest.approx(variance, rel=0.12)


@pytest.mark.parametrize("sizes", [(20, 20), (20, 50), (50, 20), (1, 7)])
def test_orthogonal_weights_have_equal_singular_values(sizes):
    (weight,) = weights(build_network(NetworkSpec(layer_sizes=sizes, initializer="orthogonal", gain=1.5), 2))
    singular = torch.linalg.svdvals(weight.detach().double())
    assert torch.allclose(singular, torch.full_like(singular, 1.5), rtol=1e-5)


@pytest.mark.parametrize("initializer", ["pytorch_default", "xavier"])
def test_uniform_weights_stay_within_their_bound(initializer):
    (weight,) = weights(build_network(NetworkSpec(layer_sizes=(100, 200), initializer=initializer), 4))
    bound = 1 / math.sqrt(100) if initializer == "pytorch_default" else math.sqrt(6 / 300)
    assert 0.99 * bound < weight.abs().max() <= bound


@pytest.mark.parametrize("gain", [0.5, -2.0, 1e6])
def test_the_gain_multiplies_weights_and_leaves_biases(gain):
    plain, scaled = (build_network(NetworkSpec(layer_sizes=(3, 4, 2), gain=g), 8) for g in (1.0, gain))
    for name, parameter in scaled.named_parameters():
        expected = plain.get_parameter(name) * (gain if name.endswith("weight") else 1)
        assert torch.allclose(parameter, expected, rtol=1e-7)


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("activate_last", [True, False])
def test_an_activation_is_the_function_of_its_name(activation, activate_last):
    spec = NetworkSpec(layer_sizes=(5, 4, 3), activation=activation, activate_last=activate_last, dtype="float64")
    network, x = build_network(spec, 1), double_input(5)
    assert torch.allclose(network(x), written_out(spec, network, x), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("normalization", Normalization)
@pytest.mark.parametrize("use_shortcut", [True, False])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("sizes", [(4, 4, 4), (5, 4, 4, 3, 3, 1), (6, 2)])
def test_normalisation_and_shortcuts_stand_where_the_specification_says(normalization, use_shortcut, use_bias, sizes):
    spec = NetworkSpec(
        layer_sizes=sizes, normalization=normalization, use_shortcut=use_shortcut, use_bias=use_bias, activation="tanh",
        dtype="float64",
    )  # fmt: skip
    network, x = build_network(spec, 6), double_input(sizes[0], rows=7)
    assert torch.allclose(network(x), written_out(spec, network, x), rtol=1e-9, atol=1e-12)


def test_the_gradient_of_a_shortcut_network_is_that_of_the_formula():
    spec = NetworkSpec(layer_sizes=(4, 4, 4, 4, 1), use_shortcut=True, activation="gelu", dtype="float64")
    network, x = build_network(spec, 9), double_input(4)
    found, expected = (
        torch.autograd.grad(output.square().sum(), list(network.parameters()))
        for output in (network(x), written_out(spec, network, x))
    )
    assert all(torch.allclose(f, e, rtol=1e-9, atol=1e-12) for f, e in zip(found, expected, strict=True))


def test_one_seed_gives_the_same_weights_with_and_without_shortcuts():
    plain, shortcut = (build_network(NetworkSpec(use_shortcut=flag), 123) for flag in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), shortcut.parameters(), strict=True))


def test_two_seeds_give_different_weights_in_every_layer():
    one, other = (build_network(NetworkSpec(), seed) for seed in (0, 1))
    assert not any(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_an_experiment_brings_its_own_seed():
    spec = ExperimentSpec(seed=77)
    ours, wanted, other = build_network(spec), build_network(spec.network, 77), build_network(spec, 78)
    assert torch.equal(ours.layers[0][0].weight, wanted.layers[0][0].weight)
    assert not torch.equal(ours.layers[0][0].weight, other.layers[0][0].weight)


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("normalization", Normalization)
def test_nothing_works_in_place(activation, normalization):
    spec = NetworkSpec(layer_sizes=(3, 3, 3, 1), activation=activation, normalization=normalization, use_shortcut=True)
    network, x = build_network(spec, 0), torch.ones(2, 3)
    returned = []
    for module in network.modules():
        module.register_forward_hook(lambda module, inputs, output: returned.append((output, output.detach().clone())))
    network(x).sum().backward()
    assert x._version == 0
    assert all(output._version == 0 and torch.equal(output, value) for output, value in returned)
    assert not any(getattr(module, "inplace", False) for module in network.modules())


@pytest.mark.parametrize("initializer", Initializer)
@pytest.mark.parametrize("normalization", Normalization)
def test_building_and_running_leaves_global_random_state_alone(initializer, normalization):
    spec = ExperimentSpec.from_dict({
        "initializer": initializer, "normalization": normalization, "batch_size": 2, "sigma_b": 1.0,
        "sample_input": SampleInput.STANDARD_NORMAL, "target": Target.STANDARD_NORMAL,
    })  # fmt: skip
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()
    network = build_network(spec)
    network(torch.ones(2, 3)).sum().backward()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert numpy.array_equal(before[2], numpy.random.get_state()[1])


def test_the_weights_do_not_depend_on_global_random_state():
    networks = []
    with torch.random.fork_rng():
        for seed in (1, 2):
            torch.manual_seed(seed)
            networks.append(build_network(NetworkSpec(initializer="orthogonal"), 5))
    assert all(torch.equal(a, b) for a, b in zip(*(n.parameters() for n in networks), strict=True))


@pytest.mark.parametrize(("dtype", "kind"), [("float32", torch.float32), ("float64", torch.float64)])
def test_every_parameter_and_buffer_has_the_dtype_asked_for(dtype, kind):
    network = build_network(NetworkSpec(dtype=dtype, normalization="batch_norm"), 0)
    assert {p.dtype for p in network.parameters()} == {kind}
    assert {b.dtype for b in network.buffers() if b.is_floating_point()} == {kind}


def test_a_network_is_as_deep_as_the_lab_allows():
    network = build_network(NetworkSpec.of_width(1, 200, activation="identity"), 0)
    assert len(network.layers) == 200
    product = math.prod(weight.item() for weight in weights(network))
    x = torch.ones(1, 1, requires_grad=True)
    (slope,) = torch.autograd.grad(network(x).sum(), x)
    assert slope.item() == pytest.approx(product, rel=1e-4)


def test_a_network_is_an_ordinary_module():
    network = build_network(NetworkSpec(layer_sizes=(3, 4, 1)), 0)
    copy = build_network(NetworkSpec(layer_sizes=(3, 4, 1)), 1)
    copy.load_state_dict(network.state_dict())
    x = torch.ones(2, 3)
    assert torch.equal(network(x), copy(x))
    assert torch.equal(network(x), network.layers[1](network.layers[0](x)))
    assert functional.mse_loss(network(x), torch.zeros(2, 1)).isfinite()
