"""The mistakes page: each one is run before it is ticked, with the wrong and the right number as the core measures them."""

import json
import math

import pytest

from gradlab.charts import no_numbers_yet, two_numbers
from gradlab.lessons.demonstrations import Reading
from gradlab.lessons.mistakes import MISTAKES, Lesson
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec

TWO_LAYERS = PRESETS["two_layer_regression"].spec
EDGES = {
    "one layer": {"layer_sizes": "3-1"},
    "width 1": {"layer_sizes": "1-1-1-1-1"},
    "all zero": {"initializer": "normal", "sigma_w": "0"},
    "not finite": {"layer_sizes": "3x21", "activation": "identity", "gain": "1e6"},
    "sixty layers": {"layer_sizes": "3x61"},
    "too large to run six times": {"layer_sizes": "2000-2000-2000-2000", "batch_size": "20"},
}


def choose(page, key):
    """Choose a mistake in the list of its lesson."""
    lesson = MISTAKES[key].lesson
    page.set(mistakes_group=lesson)
    page.at.radio(key=f"mistakes_in_{lesson}").set_value(key)
    return page.run()


def show(page, key):
    return choose(page, key).click("mistakes_show")


def ticked(page):
    """The titles with a tick in both lists, and how many the page says there are."""
    titles = []
    for lesson in Lesson:
        page.set(mistakes_group=lesson)
        titles += [option[2:] for option in page.at.radio(key=f"mistakes_in_{lesson}").options if option.startswith("☑ ")]
    (bar,) = page.at.get("progress")
    assert bar.proto.value == math.floor(100 * len(titles) / len(MISTAKES))
    assert f"**{len(titles)} of {len(MISTAKES)} shown.**" in bar.proto.text
    return titles


def numbers(page):
    """Label -> number of the two that stand side by side."""
    return {metric.label: metric.value for metric in page.at.metric}


def drawn(page):
    """Way -> size, or mark where the scale has no place for it."""
    return {row.way: row.mark or row.size for _, data in page.layers() if "size" in data for row in data.itertuples()}


def test_at_first_nothing_is_ticked_and_nothing_is_measured(visit):
    page = visit("mistakes")
    assert ticked(page) == []
    assert numbers(page) == {}
    assert "nothing is measured yet" in page.chart.alt
    assert "Instead." not in page.markdown


@pytest.mark.parametrize("spec", [ExperimentSpec(), TWO_LAYERS], ids=["reference", "two layers"])
def test_the_numbers_side_by_side_are_those_the_core_measures(visit, spec):
    page = visit("mistakes", **{name: str(value) for name, value in spec.to_dict().items()})
    for key, mistake in MISTAKES.items():
        found = mistake.demonstrate(spec)
        show(page, key)
        assert numbers(page) == {"✗ Mistaken": found.wrong.text, "✓ Right": found.right.text}
        for text in (found.wrong.label, found.right.label, found.damage, found.note, mistake.why, mistake.instead):
            assert text in page.markdown
        for way, value in (("mistaken", found.wrong.value), ("right", found.right.value)):
            assert drawn(page)[way] == ("missing" if value is None else "zero" if value == 0 else abs(value))
        assert page.at.dataframe[0].value.astype(object).equals(found.table().astype(object))
    assert len(ticked(page)) == len(MISTAKES) == 12


def test_three_backward_calls_give_three_times_the_published_reading(visit):
    page = show(visit("mistakes"), "gradients_add_up")
    assert drawn(page) == pytest.approx({"mistaken": 3 * 5.0496454e-3, "right": 5.0496454e-3}, rel=1e-5)


def test_choosing_and_reading_tick_nothing(visit):
    page = visit("mistakes")
    for key in MISTAKES:
        choose(page, key)
        assert MISTAKES[key].why in page.markdown
    assert ticked(page) == []


def test_a_demonstration_ticks_its_own_item_and_no_other(visit):
    page = show(visit("mistakes"), "sum_for_mean")
    assert ticked(page) == [MISTAKES["sum_for_mean"].title]
    assert choose(page, "sign_as_strength").at.button(key="mistakes_show")
    assert len(ticked(page)) == 1


def test_a_link_ticks_nothing(visit):
    page = visit("mistakes", mistakes_ran="sum_for_mean", mistakes_asked_for="sum_for_mean")
    assert ticked(page) == []


def test_one_visitors_ticks_are_not_anothers(visit):
    show(visit("mistakes"), "sum_for_mean")
    assert ticked(visit("mistakes")) == []


def test_a_tick_outlives_the_page_and_a_new_experiment_is_shown_anew(visit):
    page = show(visit("mistakes"), "gradients_add_up")
    first = numbers(page)
    assert numbers(page.go("measure").go("mistakes")) == first
    page.set(seed=7)
    assert numbers(page) == {}
    assert "nothing is measured yet" in page.chart.alt
    assert ticked(page) == [MISTAKES["gradients_add_up"].title]
    found = MISTAKES["gradients_add_up"].demonstrate(ExperimentSpec(seed=7))
    assert numbers(show(page, "gradients_add_up")) == {"✗ Mistaken": found.wrong.text, "✓ Right": found.right.text} != first


def test_what_ran_on_another_experiment_says_so(visit):
    page = show(visit("mistakes").set(preset="two_layer_regression"), "large_last_layer")
    assert "This ran on the reference experiment: in yours no trend over hidden layers can be fitted." in page.markdown


@pytest.mark.parametrize("link", EDGES.values(), ids=list(EDGES))
def test_no_experiment_is_too_odd_to_be_shown(visit, link):
    page = visit("mistakes", **link)
    for key in MISTAKES:
        assert "nan" not in " ".join(numbers(show(page, key)).values())
        assert len(numbers(page)) == 2
    assert len(ticked(page)) == len(MISTAKES)


# --- the picture ------------------------------------------------------------------------------------------------------


def reading(value):
    return Reading(label="what was read", value=value)


def of(wrong, right, **options):
    """The picture's rows by way, and its specification."""
    chart = two_numbers(reading(wrong), reading(right), **options).chart.to_dict(validate=True)
    rows = [row for data in chart["datasets"].values() for row in data]
    return {row["way"]: row for row in rows}, chart


@pytest.mark.parametrize(
    ("wrong", "right"),
    [(3.0, 1.0), (331.0, 5e-3), (5e-324, 1.7e308), (-4e-5, 1.2e-4), (0.0, 2e-4), (None, 0.5), (39, 0), (None, 0.0), (1.0, 1.0)],
)
def test_both_numbers_have_a_place(wrong, right):
    rows, chart = of(wrong, right)
    (domain,) = {
        tuple(layer["encoding"]["x"]["scale"]["domain"]) for layer in chart["layer"] if "field" in layer["encoding"]["x"]
    }
    assert 0 < domain[0] < domain[1] < math.inf
    for way, value in (("mistaken", wrong), ("right", right)):
        assert rows[way]["mark"] == ("missing" if value is None else "" if value else "zero")
        if value:
            assert rows[way]["size"] == abs(value)
            assert domain[0] <= abs(value) <= domain[1]


def test_marks_and_a_negative_number_are_explained():
    assert "□ exactly zero" in two_numbers(reading(0), reading(1)).how_to_read
    assert "+ no gradient arrived" in two_numbers(reading(None), reading(1)).how_to_read
    assert "negative" in two_numbers(reading(-1.0), reading(1)).how_to_read
    assert "negative" not in two_numbers(reading(1.0), reading(2)).how_to_read


def test_the_words_that_stand_for_the_picture_hold_both_numbers():
    alt = two_numbers(Reading(label="once", value=None), Reading(label="twice", value=5e-3)).alt_text
    assert alt == "Two numbers. Mistaken: once: None. Right: twice: 5.00e-3."


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_moves_when_the_numbers_come(visit, dark):
    before, (_, after) = no_numbers_yet(dark=dark).chart.to_dict(validate=True), of(3.0, 1.0, dark=dark)
    assert before["height"] == after["height"]
    rows = [chart["layer"][0]["encoding"]["y"]["scale"] for chart in (before, after)]
    assert rows[0] == rows[1]
    page = visit("mistakes")
    page.at.context["theme"] = "dark" if dark else "light"
    assert json.loads(page.run().chart.spec)["height"] == after["height"]
