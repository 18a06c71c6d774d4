"""Every page, within the app and by itself."""

import pytest

from gradlab.presets import PRESETS
from gradlab.ui.pages import FOLDER, TITLES

EACH_PAGE = pytest.mark.parametrize("page", TITLES)
PUBLISHED = "layers.4 5.05e-3, layers.3 1.40e-3, layers.2 7.15e-4, layers.1 1.20e-4, layers.0 2.02e-4"
PUBLISHED_WITH_SHORTCUTS = "layers.4 1.33, layers.3 0.267, layers.2 0.329, layers.1 0.207, layers.0 0.222"


def shown_well(visit):
    """A question as the title, then a picture with words that stand for it, then how to read it."""
    assert visit.title.endswith("?")
    assert [element.type for element in visit.elements[:2]] == ["title", "vega_lite_chart"]
    assert len(visit.chart.alt) > 50
    assert "*How to read it.*" in visit.markdown


@EACH_PAGE
def test_a_page_in_the_app_asks_a_question_and_shows_a_picture(visit, page):
    shown_well(visit(page))


@EACH_PAGE
def test_a_page_runs_by_itself(visit_alone, page):
    shown_well(visit_alone(page))


@EACH_PAGE
def test_a_page_by_itself_shows_what_it_shows_in_the_app(visit, visit_alone, page):
    assert visit_alone(page).chart.spec == visit(page).chart.spec


def test_every_file_in_the_folder_is_a_page_of_the_menu():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(TITLES)


def test_titles_differ(visit):
    assert len({visit(page).title for page in TITLES}) == len(TITLES)


def test_the_first_page_shows_the_published_figures_without_a_click(visit):
    assert PUBLISHED in visit().chart.alt
    assert PUBLISHED_WITH_SHORTCUTS in visit().chart.alt


def test_the_first_page_leads_to_the_others(visit):
    links = {link.proto.page for link in visit().at.get("page_link")}
    assert links == {"measure", "trail"}


@pytest.mark.parametrize("page", ["measure", "trail"])
def test_a_page_draws_what_was_measured(visit, measured, page):
    assert visit(page).drawn == measured(PRESETS["reference"].spec)


@EACH_PAGE
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colours_follow_the_theme_and_the_data_does_not(visit, page, theme):
    seen = visit(page)
    light, alt = seen.chart.spec, seen.chart.alt
    seen.at.context["theme"] = theme
    seen.run()
    assert (seen.chart.spec == light) == (theme == "light")
    assert seen.chart.alt == alt


@EACH_PAGE
def test_a_page_offers_its_numbers(visit, page):
    (button,) = visit(page).at.get("download_button")
    assert "CSV" in button.proto.label
    assert button.proto.ignore_rerun


def test_the_stages_say_what_exists_after_each(visit):
    page = visit("measure")
    assert "0 of 10 parameters have a `.grad`" in page.markdown
    loss = page.set(stage="2 Loss").markdown
    assert "Mean squared error" in loss
    assert "0 of 10 parameters" in loss
    backward = page.set(stage="3 Backward").markdown
    assert "**10 of 10** parameters have a `.grad`" in backward
    assert "first gradient arrived at `layers.4.1`" in backward


@pytest.mark.parametrize("gradient", ["weights", "outputs"])
def test_the_table_holds_the_whole_numbers_that_the_chart_shows(visit, gradient):
    page = visit("measure", gradient=gradient)
    table = page.at.dataframe[0].value
    layers = table["parameter" if gradient == "weights" else "layer"].str.split(".").str[:2].str.join(".")
    linear = [True] * len(table) if gradient == "weights" else table["module_type"] == "Linear"
    assert dict(zip(layers[linear], table["mean_abs"][linear], strict=True)) == page.drawn
    assert list(layers) == sorted(layers)  # as printed: the first layer first
