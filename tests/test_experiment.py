"""One experiment, one result: the published figures, the same numbers by every method, in every thread, without a trace."""

import io
import itertools
import math

import pandas
import pytest
import torch
from hypothesis import given, settings
from specs import SIZES, experiment_specs, network_specs
from truth import METHODS, Trace

from gradlab import ExperimentSpec, build_network, read_csv, run_experiment, to_csv
from gradlab.batches import loss_function, sample_input, target
from gradlab.presets import PRESETS
from gradlab.spec import Activation, Initializer, Loss, Normalization, SampleInput, Target

# Mean |gradient| of each layer's weight. The first two lists: Raschka, "Build a Large Language Model (From Scratch)",
# chapter 4, with GELU in its tanh form; the third: the same network with PyTorch's exact nn.GELU().
REFERENCE = {
    "plain": ({}, [2.0173588e-4, 1.2011160e-4, 7.1520399e-4, 1.3988736e-3, 5.0496454e-3]),
    "shortcut": ({"use_shortcut": True}, [0.22169793, 0.20694107, 0.32896996, 0.26657322, 1.3258541]),
    "exact GELU": ({"activation": "gelu"}, [2.0174125e-4, 1.2011773e-4, 7.1524380e-4, 1.3988514e-3, 5.0496035e-3]),
}

each_reference = pytest.mark.parametrize(("changes", "figures"), REFERENCE.values(), ids=REFERENCE)


@each_reference
@pytest.mark.parametrize("method", METHODS)
def test_the_reference_experiment_gives_the_published_figures(changes, figures, method):
    table = run_experiment(ExperimentSpec().replace(**changes, capture_method=method)).weight_table()
    assert list(table["parameter"]) == [f"layers.{index}.0.weight" for index in range(5)]
    assert list(table["mean_abs"]) == pytest.approx(figures, rel=1e-5)


@each_reference
@pytest.mark.parametrize("read", [pandas.read_csv, read_csv])
def test_the_published_figures_arrive_in_the_csv(changes, figures, read):
    table = read(io.StringIO(to_csv(run_experiment(ExperimentSpec().replace(**changes)))))
    assert list(table[table["role"] == "weight"]["mean_abs"]) == pytest.approx(figures, rel=1e-5)


def by_hand(spec, double=False):
    """Loss, output gradients and parameter gradients of an experiment, layer after layer, without a hook."""
    network, x, wanted = build_network(spec), sample_input(spec), target(spec)
    if double:
        network, x = network.double(), x.double()
        wanted = wanted.double() if wanted.is_floating_point() else wanted
    trace, norms, sizes = Trace(), spec.network.normalization, spec.network.layer_sizes
    for index, layer in enumerate(network.layers):
        h = x
        if norms is Normalization.LAYER_NORM_BEFORE:
            h = trace.note(f"layer_norms.{index}", network.layer_norms[index](h))
        for place, module in enumerate(layer):
            h = trace.note(f"layers.{index}.{place}", module(h))
        x = x + h if spec.network.use_shortcut and sizes[index] == sizes[index + 1] else h
        if norms is Normalization.LAYER_NORM_AFTER:
            x = trace.note(f"layer_norms.{index}", network.layer_norms[index](x))
    loss = loss_function(spec)(x, wanted)
    names = [name for name, _ in network.named_parameters()]
    found = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True, retain_graph=True)
    return loss, trace.gradients(loss), dict(zip(names, found, strict=True))


def relative_error(found, wanted):
    return ((found.double() - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("name", PRESETS)
def test_the_three_methods_give_one_gradient_to_the_last_bit(name):
    spec = PRESETS[name].spec
    results = [run_experiment(spec.replace(capture_method=method), keep_gradients=True) for method in METHODS]
    for first, *others in zip(*(result.outputs + result.parameters for result in results), strict=True):
        assert first.status == "ok"
        for other in others:
            assert torch.equal(first.gradient, other.gradient)
            assert first.statistics == pytest.approx(other.statistics, rel=1e-6, abs=1e-6 * first.statistics.mean_abs)
            assert (first.status, first.backward_index) == (other.status, other.backward_index)
    assert len({result.loss for result in results}) == len({result.arrival_order for result in results}) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_the_gradients_are_those_of_double_precision_without_hooks(name):
    spec = PRESETS[name].spec
    result = run_experiment(spec, keep_gradients=True)
    loss, outputs, parameters = by_hand(spec, double=True)
    assert result.loss == pytest.approx(loss.item(), rel=1e-4)
    assert {r.layer for r in result.outputs} == {layer for layer, _, _ in outputs}
    for record in result.outputs:
        assert relative_error(record.gradient, outputs[record.layer, 0, "0"]) < 1e-4
    assert {r.parameter for r in result.parameters} == set(parameters)
    for record in result.parameters:
        assert relative_error(record.gradient, parameters[record.parameter]) < 1e-4


def expected_status(gradient):
    """From the definitions: squares of single-precision numbers leave their range beyond 2^-63 and 2^64."""
    if not gradient.isfinite().all():
        return "non_finite"
    largest = gradient.abs().max().item()
    if largest == 0:
        return "all_zero"
    return "tiny" if largest < 1.1e-19 else "huge" if largest > 1.8e19 else "ok"


def assert_measured_right(spec):
    """Every reading of the experiment is bit for bit the gradient that autograd gives, and its status says what it is."""
    result = run_experiment(spec, keep_gradients=True)
    loss, outputs, parameters = by_hand(spec)
    assert result.loss == loss.item() or (math.isnan(result.loss) and loss.isnan())
    assert len(result.outputs) == len(outputs)
    readings = [(r, outputs[r.layer, r.call, r.output]) for r in result.outputs]
    readings += [(r, parameters[r.parameter]) for r in result.parameters]
    for record, gradient in readings:
        if gradient is None:
            assert (record.status, record.statistics) == ("no_gradient", None), record
            continue
        assert torch.equal(record.gradient.nan_to_num(nan=7.0), gradient.nan_to_num(nan=7.0)), record
        assert record.status == expected_status(gradient), record
        values = [v for v in record.statistics[:8] if not math.isfinite(v)]
        assert not values or record.status == "non_finite"
        assert record.statistics.nonfinite_count == (~gradient.isfinite()).sum()
        assert record.statistics.numel == gradient.numel()
        assert tuple(record.shape) == tuple(gradient.shape)


VALID = [
    (loss, wanted)
    for loss, wanted in itertools.product(Loss, Target)
    if loss is Loss.OUTPUT_SUM or (loss is Loss.CROSS_ENTROPY) == (wanted is Target.CLASS_LABELS)
]


@pytest.mark.parametrize(("loss", "wanted"), VALID)
@pytest.mark.parametrize("normalization", Normalization)
def test_every_loss_target_and_normalisation_is_measured_right(loss, wanted, normalization):
    dtypes = itertools.cycle(("float32", "float64"))
    all_inputs = ["standard_normal"] if normalization is Normalization.BATCH_NORM else [*SampleInput]
    for inputs, use_shortcut, dtype in zip(all_inputs * 2, (False, True) * 3, dtypes, strict=False):
        assert_measured_right(ExperimentSpec.from_dict({
            "layer_sizes": "4-4-4-3", "loss": loss, "target": wanted, "normalization": normalization, "sample_input": inputs,
            "dtype": dtype, "use_shortcut": use_shortcut, "batch_size": 3,
        }))  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("initializer", Initializer)
def test_every_activation_and_initialiser_is_measured_right_by_every_method(method, activation, initializer):
    assert_measured_right(ExperimentSpec.from_dict({
        "layer_sizes": "3-4-4-2", "activation": activation, "initializer": initializer, "capture_method": method,
        "use_shortcut": True, "sample_input": "standard_normal", "batch_size": 2,
    }))  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_sizes": "1-1"},
        {"layer_sizes": "1-1", "activation": "identity", "activate_last": False, "sample_input": "zeros"},
        {"layer_sizes": "1x201"},
        {"layer_sizes": "8x201"},
        {"layer_sizes": "8x201", "dtype": "float64"},
        {"layer_sizes": "8x201", "activation": "relu", "initializer": "he"},
        {"layer_sizes": "8x201", "activation": "identity", "use_shortcut": True},
        {"layer_sizes": "8x201", "initializer": "he", "gain": 100.0},
        {"layer_sizes": "8x31", "initializer": "normal", "sigma_w": 1e6, "activation": "relu", "batch_size": 4},
        {"layer_sizes": "8x31", "gain": 1e-6, "activation": "tanh"},
        {"layer_sizes": "8x31", "gain": 0.0},
        {"layer_sizes": "8x31", "sample_input": "zeros", "use_bias": False, "activation": "relu"},
        {"layer_sizes": "8x31", "sample_input": "zeros", "use_bias": False, "normalization": "layer_norm_before"},
        {"layer_sizes": "1x12", "normalization": "layer_norm_after"},
        {"layer_sizes": "1x12", "normalization": "batch_norm", "batch_size": 2, "sample_input": "standard_normal"},
        {"layer_sizes": "4096-1", "batch_size": 2},
        {"layer_sizes": "1-4096-1"},
        {"layer_sizes": "3-1", "loss": "cross_entropy", "target": "class_labels"},
        {"layer_sizes": "3-3", "batch_size": 1024},
        {"layer_sizes": "3-3-3", "activation": "sigmoid", "initializer": "he", "gain": 1e6},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", METHODS)
def test_a_network_at_the_edge_of_what_is_allowed_is_measured_right(changes, method):
    assert_measured_right(ExperimentSpec.from_dict(changes | {"capture_method": method}))


@given(experiment_specs(network_specs(sizes=SIZES.filter(lambda sizes: 1 < len(sizes) < 12))))
@settings(max_examples=25)
def test_any_experiment_is_measured_right(spec):
    assert_measured_right(spec)
