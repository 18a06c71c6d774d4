"""The challenge page: two rivers, an answer that stands, hints one by one, and a reply that follows from the measurement."""

import pytest

from gradlab import run_experiment
from gradlab.diagnosis import diagnose
from gradlab.lessons.challenge import HINTS, challenge
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec
from gradlab.ui.challenge import MAX_WORDS, NAMES
from gradlab.ui.panels import SIGNS

DEEP = {"layer_sizes": "3x13-1", "seed": "4"}
HOSTILE = "<script>alert(1)</script> **bold** $x$ :red[x] [a](javascript:alert(1)) ![i](http://x.invalid/i.png) \u202e"
IMPOSSIBLE = {
    "one layer": {"layer_sizes": "3-1"},
    "no layer keeps its width": {"layer_sizes": "3-4-5-6-7-1"},
    "width 1": {"layer_sizes": "1-1-1"},
    "all zero": {"initializer": "normal", "sigma_w": "0"},
    "not finite": {"layer_sizes": "3x21", "activation": "identity", "gain": "1e6"},
    "nothing shrinks": {"layer_sizes": "16x8", "activation": "identity", "initializer": "orthogonal", "use_bias": "false"},
}


def results(**link):
    spec = ExperimentSpec.from_dict(link)
    return [run_experiment(spec.replace(use_shortcut=flag)) for flag in (False, True)]


def posed(**link):
    """The challenge as the core poses it on the same pair."""
    return challenge(*results(**link))


def field(page, name):
    """The one widget of the form with this name, whatever experiment it is about."""
    at = page.at
    widgets = [*at.radio, *at.selectbox, *at.segmented_control, *at.text_area]
    found = [widget for widget in widgets if widget.key and widget.key.startswith(f"challenge_{name}_")]
    assert len(found) <= 1
    return found[0] if found else None


def fill(page, layer=None, direction=None, sure=None, text=None):
    for name, value in (("layer", layer), ("direction", direction), ("sure", sure), ("text", text)):
        if value is not None:
            field(page, name).set_value(value)
    (commit,) = [button for button in page.at.button if button.label == "Commit" and "FormSubmitter:challenge_" in button.key]
    commit.click()
    return page.run()


def answers(page):
    kept = page.at.session_state["progress"].answers if "progress" in page.at.session_state else ()
    return [(answer.question, answer.option, str(answer.confidence)) for answer in kept]


def tells(page):
    """Whether anything on the page says what was measured to the question."""
    return [word for word in (*SIGNS.values(), "The layer: ", "Measured.", "Both ends of the bend") if word in page.markdown]


def a_wrong_one(question):
    return next(option.key for option in question.options if option.key not in question.right)


@pytest.mark.parametrize("link", [{}, DEEP, {"use_shortcut": "true"}], ids=["reference", "deep", "with shortcuts"])
def test_both_rivers_are_those_of_the_chosen_experiment(visit, measured, link):
    spec = ExperimentSpec.from_dict(link)
    two = {name: measured(spec.replace(use_shortcut=flag)) for name, flag in zip(NAMES, (False, True), strict=True)}
    page = visit("challenge", **link)
    assert page.trails == two
    table = page.at.dataframe[0].value
    for name in NAMES:
        assert dict(zip(table["layer"], table[name.lower()], strict=True)) == two[name]


@pytest.mark.parametrize("link", [{}, DEEP], ids=["reference", "deep"])
def test_before_the_commit_nothing_is_chosen_and_nothing_is_told(visit, link):
    page, asked = visit("challenge", **link), posed(**link)
    assert [field(page, name).value for name in ("layer", "direction", "sure")] == [None, None, None]
    assert tells(page) == []
    assert asked.layer.explanation not in page.markdown
    # What a preset is there to show would be an answer too.
    assert not [preset.look_for for preset in PRESETS.values() if preset.look_for in (page.widget("preset").help or "")]


@pytest.mark.parametrize("left_out", ["layer", "direction", "sure"])
def test_an_answer_is_complete_or_it_is_none(visit, left_out):
    words = {"layer": "a layer", "direction": "a direction", "sure": "how sure you are"}
    given = {"layer": "layers.2", "direction": "levels_off", "sure": "certain"}
    del given[left_out]
    page = fill(visit("challenge"), **given)
    assert f"Choose {words[left_out]} first." in page.markdown
    assert answers(page) == []
    assert tells(page) == []


@pytest.mark.parametrize("link", [{}, DEEP, {"seed": "5"}, {"layer_sizes": "8x12-1", "activation": "tanh"}], ids=str)
def test_the_reply_follows_from_the_measurement(visit, link):
    asked = posed(**link)
    for layer_right, direction_right in ((True, True), (True, False), (False, True), (False, False)):
        layer = min(asked.layer.right) if layer_right else a_wrong_one(asked.layer)
        direction = min(asked.direction.right) if direction_right else a_wrong_one(asked.direction)
        page = fill(visit("challenge", **link), layer, direction, "fairly_sure")
        assert ("**✓** The layer: as measured." in page.markdown) == layer_right
        assert ("**✗** The layer: not as measured." in page.markdown) == (not layer_right)
        assert ("**✓** The direction: as measured." in page.markdown) == direction_right
        assert ("**✗** The direction: not as measured." in page.markdown) == (not direction_right)
        assert page.markdown.count(asked.layer.explanation) == 1
        assert page.markdown.count("You may think") == 2 - layer_right - direction_right
        for result in results(**link):
            found = diagnose(result, gradient="weights")
            assert f"{SIGNS[found.verdict]}" in page.markdown
            assert found.sentence in page.markdown
        assert answers(page) == [
            ("challenge_layer", layer, "fairly_sure"),
            ("challenge_direction", direction, "fairly_sure"),
        ]


def test_an_answer_stands_and_another_seed_is_another_challenge(visit):
    page = fill(visit("challenge"), "layers.0", "grows", "certain", "because")
    first = answers(page)
    assert field(page, "layer") is None
    assert field(page, "direction") is None
    page.set(seed=5)
    assert field(page, "layer").value is None
    assert "because" not in [text.value for text in page.at.text]
    assert tells(page) == []
    fill(page, "layers.1", "levels_off", "unsure")
    page.set(seed=123)
    assert field(page, "layer") is None
    assert "You named `layers.0`" in page.markdown
    assert answers(page)[:2] == first
    assert len(answers(page)) == 4


def test_own_words_come_back_as_they_are_and_go_nowhere(visit):
    page = fill(visit("challenge"), "layers.2", "levels_off", "certain", HOSTILE)
    assert HOSTILE in [text.value for text in page.at.text]
    assert HOSTILE not in page.markdown
    assert not [value for value in page.link.values() if "script" in value]
    assert "script" not in repr(page.at.session_state["progress"])
    assert HOSTILE in [text.value for text in page.go("measure").go("challenge").at.text]
    assert HOSTILE not in [text.value for text in visit("challenge").at.text]


def test_own_words_have_an_end(visit):
    page = visit("challenge")
    assert field(page, "text").proto.max_chars == MAX_WORDS
    fill(page, "layers.2", "levels_off", "certain", "w" * (MAX_WORDS + 500))
    assert max(len(text.value) for text in page.at.text) == MAX_WORDS


def test_hints_open_one_at_a_time(visit):
    page = visit("challenge")
    for count, label in enumerate(["Open hint 1 of 3", "Open hint 2 of 3", "Open hint 3 of 3"]):
        assert [hint for hint in HINTS if hint in page.markdown] == list(HINTS[:count])
        assert page.widget("challenge_hint").label == label
        page.click("challenge_hint")
    assert [hint for hint in HINTS if hint in page.markdown] == list(HINTS)
    assert "challenge_hint" not in [button.key for button in page.at.button]


@pytest.mark.parametrize("link", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_where_it_cannot_be_posed_the_page_says_why(visit, link):
    page, asked = visit("challenge", **link), posed(**link)
    assert asked.why_not
    assert asked.why_not in page.markdown
    assert field(page, "layer") is None
    assert "challenge_hint" not in [button.key for button in page.at.button]
    assert answers(page) == []


def test_many_layers_are_chosen_from_a_menu_without_marks(visit):
    link = {"layer_sizes": "8x31-1", "activation": "tanh"}
    page, asked = visit("challenge", **link), posed(**link)
    assert asked.can_be_posed
    menu = field(page, "layer")
    assert menu.type == "selectbox"
    assert len(menu.options) == len(asked.layer.options)
    assert not [option for option in menu.options if "`" in option]
    page = fill(page, min(asked.layer.right), min(asked.direction.right), "unsure")
    assert "**✓** The layer: as measured." in page.markdown


def test_who_was_told_where_this_pair_parts_is_pointed_to_a_fresh_one(visit):
    page = visit("shortcuts").answer("shortcuts").answer("near_input").go("challenge")
    assert "You were told where these two part on another page." in page.markdown
    assert "You were told" not in page.set(seed=8).markdown
