"""The controls of an experiment: the picture and the numbers follow, or one clear sentence says why they cannot."""

import pytest
from widget_values import BOUNDS, CHOICES, TOGGLES

from gradlab.errors import SpecError
from gradlab.presets import PRESETS
from gradlab.spec import MAX_BATCH_SIZE, ExperimentSpec
from gradlab.trail import QUANTITY_HELP, Quantity

# Before a change: the defaults; and a start from which every normalisation can be run and the two sigmas count.
STARTS = ({}, {"batch_size": 8, "sample_input": "standard_normal", "initializer": "normal"})
CHANGES = [
    *((name, option) for name, options in CHOICES.items() for option in options),
    *((name, value) for name in TOGGLES for value in (True, False)),
    *((name, value) for name, values in BOUNDS.items() for value in values),
    ("gain", 0.0),
]
SIZES = ("1-1", "7-1", "1-4-1", "4096-1", "1-4096", "3x201", "2-5x100-1", " 3, 3; 1 ")
IMPOSSIBLE_SIZES = ("", "3", "0-1", "3-4097", "1x202", "4096x200", "abc", "3.5-1", "3-3-", "-3-3-1", "²-3", "9999999-1")


def follows(page, measured, before, changes, last=None):
    """The page shows the changed experiment, or, where that is impossible, the last one and the reason; what it shows."""
    try:
        spec, why = before.replace(**changes), ""
    except SpecError as error:
        spec, why = last or before, str(error)
    readings = measured(spec)
    assert page.why == why
    assert page.marks.keys() | page.drawn.keys() == readings.keys()
    assert page.drawn == {layer: value for layer, value in readings.items() if layer in page.drawn}
    assert all(not value > 0 for layer, value in readings.items() if page.marks.get(layer) == "zero")
    return spec


@pytest.mark.parametrize("start", STARTS, ids=["from the defaults", "from a normal batch"])
@pytest.mark.parametrize("changes", [CHANGES[::2], CHANGES[1::2]], ids=["one half", "other half"])
def test_the_picture_follows_every_option_and_every_bound(visit, measured, start, changes):
    before = ExperimentSpec().replace(**start)
    page = visit("measure", **{name: str(value) for name, value in start.items()})
    undo, last = {}, before
    for name, value in changes:
        page.set(**(undo | {name: value}))
        last = follows(page, measured, before, {name: value}, last)
        undo = {name: before.to_dict()[name]}


def test_every_control_has_a_widget_for_every_option(visit):
    page = visit("measure")
    for name, options in CHOICES.items():
        assert len(page.widget(name).options) == len(options), name
    for name, bounds in BOUNDS.items():
        assert (page.widget(name).min, page.widget(name).max) == bounds, name


@pytest.mark.parametrize("sizes", SIZES)
def test_the_network_can_have_any_size(visit, measured, sizes):
    page = visit("measure").set(layer_sizes=sizes)
    spec = follows(page, measured, ExperimentSpec(), {"layer_sizes": sizes})
    assert page.why == ""
    assert len(page.drawn | page.marks) == spec.network.depth


@pytest.mark.parametrize("sizes", IMPOSSIBLE_SIZES)
def test_impossible_sizes_keep_the_last_picture_and_say_why(visit, measured, sizes):
    page = visit("trail").set(layer_sizes="3-4-2", activation="relu")
    picture = page.chart.spec
    page.set(layer_sizes=sizes)
    assert page.chart.spec == picture
    assert page.why.startswith("layer_sizes = ")
    assert "allowed: " in page.why
    assert page.settings["layer_sizes"] == sizes  # what was typed stays, to be corrected
    assert page.link == {"layer_sizes": "3-4-2", "activation": "relu", "seed": "123"}


def test_an_experiment_too_large_for_a_shared_server_is_refused(visit):
    page = visit("measure").set(layer_sizes="4000x3", batch_size=MAX_BATCH_SIZE)
    assert "on a shared server" in page.why
    assert len(page.drawn) == 5


def test_what_can_be_run_again_clears_the_reason(visit):
    page = visit("measure").set(loss="cross_entropy")
    assert page.why.startswith("target = ")
    assert page.set(target="class_labels").why == ""


def test_settings_changed_while_one_was_impossible_count_as_soon_as_it_is_corrected(visit, measured):
    page = visit("measure").set(layer_sizes="?", activation="tanh")
    page.set(layer_sizes="4-4-1")
    assert page.drawn == measured(ExperimentSpec().replace(layer_sizes="4-4-1", activation="tanh"))


HOSTILE = (
    "<img src=x onerror=alert(1)>MARK",
    "<script>alert('MARK')</script>",
    "[MARK](javascript:alert(1)) ![MARK](http://example.com/a.png)",
    ":red[MARK] :material/home: $MARK$",
    "# MARK\n\n---\n`MARK`",
    "=HYPERLINK(MARK)",
    "{MARK} %s %(MARK)d \x00 \u202e 🧨",
    "MARK" * 300,
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("page_name", ["measure", "trail"])
def test_hostile_text_is_shown_as_plain_text_only(visit, text, page_name):
    page = visit(page_name).set(layer_sizes=text)
    assert "MARK" in page.why
    spread = {element.type for element in page.elements if "MARK" in str(element.proto)}
    assert spread <= {"text", "text_input"}
    assert len(page.why) < 250


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_the_controls_and_the_picture(visit, measured, name):
    page = visit("measure").set(preset=name)
    assert page.settings == PRESETS[name].spec.to_dict()
    assert page.drawn == measured(PRESETS[name].spec)
    assert page.widget("preset").value == name


def test_a_changed_control_turns_a_preset_into_own_settings_and_back(visit):
    page = visit("measure")
    assert page.widget("preset").value == "reference"
    page.set(seed=7)
    assert page.widget("preset").value == "own settings"
    page.set(preset="own settings")
    assert page.settings["seed"] == 7
    page.set(seed=123, use_shortcut=True)
    assert page.widget("preset").value == "reference_shortcut"


@pytest.mark.parametrize("page_name", ["measure", "trail"])
@pytest.mark.parametrize("preset", ["two_layer_regression", "deep_sigmoid"])
def test_the_gradient_switch_changes_what_is_shown_and_says_which(visit, measured, page_name, preset):
    page = visit(page_name).set(preset=preset)
    for gradient in ("outputs", "weights"):
        page.set(gradient=gradient)
        assert page.drawn == measured(PRESETS[preset].spec, gradient)
        assert QUANTITY_HELP[Quantity(gradient)] in page.markdown
