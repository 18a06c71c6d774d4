"""The factor per layer of published initialisations and architectures, measured by the lab."""

import math

import pytest
import torch
from measuring import measured_factor, spec_of

from gradlab import build_network, diagnose, run_experiment
from gradlab.batches import sample_input
from gradlab.theory import predict_factor


@pytest.mark.parametrize("sigma_w_squared", [1 / 3, 2.0, 8.0])
def test_without_biases_relu_layers_share_one_product_of_weight_and_gradient(sigma_w_squared):
    """⟨W, ∂L/∂W⟩ is the same in every layer (Du, Hu & Lee 2018), at every scale of the weights."""
    spec = spec_of(
        layer_sizes="512x12-10", activation="relu", initializer="normal", sigma_w=math.sqrt(sigma_w_squared), use_bias=False,
        batch_size=1, loss="output_sum",
    )  # fmt: skip
    weights = dict(build_network(spec).named_parameters())
    result = run_experiment(spec, keep_gradients=True)
    products = [(weights[r.parameter].double() * r.gradient.double()).sum().item() for r in result.parameters]
    assert len(products) == 12
    assert products == pytest.approx([products[0]] * 12, rel=1e-4)


@pytest.mark.parametrize(("sigma_w_squared", "expected"), [(1 / 3, 0.408), (2.0, 1.00), (8.0, 2.00)])
def test_weight_gradients_hold_where_output_gradients_shrink_hold_or_double(sigma_w_squared, expected):
    """From the same identity: the norms of the weight gradients are alike in all layers, whatever the outputs' do."""
    network = {
        "layer_sizes": "512x12-10", "activation": "relu", "initializer": "normal", "sigma_w": math.sqrt(sigma_w_squared),
        "use_bias": False, "batch_size": 1, "loss": "output_sum",
    }  # fmt: skip
    assert measured_factor(seeds=6, **network) == pytest.approx(expected, rel=0.02)
    assert measured_factor(seeds=6, gradient="weights", **network) == pytest.approx(1.0, rel=0.02)


DEFAULT = {  # χ₁ = φ'(0)²/3 for smooth activations, mean slope²/3 for bent ones (Schoenholz et al. 2017 with σ_w² = 1/3)
    "relu": 1 / 6,
    "leaky_relu": (1 + 0.01**2) / 6,
    "tanh": 1 / 3,
    "identity": 1 / 3,
    "gelu": 1 / 12,
    "silu": 1 / 12,
    "sigmoid": 1 / 48,
}


@pytest.mark.parametrize("activation", DEFAULT)
def test_pytorchs_default_initialisation_shrinks_gradients(activation):
    factor = measured_factor(layer_sizes="512x12-10", activation=activation)
    assert factor == pytest.approx(math.sqrt(DEFAULT[activation]), rel=0.03)


def test_he_initialisation_holds_gradients_through_relu_and_xavier_loses_the_root_of_two():
    """He, Zhang, Ren & Sun 2015, section 2.2."""
    relu = {"layer_sizes": "512x20-10", "activation": "relu"}
    assert measured_factor(initializer="he", **relu) == pytest.approx(1.0, rel=0.02)
    assert measured_factor(initializer="xavier", **relu) == pytest.approx(1 / math.sqrt(2), rel=0.02)


def test_on_the_critical_line_of_tanh_gradients_hold():
    """σ_w² = 1.76, σ_b² = 0.05: the example of Poole et al. 2016 and Pennington et al. 2017."""
    factor = measured_factor(
        layer_sizes="512x20-10", activation="tanh", initializer="normal", sigma_w=math.sqrt(1.761), sigma_b=math.sqrt(0.05)
    )
    assert factor == pytest.approx(0.99, abs=0.01)


def test_tanh_with_weights_of_scale_one_is_critical_only_in_the_limit():
    """Schoenholz et al. 2017: at σ_w = 1, σ_b = 0 the variance falls like 1/depth, and χ₁ rises to 1 as slowly."""
    spec = spec_of(layer_sizes="512x20-10", activation="tanh", initializer="normal", sigma_w=1.0)
    assert measured_factor(layer_sizes="512x20-10", activation="tanh", initializer="normal") == pytest.approx(0.93, abs=0.02)
    assert predict_factor(spec).factor == pytest.approx(0.93, abs=0.02)
    assert predict_factor(spec).limit_factor == pytest.approx(1.0)


def test_the_customary_gain_of_tanh_makes_gradients_grow():
    """Gain 5/3, as torch.nn.init.calculate_gain has it: activations keep a standard deviation of 0.65."""
    changes = {"layer_sizes": "512x20-10", "activation": "tanh", "initializer": "xavier", "gain": 5 / 3}
    assert measured_factor(**changes) == pytest.approx(1.100, rel=0.02)
    spec = spec_of(**changes)
    with torch.no_grad():
        hidden = torch.nn.Sequential(*build_network(spec).layers[:19])(sample_input(spec))
    assert hidden.std().item() == pytest.approx(0.6513, abs=0.01)


@pytest.mark.parametrize("batch_size", [256, 512])
def test_batch_norm_with_relu_makes_gradients_grow(batch_size):
    """√(π/(π − 1)) per layer, the limit of large batches (Yang, Pennington, Rao, Sohl-Dickstein & Schoenholz 2019)."""
    changes = {"layer_sizes": "512x10-10", "activation": "relu", "normalization": "batch_norm", "batch_size": batch_size}
    expected = math.sqrt(math.pi / (math.pi - 1))
    assert measured_factor(seeds=2, **changes) == pytest.approx(expected, rel=0.01)
    assert predict_factor(spec_of(**changes)).factor == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("initializer", "naive"), [("pytorch_default", math.sqrt(1 + 1 / 6)), ("he", math.sqrt(2))])
def test_residual_layers_make_gradients_grow_somewhat_more_than_independence_has_it(initializer, naive):
    """√(1 + χ₁) per layer (Yang & Schoenholz 2017)."""
    changes = {"layer_sizes": "512x20-10", "activation": "relu", "initializer": initializer, "use_shortcut": True}
    factor = measured_factor(**changes)
    assert naive <= factor <= 1.08 * naive
    assert predict_factor(spec_of(**changes)).factor == pytest.approx(naive, rel=1e-3)


def test_half_precision_loses_the_gradients_of_the_first_layers_and_loss_scaling_keeps_them():
    """Micikevicius et al. 2018: gradients below 2⁻²⁴ become zero in float16; a scaled loss moves them up."""
    spec = spec_of(layer_sizes="256x12-10", activation="relu", loss="mse", target="zeros", batch_size=16)
    result = run_experiment(spec, keep_gradients=True)
    gradients = [record.gradient for record in result.outputs if record.module_type == "Linear"]
    assert len(gradients) == 12

    def lost(gradient, loss_scale):
        nonzero = gradient[gradient != 0]
        return ((nonzero * loss_scale).half() == 0).double().mean().item()

    shares = [lost(gradient, 1) for gradient in gradients]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert shares[-1] == 0
    assert [lost(gradient, 65536) for gradient in gradients] == [0] * 12
    assert all((gradient * 65536).half().isfinite().all() for gradient in gradients)


def test_in_a_narrow_network_chance_decides_how_much_is_left():
    """Hanin 2018: what is left after L layers scatters with the sum of 1/width; 50 layers of 64 differ from seed to seed."""
    narrow = {"layer_sizes": "64x50-10", "activation": "relu", "initializer": "he"}
    left = [diagnose(run_experiment(spec_of(seed=seed, **narrow))).attenuation for seed in range(8)]
    assert max(left) > 2 * min(left)
