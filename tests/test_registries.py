"""One contract for every choice the lab offers: each has one entry with a title, a line of help and something that runs."""

import pytest
import torch
from torch import nn

from gradlab import NetworkSpec, capture_gradients
from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.capture import CAPTURE_METHODS, STATUS_HELP, Status
from gradlab.networks import ACTIVATIONS, INITIALIZERS, NORMALIZATIONS, PRECISIONS
from gradlab.presets import PRESETS
from gradlab.registry import Choice
from gradlab.spec import (
    Activation,
    CaptureMethod,
    ExperimentSpec,
    Initializer,
    Loss,
    Normalization,
    Precision,
    SampleInput,
    Target,
)

REGISTRIES = {
    "activations": (ACTIVATIONS, Activation),
    "initializers": (INITIALIZERS, Initializer),
    "normalizations": (NORMALIZATIONS, Normalization),
    "precisions": (PRECISIONS, Precision),
    "sample inputs": (SAMPLE_INPUTS, SampleInput),
    "targets": (TARGETS, Target),
    "losses": (LOSSES, Loss),
    "capture methods": (CAPTURE_METHODS, CaptureMethod),
}
ENTRIES = [pytest.param(registry[key], id=key) for registry, _ in REGISTRIES.values() for key in registry]
each_registry = pytest.mark.parametrize(("registry", "kind"), REGISTRIES.values(), ids=REGISTRIES)


@each_registry
def test_every_choice_has_exactly_one_entry(registry, kind):
    assert list(registry) == list(kind)
    assert all(isinstance(entry, Choice) for entry in registry.values())


@each_registry
def test_no_two_choices_share_a_title_or_a_value(registry, kind):
    assert len({entry.title for entry in registry.values()}) == len(registry)
    assert all(choice.value == choice.name.lower() for choice in kind)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_title_is_short_and_the_help_is_one_line_that_ends_with_a_full_stop(entry):
    assert 0 < len(entry.title) <= 40
    assert entry.title == entry.title.strip()
    assert not entry.title.endswith(".")
    assert entry.help.endswith(".")
    assert "\n" not in entry.help
    assert len(entry.help) <= 120


def run(entry, kind):
    """Carry out a choice and return a tensor that shows it."""
    spec, generator = NetworkSpec(layer_sizes=(4, 3)), torch.Generator().manual_seed(0)
    if kind is Precision:
        return torch.ones(2, 4, dtype=entry.build())
    if kind is Activation:
        return entry.build()(torch.ones(2, 4))
    if kind is Initializer:
        linear = nn.utils.skip_init(nn.Linear, 4, 3)
        with torch.no_grad():
            linear.weight.fill_(torch.nan)
            entry.build(linear, spec, generator)
        return linear.weight
    if kind is Normalization:
        return entry.build(4)(torch.ones(2, 4))
    if kind in (SampleInput, Target):
        return entry.build(2, 4, 0).double()
    if kind is Loss:
        labels = torch.tensor([0, 3])
        return entry.build(torch.ones(2, 4), labels if entry is LOSSES[Loss.CROSS_ENTROPY] else torch.zeros(2, 4))
    model = nn.Linear(4, 3)
    method = next(method for method, other in CAPTURE_METHODS.items() if other is entry)
    with capture_gradients(model, method, keep_gradients=True) as capture:
        model(torch.ones(2, 4)).sum().backward()
    return capture.passes[0].outputs[0].gradient


@pytest.mark.parametrize(
    ("entry", "kind"),
    [pytest.param(registry[key], kind, id=key) for registry, kind in REGISTRIES.values() for key in registry],
)
def test_every_choice_can_be_carried_out(entry, kind):
    assert run(entry, kind).isfinite().all()


def test_every_status_has_a_line_of_help():
    assert list(STATUS_HELP) == list(Status)
    assert all(text.endswith(".") and "\n" not in text for text in STATUS_HELP.values())
    assert len(set(STATUS_HELP.values())) == len(Status)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_what_to_look_for(name):
    preset = PRESETS[name]
    assert name == name.lower()
    assert preset.title
    assert preset.look_for.endswith(".")
    assert isinstance(preset.spec, ExperimentSpec)


def test_the_presets_the_lessons_use_are_there():
    wanted = {"reference", "reference_shortcut", "two_layer_regression", "deep_sigmoid", "he_relu", "too_large"}
    assert wanted <= set(PRESETS)
    assert len({preset.title for preset in PRESETS.values()}) == len(PRESETS)
    assert len({preset.spec for preset in PRESETS.values()}) == len(PRESETS)


def test_the_presets_are_the_networks_their_names_say():
    specs = {name: preset.spec for name, preset in PRESETS.items()}
    assert specs["reference"] == ExperimentSpec()
    assert specs["reference_shortcut"] == ExperimentSpec().replace(use_shortcut=True)
    assert specs["two_layer_regression"].network.layer_sizes == (4, 8, 1)
    assert specs["two_layer_regression"].batch.batch_size == 3
    assert (specs["deep_sigmoid"].network.depth, specs["deep_sigmoid"].network.activation) == (10, "sigmoid")
    he, large = specs["he_relu"].network, specs["too_large"].network
    assert (he.depth, he.layer_sizes[1], he.initializer, he.activation, he.gain) == (50, 256, "he", "relu", 1.0)
    assert (large.depth, large.initializer, large.activation, large.gain) == (20, "he", "relu", 2.0)
