"""The shortcuts page: a controlled pair, what is asked before it is told, a pinned run, and the guard on "comparison"."""

import math

import pytest

from gradlab import run_experiment
from gradlab.comparison import FIELD_TITLES
from gradlab.diagnosis import diagnose
from gradlab.lessons.questions import QUESTIONS
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec
from gradlab.ui.links import VIEWS, text_of
from gradlab.ui.panels import SIGNS

WITHOUT, WITH = "Without shortcuts", "With shortcuts"
DEEP = {"layer_sizes": "8x13", "activation": "tanh", "seed": "4"}


def spec_of(link):
    return ExperimentSpec.from_dict({name: value for name, value in link.items() if name not in ("gradient", "pinned")})


def right(question, link):
    pair = [run_experiment(spec_of(link).replace(use_shortcut=flag)) for flag in (False, True)]
    return min(QUESTIONS[question].pose(*pair).right)


def asked(page):
    """The keys of the questions that are open."""
    return [radio.key.removeprefix("option_").rsplit("_", 1)[0] for radio in page.at.radio]


def trails(page):
    """Name -> layer -> reading, for both bands of the picture."""
    rows = [row for _, data in page.layers() if {"trail", "layer"} <= {*data} for row in data.itertuples()]
    return {name: {row.layer: row.reading for row in rows if row.trail == name} for name in {row.trail for row in rows}}


def tells(page):
    """Whether the page says where the trails part, what each is called, or how they compare layer by layer."""
    return "Where they part." in page.markdown, any(sign in page.markdown for sign in SIGNS.values()), bool(page.at.dataframe)


def keys(page):
    return {widget.key for widget in page.widgets}


# --- the pair, and what is asked about it -----------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["weights", "outputs"])
@pytest.mark.parametrize("preset", ["reference", "reference_shortcut", "deep_sigmoid"])
def test_the_pair_is_the_experiment_without_and_with_shortcuts_whatever_the_switch_says(visit, measured, preset, gradient):
    spec = PRESETS[preset].spec
    page = visit("shortcuts").set(preset=preset, gradient=gradient)
    expected = {name: measured(spec.replace(use_shortcut=flag), gradient) for name, flag in ((WITHOUT, False), (WITH, True))}
    assert trails(page) == expected


@pytest.mark.parametrize("link", [{}, DEEP, {"gradient": "outputs"}], ids=["reference", "deep", "outputs"])
def test_where_they_part_is_told_by_nothing_on_the_page_before_the_answer(visit, link):
    page = visit("shortcuts", **link)
    assert asked(page) == ["what_differs"]
    assert tells(page) == (False, False, False)
    assert "A comparison" not in page.markdown
    page.answer("shortcuts")
    assert tells(page) == (False, False, False)
    assert "✓ A comparison." in page.markdown
    assert asked(page) == ([] if "gradient" in link else ["where_they_part"])
    page.set(gradient="weights").answer(right("where_they_part", link))
    assert tells(page) == (True, True, True)
    assert "✓ That is what was measured" in page.markdown


def test_a_wrong_answer_opens_the_page_too_and_stays_as_it_was_given(visit):
    page = visit("shortcuts").answer("several").answer("nowhere")
    assert tells(page) == (True, True, True)
    assert page.markdown.count("✗ That is not what was measured") == 2
    assert asked(page.go("shortcuts")) == []
    assert page.markdown.count("✗ That is not what was measured") == 2


def test_what_differs_can_be_looked_up_before_it_is_answered(visit):
    looked_up = visit("shortcuts", **DEEP).markdown
    both = dict(line.removeprefix("- **").split("**: ") for line in looked_up.splitlines() if line.startswith("- **"))
    assert both.keys() == {*FIELD_TITLES.values(), "seed"} - {FIELD_TITLES["seed"]}
    assert [title for title, values in both.items() if len(set(values.split(" and "))) > 1] == ["shortcuts"]


def test_of_a_second_pair_the_first_question_is_not_asked_again_and_the_second_can_be_left(visit):
    page = visit("shortcuts").answer("shortcuts")
    assert "shortcuts_look" not in keys(page)
    page.answer("nowhere").set(seed=5)
    assert asked(page) == ["where_they_part"]
    assert tells(page) == (False, False, False)
    page.click("shortcuts_look")
    assert asked(page) == []
    assert tells(page) == (True, True, True)
    assert tells(page.set(seed=6)) == (False, False, False)
    assert asked(page.set(seed=5)) == []  # it has been seen: there is nothing left to predict


@pytest.mark.parametrize("gradient", ["weights", "outputs"])
def test_the_sentence_names_the_first_layer_from_which_one_keeps_twice_the_other(visit, gradient):
    page = visit("shortcuts", **DEEP).answer("shortcuts").answer("nowhere").set(gradient=gradient)
    table = page.at.dataframe[0].value
    kept = [b / table["reading_b"][0] / (a / table["reading_a"][0]) for a, b in table[["reading_a", "reading_b"]].values]
    apart = [max(ratio, 1 / ratio) > 2 and (ratio > 1) == (kept[-1] > 1) for ratio in kept]
    start = len(apart) - next((back for back, off in enumerate(reversed(apart)) if not off), len(apart))
    assert f"The trails part at {table['layer_a'][start]}:" in page.markdown
    assert list(table["relative_ratio"]) == pytest.approx(kept, rel=1e-12)
    for flag, name in ((False, WITHOUT), (True, WITH)):
        found = diagnose(run_experiment(spec_of(DEEP).replace(use_shortcut=flag)), gradient=gradient)
        assert f"{name}, {gradient.rstrip('s')} gradients: {SIGNS[found.verdict]}" in page.markdown
        assert found.sentence in page.markdown


def test_the_table_holds_the_root_mean_squares_of_both_paired_from_the_output_end(visit):
    table = visit("shortcuts").answer("shortcuts").answer("nowhere").at.dataframe[0].value
    for column, flag in (("reading_a", False), ("reading_b", True)):
        result = run_experiment(ExperimentSpec().replace(use_shortcut=flag))
        rows = result.weight_table().iloc[::-1]
        assert list(table[column]) == pytest.approx([row.norm / math.sqrt(row.numel) for row in rows.itertuples()], rel=1e-12)
    assert list(table["ratio"]) == [b / a for a, b in zip(table["reading_a"], table["reading_b"], strict=True)]


def test_where_no_layer_can_have_a_shortcut_the_page_says_so_and_calls_it_no_comparison(visit):
    page = visit("shortcuts", layer_sizes="3-4-5-1")
    assert trails(page)[WITHOUT] == trails(page)[WITH]
    page.answer("shortcuts")
    assert "✗ That is not what was measured" in page.markdown
    assert "so no shortcut is added and both networks are the same" in page.markdown
    assert "○ **shortcuts**: off → on (without effect on these numbers)" in page.markdown
    assert "✗ No comparison: the difference in shortcuts has no effect here" in page.markdown
    assert "✓ A comparison" not in page.markdown


# --- a pinned run -----------------------------------------------------------------------------------------------------


def pinned(visit, **link):
    return visit("shortcuts", **link).click("shortcuts_pin")


def differences(page):
    return [line for line in page.markdown.splitlines() if line.startswith(("- ✓", "- ✗", "- ○"))]


def test_a_pinned_run_stays_while_the_controls_change_the_other(visit, measured):
    page = pinned(visit, **DEEP).set(activation="relu", seed=9)
    names = {"A, without shortcuts": spec_of(DEEP), "B, without shortcuts": spec_of(DEEP | {"activation": "relu", "seed": "9"})}
    assert trails(page) == {name: measured(spec) for name, spec in names.items()}
    assert page.link["pinned"] == text_of(spec_of(DEEP))
    assert "shortcuts_pin" not in keys(page)
    assert "the first network" not in page.markdown  # on this page they are A and B


def test_the_pin_survives_the_menu_and_the_link(visit):
    page = pinned(visit, **DEEP).set(activation="relu")
    link, seen = page.link, trails(page)
    assert trails(page.go("measure").go("shortcuts")) == seen
    again = visit("shortcuts", **link)
    assert trails(again) == seen
    assert again.link == link


def test_unpinning_returns_to_the_pair_of_the_experiment_at_hand(visit, measured):
    page = pinned(visit).set(seed=9).click("shortcuts_unpin")
    assert trails(page) == {
        name: measured(ExperimentSpec(seed=9).replace(use_shortcut=name == WITH)) for name in (WITHOUT, WITH)
    }
    assert "pinned" not in page.link


def test_right_after_pinning_nothing_differs(visit):
    page = pinned(visit)
    assert "Nothing: both have the same settings." in page.markdown
    assert "✗ No comparison" in page.markdown


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("activation", "relu", "`gelu_tanh` → `relu`"),
        ("seed", 7, "`123` → `7`"),
        ("layer_sizes", "3x9", "`3-3-3-3-3-1` → `3x9`"),
        ("use_bias", False, "on → off"),
        ("loss", "l1", "`mse` → `l1`"),
        ("use_shortcut", True, "off → on"),
    ],
)
def test_one_factor_that_differs_is_a_comparison_if_it_is_the_one_under_study(visit, field, value, told):
    page = pinned(visit).set(**{field: value})
    assert len(differences(page)) == 1
    assert told in differences(page)[0]
    assert ("✓ A comparison." in page.markdown) == (field == "use_shortcut")
    assert ("✗ No comparison" in page.markdown) == (field != "use_shortcut")
    page.set(under_study=field)
    assert differences(page)[0].startswith("- ✓")
    assert f"✓ A comparison.** One thing differs: {FIELD_TITLES[field]}." in page.markdown
    assert page.link.get("under_study", "use_shortcut") == field


@pytest.mark.parametrize("study", VIEWS["under_study"])
def test_two_factors_that_differ_are_never_called_a_comparison(visit, study):
    page = pinned(visit).set(activation="relu", seed=7, under_study=study)
    assert len(differences(page)) == 2
    assert "✓ A comparison" not in page.markdown
    assert page.markdown.count("✗ No comparison") == 1  # at the picture; the list marks what else differs
    assert "not under study" in page.markdown


def test_a_factor_without_effect_is_listed_as_such_and_does_not_count(visit):
    page = pinned(visit).set(use_shortcut=True, capture_method="retain_grad", sigma_w=0.5)
    assert sum(line.startswith("- ○") and line.endswith("(without effect on these numbers)") for line in differences(page)) == 2
    assert len(differences(page)) == 3
    assert "✓ A comparison." in page.markdown


def test_a_pinned_pair_without_and_with_shortcuts_is_asked_about_all_the_same(visit):
    for flags in ((False, True), (True, False)):
        page = pinned(visit, use_shortcut=str(flags[0]).lower()).set(use_shortcut=flags[1])
        assert asked(page) == ["where_they_part"]
        assert tells(page) == (False, False, False)
        assert tells(page.answer("nowhere")) == (True, True, True)


def test_networks_of_different_depth_are_held_side_by_side_and_it_is_said_how(visit, measured):
    page = pinned(visit).set(layer_sizes="3-3-3-3-3-3-3-1")
    assert "The two differ in depth." in page.markdown
    table = page.at.dataframe[0].value
    assert list(table["layer_a"]) == ["layers.4", "layers.3", "layers.2", "layers.1", "layers.0", "", ""]
    assert list(table["layer_b"]) == [f"layers.{place}" for place in (6, 5, 4, 3, 2, 1, 0)]
    assert table["ratio"].isna().tolist() == [False] * 5 + [True] * 2
    assert trails(page)["A, without shortcuts"] == measured(ExperimentSpec())


def test_a_lesson_with_locked_controls_keeps_its_pin(visit):
    page = visit("shortcuts", controls="locked", pinned="seed:5")
    assert page.widget("shortcuts_unpin").disabled
    assert visit("shortcuts", controls="locked").widget("shortcuts_pin").disabled


@pytest.mark.parametrize("text", ["MARK", "seed:-1", "layer_sizes:4096x200", "seed:1,<b>MARK</b>:2"])
def test_a_pin_that_is_none_is_left_out_with_a_notice(visit, text):
    page = visit("shortcuts", pinned=text, under_study="MARK")
    assert len(page.left_out) == 2
    assert set(trails(page)) == {WITHOUT, WITH}
    assert {element.type for element in page.elements if "MARK" in str(element.proto)} <= {"text"}


EDGES = [
    {"layer_sizes": "3-1"},
    {"layer_sizes": "1-1"},
    {"layer_sizes": "1x30"},
    {"layer_sizes": "3x201", "activation": "identity", "initializer": "orthogonal"},
    {"initializer": "normal", "sigma_w": "0"},
    {"gain": "1e6", "layer_sizes": "3x21", "activation": "identity"},
    {"activation": "relu", "layer_sizes": "2x20", "seed": "3"},
    {"gradient": "outputs", "gain": "-1e6"},
]


@pytest.mark.parametrize("link", EDGES, ids=str)
def test_whatever_the_experiment_the_page_speaks_and_does_not_raise(visit, link):
    page = visit("shortcuts", **link).answer("nothing")
    if asked(page):
        page.answer("nowhere")
    if "Switch to them to answer" not in page.markdown:
        assert "Where they part." in page.markdown
    assert "nan" not in page.markdown.lower().replace("nan or infinite", "")
    assert page.chart.alt
    page.click("shortcuts_pin")
    for change in ({"layer_sizes": "3-3-1"}, {"gain": 0.0}, {"seed": 2, "gain": 1.0}):
        assert page.set(**change).chart.alt
