"""Every page, within the app and by itself."""

import re

import pytest
from streamlit.proto.Common_pb2 import StringArray
from streamlit.proto.WidgetStates_pb2 import WidgetState

from gradlab.presets import PRESETS
from gradlab.text import short_number
from gradlab.ui.pages import COURSE, FOLDER, LAB, TITLES

EACH_PAGE = pytest.mark.parametrize("page", TITLES)
PUBLISHED_WITH_SHORTCUTS = "layers.4 1.33, layers.3 0.267, layers.2 0.329, layers.1 0.207, layers.0 0.222"
PREDICTED_FIRST = ("predict", "mistakes", "myths")
"""Pages whose picture is a placeholder until something is committed or run."""


def data_of(page):
    return [{dataset.name: dataset.data.data for dataset in chart.datasets} for chart in page.charts]


def check_frame(page):
    """A question as the title, then a picture with words that stand for it, then how to read it; nothing went wrong."""
    assert page.title.endswith("?")
    shown = [element.type for element in page.elements if element.type != "empty"]
    assert shown[:2] == ["title", "vega_lite_chart"]
    assert all(len(chart.alt) > 50 for chart in page.charts)
    assert page.markdown.count("*How to read it.*") >= len(page.charts)
    assert (page.why, page.left_out) == ("", [])
    assert "Traceback" not in page.said


@EACH_PAGE
def test_a_page_asks_a_question_shows_a_picture_and_follows_the_theme(visit, page):
    seen = visit(page)
    check_frame(seen)
    light, alts, data = [chart.spec for chart in seen.charts], [chart.alt for chart in seen.charts], data_of(seen)
    seen.at.context["theme"] = "dark"
    seen.run()
    check_frame(seen)
    assert all(dark != was for dark, was in zip([chart.spec for chart in seen.charts], light, strict=True))
    assert ([chart.alt for chart in seen.charts], data_of(seen)) == (alts, data)
    seen.at.context["theme"] = "light"
    assert [chart.spec for chart in seen.run().charts] == light


@EACH_PAGE
def test_a_page_by_itself_shows_what_it_shows_in_the_app(visit, visit_alone, page):
    alone, within = visit_alone(page), visit(page)
    check_frame(alone)
    assert [chart.spec for chart in alone.charts] == [chart.spec for chart in within.charts]
    assert data_of(alone) == data_of(within)
    assert alone.title == within.title


@EACH_PAGE
def test_a_picture_speaks_of_the_data(visit, page):
    """Another experiment has another picture, unless nothing about it may be seen yet."""
    one, other = visit(page), visit(page, initializer="xavier", seed="7", layer_sizes="5-5-5-5-1")
    if page in ("start", "methods", "myths", "mistakes"):  # these show what no setting changes
        assert data_of(other) == data_of(one)
    else:
        assert other.chart.alt != one.chart.alt
        assert data_of(other) != data_of(one)


@EACH_PAGE
def test_what_a_page_offers_is_downloaded_without_a_run(visit, page):
    buttons = [button.proto for button in visit(page).at.get("download_button")]
    assert all(button.ignore_rerun for button in buttons)
    labels = [button.label for button in buttons]
    assert len(set(labels)) == len(labels)
    if page not in PREDICTED_FIRST:
        assert {"Save as SVG", "Save as PNG", "The readings (CSV)"} <= set(labels)
    if page == "predict":
        assert labels == []


def test_before_the_commit_predict_shows_nothing_that_was_measured(visit, measured):
    page = visit("predict", activation="tanh", seed="7", layer_sizes="5-5-5-5-1")
    numbers = measured(PRESETS["reference"].spec.replace(activation="tanh", seed=7, layer_sizes="5-5-5-5-1"))
    shown = "".join(str(element.proto) for element in page.elements)
    for number in numbers.values():
        assert short_number(number) not in shown
        assert repr(number)[:6] not in shown
    assert not page.at.dataframe
    assert not page.at.get("download_button")
    drawn = {value for _, data in page.layers() for row in data.itertuples() for value in row}
    assert not drawn & set(numbers.values())


def test_a_commit_sent_once_more_with_another_answer_changes_nothing(visit):
    """As a modified browser would do it, which still knows the form that is gone."""

    def form(page, option):
        question, sure, commit = page.at.radio[0], page.at.segmented_control[0], page.at.button[0]
        return [
            WidgetState(id=question.id, string_value=option),
            WidgetState(id=sure.id, string_array_value=StringArray(data=[sure.options[0]])),
            WidgetState(id=commit.id, trigger_value=True),
        ]

    page = visit("predict")
    wrong, right = form(page, "It grows"), form(page, "It becomes smaller")
    page.send(page.states_with(wrong))
    assert "**Predicted: it grows** (unsure)" in page.markdown
    for states in (right, right[::-1]):
        page.send(page.states_with(states))
        assert "**Predicted: it grows** (unsure)" in page.markdown
        assert "**0 of 1** right" in page.markdown
    page.go("measure").go("predict")
    page.send(page.states_with(right))
    assert "**0 of 1** right" in page.markdown


def test_every_file_in_the_folder_is_a_page_of_the_menu():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(TITLES)


def test_titles_and_words_of_the_menu_differ(visit):
    assert len({visit(page).title for page in TITLES}) == len(set(TITLES.values())) == len(TITLES)


def test_the_first_page_shows_the_published_figures_without_a_click_and_leaves_the_plain_network_to_be_predicted(visit):
    page = visit()
    assert page.chart.alt.endswith(PUBLISHED_WITH_SHORTCUTS)
    assert "5.05e-3" not in page.said


@EACH_PAGE
def test_a_page_leads_on(visit, page):
    links = [link.proto.page for link in visit(page).at.get("page_link")]
    assert set(links) <= set(TITLES)
    if page in LAB:
        return
    following = dict(zip(COURSE, list(COURSE)[1:], strict=False))
    if page in following:
        assert links[-1] == following[page]


def test_from_the_first_page_every_other_page_of_the_course_is_reached_by_links(visit):
    seen, to_see = set(), ["start"]
    while to_see:
        page = to_see.pop()
        seen.add(page)
        to_see += [link.proto.page for link in visit(page).at.get("page_link") if link.proto.page not in seen]
    assert set(COURSE) <= seen


@pytest.mark.parametrize("page", ["measure", "trail", "shortcuts", "outputs", "challenge", "takeaways"])
def test_what_is_drawn_of_a_network_that_is_dead_or_not_finite_has_marks_of_its_own(visit, page):
    for link, word in (
        ({"initializer": "normal", "sigma_w": "0"}, "zero"),
        ({"gain": "1e6", "layer_sizes": "3x21", "activation": "identity"}, "non-finite"),
    ):
        seen = visit(page, **link)
        assert word in seen.chart.alt
        assert not re.search(r"\b(nan|inf)\b", seen.said)
