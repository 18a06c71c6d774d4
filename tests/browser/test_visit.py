"""What a visitor meets: pages, pictures, numbers, and a state that goes where the visitor goes."""

import itertools

import pytest

import gradlab
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.ui.pages import COURSE, TITLES


def readings(**settings):
    """The weight gradients of an experiment, first arrival first, as the alt text of its chart lists them."""
    table = gradlab.run_experiment(ExperimentSpec().replace(**settings)).weight_table()
    said = [
        f"{name.rsplit('.', 2)[0]} {short_number(value)}" for name, value in zip(table.parameter, table.mean_abs, strict=True)
    ]
    return ": " + ", ".join(said[::-1])


def test_the_first_page_shows_the_published_figures_without_a_click(visit):
    visitor = visit()
    assert visitor.alt.endswith("layers.4 1.33, layers.3 0.267, layers.2 0.329, layers.1 0.207, layers.0 0.222")
    assert {"1.33", "0.222"} <= set(visitor.chart.locator("text").all_text_contents())
    assert visitor.chart.bounding_box()["height"] > 150


def test_the_menu_leads_to_every_page(visit):
    visitor, titles = visit(), set()
    for name, title in TITLES.items():
        visitor.menu(title)
        assert visitor.path == ("/" if name == "start" else f"/{name}")
        titles.add(visitor.title)
        visitor.check()
    assert len(titles) == len(TITLES)
    assert len(visitor.requests) > 50  # of which none went to another host


def test_the_links_of_the_pages_lead_through_the_course(visit):
    visitor = visit()
    with visitor.a_run():
        visitor.page.get_by_text("Predict it, then measure").click()
    for name, following in itertools.pairwise(list(COURSE)[1:]):
        assert visitor.path == f"/{name}"
        with visitor.a_run():
            visitor.page.get_by_role("link", name=f"Next: {COURSE[following]} →").click()
    assert visitor.path == "/takeaways"


def test_a_changed_control_changes_the_numbers_and_the_address(visit):
    visitor = visit("/measure")
    assert visitor.alt.endswith(readings())
    visitor.fill("Seed", 7)
    visitor.choose("Activation", "Tanh")
    assert visitor.alt.endswith(readings(seed=7, activation="tanh"))
    assert visitor.query == {"seed": "7", "activation": "tanh"}
    visitor.choose("Experiment", "Reference with shortcuts")
    assert visitor.value("Seed") == "123"
    assert visitor.alt.endswith(readings(use_shortcut=True))
    assert visitor.query == {"seed": "123", "use_shortcut": "true"}


def test_settings_go_from_page_to_page_and_survive_a_reload(visit):
    visitor = visit("/measure")
    visitor.fill("Seed", 7)
    visitor.fill("Layer sizes", "4-4-4-4-2")
    expected = readings(seed=7, layer_sizes="4-4-4-4-2")
    for title in ("Trail", "Mistakes", "Measure", "Start", "Trail", "Myths", "Start", "Measure"):
        visitor.menu(title)
        if title in ("Trail", "Measure"):
            assert visitor.alt.endswith(expected), title
            assert (visitor.value("Seed"), visitor.value("Layer sizes"), visitor.warnings) == ("7", "4-4-4-4-2", []), title
    with visitor.a_run():
        visitor.page.reload()
    assert (visitor.path, visitor.value("Seed"), visitor.value("Layer sizes")) == ("/measure", "7", "4-4-4-4-2")


def test_a_page_that_was_opened_by_a_link_hands_its_settings_on_at_once(visit):
    visitor = visit("/measure?seed=7&activation=tanh")
    visitor.menu("Trail")
    assert (visitor.value("Seed"), visitor.warnings) == ("7", [])
    assert visitor.alt.endswith(readings(seed=7, activation="tanh"))


def test_the_address_names_the_settings_wherever_the_menu_leads(visit):
    visitor = visit("/measure?seed=7")
    for title in ("Start", "Measure", "Start", "Measure", "Trail"):
        visitor.menu(title)
        assert visitor.query == {"seed": "7"}


def test_the_back_button_undoes_a_change_and_then_leaves_the_page(visit):
    visitor = visit("/")
    visitor.menu("Measure")
    visitor.fill("Seed", 7)
    visitor.fill("Seed", 8)
    for seed in ("7", "123"):
        with visitor.a_run():
            visitor.page.go_back()
        assert (visitor.value("Seed"), visitor.query["seed"]) == (seed, seed)
        assert visitor.alt.endswith(readings(seed=int(seed)))
    for _ in range(3):
        if visitor.path == "/measure":
            with visitor.a_run():
                visitor.page.go_back()
    assert visitor.path == "/"


def test_what_a_link_says_wrong_is_named_and_the_rest_is_kept(visit):
    visitor = visit("/trail?seed=7&activation=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&layer_sizes=4-4-1&gain=nan")
    assert visitor.alt.endswith(readings(seed=7, layer_sizes="4-4-1"))
    assert visitor.warnings == ["Part of the link could not be used and was left out; the rest is kept."]
    assert "activation = '<img src=x onerror=alert(1)>' is not possible" in visitor.text
    assert "gain = 'nan' is not possible" in visitor.text
    assert visitor.query == {"seed": "7", "layer_sizes": "4-4-1"}
    assert visitor.page.locator("[data-testid=stMain] img").count() == 0


def test_an_impossible_experiment_keeps_the_picture_and_says_why(visit):
    visitor = visit("/measure?seed=7")
    visitor.fill("Layer sizes", "<b>3</b>")
    assert visitor.alt.endswith(readings(seed=7))
    assert "layer_sizes = '<b>3</b>' is not possible; allowed: whole numbers" in visitor.text
    assert visitor.page.locator("[data-testid=stMain] b").count() == 0
    visitor.fill("Layer sizes", "3-3-1")
    assert visitor.alt.endswith(readings(seed=7, layer_sizes="3-3-1"))
    assert visitor.warnings == []


def test_two_visitors_side_by_side_see_their_own_and_the_same_numbers(visit):
    one, other = visit("/measure"), visit("/trail", color_scheme="dark")
    one.fill("Seed", 1)
    other.fill("Seed", 2)
    one.fill("Layer sizes", "5-5-5-5")
    assert (one.value("Seed"), other.value("Seed")) == ("1", "2")
    assert other.value("Layer sizes") == "3-3-3-3-3-1"
    assert one.alt.endswith(readings(seed=1, layer_sizes="5-5-5-5"))
    assert other.alt.endswith(readings(seed=2))
    one.fill("Layer sizes", "3-3-3-3-3-1")
    one.fill("Seed", 2)
    assert one.alt.split(": ")[1] == other.alt.split(": ")[1]


@pytest.mark.parametrize("path", ["/measure", "/trail"])
def test_what_the_scale_has_no_place_for_is_drawn_too(visit, path):
    visitor = visit(f"{path}?layer_sizes=3-1")
    for link, mark in (
        ("initializer=normal&sigma_w=0", "zero"),
        ("gain=1e6&layer_sizes=3x21&activation=identity", "non-finite"),
    ):
        visitor.open(f"{path}?{link}")
        assert visitor.alt.count(f" {mark}") >= 5
        assert visitor.chart.locator(".mark-symbol path").count() >= 5
        assert "NaN" not in visitor.chart.inner_html()
