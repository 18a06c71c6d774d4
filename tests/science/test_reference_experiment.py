"""The printed numbers of a book, and what has to be exact in any network."""

import pytest
import torch
from measuring import spec_of
from truth import METHODS

from gradlab import build_network, capture_gradients, run_experiment
from gradlab.batches import loss_function, sample_input, target
from gradlab.presets import PRESETS
from gradlab.spec import Activation, Initializer

# Raschka, Build a Large Language Model (From Scratch), chapter 4, the notebook's output; with GELU in its exact form:
# public re-runs of the notebook with nn.GELU().
PRINTED = {
    "reference": [2.0173588e-4, 1.2011160e-4, 7.1520399e-4, 1.3988736e-3, 5.0496454e-3],
    "reference_shortcut": [0.22169793, 0.20694107, 0.32896996, 0.26657322, 1.3258541],
}
EXACT_GELU = [2.0174125e-4, 1.2011773e-4, 7.1524380e-4, 1.3988514e-3, 5.0496035e-3]


def mean_absolute_weight_gradients(spec):
    return run_experiment(spec).weight_table()["mean_abs"].tolist()


@pytest.mark.parametrize("preset", PRINTED)
def test_the_weight_gradients_are_those_the_book_prints(preset):
    assert mean_absolute_weight_gradients(PRESETS[preset].spec) == pytest.approx(PRINTED[preset], rel=1e-5)


def test_exact_gelu_gives_what_re_runs_of_the_book_give():
    spec = PRESETS["reference"].spec.replace(activation="gelu")
    assert mean_absolute_weight_gradients(spec) == pytest.approx(EXACT_GELU, rel=1e-5)


@pytest.mark.parametrize("preset", ["reference", "reference_shortcut", "two_layer_regression", "deep_sigmoid"])
def test_three_capture_methods_give_the_same_gradients_to_the_last_bit(preset):
    runs = [run_experiment(PRESETS[preset].spec.replace(capture_method=method), keep_gradients=True) for method in METHODS]
    for first, *others in zip(*(run.outputs for run in runs), strict=True):
        assert all(torch.equal(first.gradient, other.gradient) for other in others), first.layer


@pytest.mark.parametrize("initializer", Initializer)
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("use_shortcut", [False, True])
def test_for_one_sample_a_weight_gradient_is_as_large_as_error_times_input(activation, initializer, use_shortcut):
    """∂L/∂W = δ·hᵀ has rank 1, so its Frobenius norm is ‖δ‖·‖h‖ (back-propagation: Rumelhart, Hinton & Williams 1986)."""
    spec = spec_of(
        layer_sizes="17-24-24-9-24-5", activation=activation, initializer=initializer, use_shortcut=use_shortcut, batch_size=1
    )
    network, inputs = build_network(spec), {}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda m, args, out, name=name: inputs.update({name: args[0].double().norm().item()}))
    with capture_gradients(network) as capture:
        loss_function(spec)(network(sample_input(spec)), target(spec)).backward()
    errors = {record.layer: record.statistics.norm for record in capture.passes[-1].outputs}
    weights = {record.layer: record.statistics.norm for record in capture.passes[-1].parameters if record.role == "weight"}
    assert len(weights) == 5
    for layer, norm in weights.items():
        assert norm == pytest.approx(errors[layer] * inputs[layer], rel=1e-5)


def test_three_backward_calls_without_zeroing_leave_three_times_the_gradient():
    spec = spec_of(layer_sizes="16x6-4")
    network, loss_of = build_network(spec), loss_function(spec)

    def backward():
        loss_of(network(sample_input(spec)), target(spec)).backward()
        return [parameter.grad.clone() for parameter in network.parameters()]

    once = backward()
    backward()
    for three_times, gradient in zip(backward(), once, strict=True):
        assert torch.equal(three_times, 3 * gradient)


def test_a_summed_loss_gives_the_gradients_of_the_mean_times_the_number_of_elements():
    mean = spec_of(layer_sizes="16x6-4", loss="mse", target="standard_normal", batch_size=8)
    runs = [run_experiment(spec, keep_gradients=True) for spec in (mean, mean.replace(loss="mse_sum"))]
    for averaged, summed in zip(*(run.parameters for run in runs), strict=True):
        assert torch.equal(summed.gradient, 32 * averaged.gradient)
