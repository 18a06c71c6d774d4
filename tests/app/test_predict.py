"""The predict page: nothing measured before the commit, the prediction on the river after it, and what is kept."""

import json
import math
from itertools import pairwise

import pandas
import pytest

from gradlab import charts, run_experiment
from gradlab.charts.base import paper
from gradlab.diagnosis import diagnose
from gradlab.lessons.predictions import score_factor
from gradlab.lessons.questions import QUESTIONS
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.trail import Quantity, backward_trail, layer_of
from gradlab.ui.panels import SIGNS

TREND = {"smaller": "It becomes smaller", "same": "It stays about the same", "grows": "It grows"}
DEEP = {"layer_sizes": "8x13", "seed": "4"}


def spec_of(link):
    return ExperimentSpec.from_dict(link)


def asked(page):
    """The keys of the questions that are open."""
    return [radio.key.removeprefix("option_").rsplit("_", 1)[0] for radio in page.at.radio]


def on_screen(page):
    """Every text that reaches the browser, and every value behind a picture."""
    values = [str(row) for chart in page.charts for _, data in page.layers(chart) for row in data.itertuples(index=False)]
    return "\n".join([*(str(element.proto) for element in page.elements), *values])


def is_locked(page):
    return page.drawn == {} and not page.at.get("download_button") and "Fingerprint" not in page.markdown


def predicted_twice(visit, first="smaller", second="smaller", **link):
    """A page on which the reference network was predicted, and then the one of the link, whose number is asked for."""
    page = visit("predict").answer(first)
    return page.go("predict", **(link or DEEP)).answer(second)


@pytest.mark.parametrize("link", [{}, DEEP, {"use_shortcut": "true"}], ids=["reference", "deep", "shortcuts"])
def test_nothing_that_was_measured_is_on_the_page_before_the_commit(visit, link):
    page, result = visit("predict", **link), run_experiment(spec_of(link))
    seen = on_screen(page)
    assert is_locked(page)
    assert asked(page) == ["trend"]
    numbers = [result.loss]
    for quantity in Quantity:
        numbers += [diagnose(result, gradient=quantity).factor, *backward_trail(result, quantity)["reading"]]
    assert not [number for number in numbers if short_number(number) in seen or repr(number) in seen]
    assert not [sign for sign in SIGNS.values() if sign in seen]


def test_no_control_tells_what_is_to_be_seen(visit):
    assert "readings shrink" in on_screen(visit("measure"))
    assert "readings shrink" not in on_screen(visit("predict"))


@pytest.mark.parametrize("missing", ["option", "sure"])
def test_a_prediction_without_an_answer_or_without_a_confidence_is_no_commitment(visit, missing):
    page = visit("predict")
    name = page.at.radio[0].key.removeprefix("option_")
    if missing == "sure":
        page.at.radio[0].set_value("smaller")
    else:
        page.widget(f"sure_{name}").set_value("certain")
    page.click(f"FormSubmitter:form_{name}-Commit")
    assert is_locked(page)
    assert f"Choose {'how sure you are' if missing == 'sure' else 'an answer'} before you commit." in page.markdown


@pytest.mark.parametrize("option", TREND)
def test_the_reveal_shows_prediction_and_measurement_in_one_picture(visit, measured, option):
    page = visit("predict").answer(option, "unsure")
    assert page.drawn == measured(ExperimentSpec())
    assert f"**Predicted: {TREND[option].lower()}** (unsure)." in page.markdown
    found = diagnose(run_experiment(ExperimentSpec()), gradient="weights")
    assert f"{SIGNS[found.verdict]}.** {found.sentence}" in page.markdown
    assert {layer_of(name) for name in found.fitted_layers} == set(outline(page)["layer"])
    assert page.at.get("download_button")


def test_picture_and_sketch_stand_in_the_same_place_at_the_same_size(visit):
    page = visit("predict")
    places, heights = [], []
    for _ in range(2):
        places.append([element.type for element in page.elements].index("vega_lite_chart"))
        heights.append(json.loads(page.chart.spec)["height"])
        page.answer("same" if asked(page) == ["trend"] else "holds")
    assert places[0] == places[1]
    assert heights[0] == heights[1] > 0


def test_what_was_seen_is_asked_before_anything_is_explained(visit):
    result = run_experiment(ExperimentSpec())
    page, trend = visit("predict"), QUESTIONS["trend"].pose(result)
    page.answer("grows")
    assert asked(page) == ["seen"]
    assert trend.reply("grows") not in page.markdown
    page.answer("falls_every_step")
    assert asked(page) == ["seen_largest"]
    assert QUESTIONS["seen"].pose(result).reply("falls_every_step") in page.markdown
    assert trend.reply("grows") not in page.markdown
    page.answer("output_end")
    assert asked(page) == []
    assert trend.reply("grows") in page.markdown
    assert "✗ That is not what was measured." in page.markdown


def test_an_answer_stands_wherever_the_visitor_goes(visit):
    page = visit("predict").answer("grows")
    page.go("trail").go("predict")
    assert "**Predicted: it grows** (certain)." in page.markdown
    assert "trend" not in asked(page)


def test_another_network_is_locked_until_it_is_predicted(visit, measured):
    page = visit("predict").answer("smaller")
    page.set(seed=7)
    assert is_locked(page)
    assert asked(page) == ["trend"]
    page.set(seed=123)
    assert page.drawn == measured(ExperimentSpec())


def test_from_the_second_network_on_a_number_is_asked_for_before_anything_is_shown(visit, measured):
    page = predicted_twice(visit)
    assert is_locked(page)
    assert "By what factor" in page.markdown
    assert "0 of 2" not in page.markdown
    assert "1 of 1" in page.markdown  # whether the second one was right is not to be told yet


@pytest.mark.parametrize("typed", ["0,7", "70 %", "0.7"])
def test_the_number_is_held_against_the_measured_factor(visit, measured, typed):
    page, spec = predicted_twice(visit), spec_of(DEEP)
    found = diagnose(run_experiment(spec), gradient="weights")
    commit_number(page, typed)
    assert score_factor(0.7, found.factor, len(found.fitted_layers)).sentence in page.markdown
    assert page.drawn == measured(spec)
    assert QUESTIONS["trend"].pose(run_experiment(spec)).reply("smaller") in page.markdown
    (guess,) = page.at.session_state["progress"].guesses
    assert (guess.guess, guess.measured) == (0.7, found.factor)
    assert not [text for text in page.at.text_input if "Factor" in text.label]


@pytest.mark.parametrize("typed", ["", "much", "-1", "<b>1</b>", "0", "1e999", "nan"])
def test_what_is_no_factor_is_answered_with_a_sentence_and_reveals_nothing(visit, typed):
    page = predicted_twice(visit)
    commit_number(page, typed)
    assert is_locked(page)
    assert score_factor(typed, 0.5).sentence in [text.value for text in page.at.text]
    assert page.at.session_state["progress"].guesses == ()
    commit_number(page, "2")
    assert len(page.at.session_state["progress"].guesses) == 1


def test_a_number_may_be_left_out(visit, measured):
    page = predicted_twice(visit)
    (button,) = [button for button in page.at.button if button.label == "Measure without a number"]
    page.click(button.key)
    assert page.drawn == measured(spec_of(DEEP))
    assert page.at.session_state["progress"].guesses == ()
    assert "of 2** right" in page.markdown


@pytest.mark.parametrize(
    "link",
    [
        {"layer_sizes": "3-1"},
        {"layer_sizes": "1-1"},
        {"initializer": "normal", "sigma_w": "0"},
        {"layer_sizes": "3x21", "gain": "1e6", "activation": "identity"},
    ],
    ids=["too shallow", "one weight", "all zero", "not finite"],
)
def test_where_there_is_no_trend_the_page_says_so_and_offers_other_settings(visit, link):
    page = visit("predict", **link)
    assert is_locked(page)
    assert asked(page) == []
    assert QUESTIONS["trend"].pose(run_experiment(spec_of(link))).why_not in page.markdown
    page.set(preset="reference")
    assert asked(page) == ["trend"]


def test_two_hundred_layers_can_be_predicted(visit):
    page = visit("predict", layer_sizes="3x201", activation="identity", initializer="orthogonal")
    assert len(page.chart.alt) < 200
    page.answer("same")
    assert len(page.drawn) == 200


@pytest.mark.parametrize("controls", ["locked", "hidden"])
def test_a_lesson_link_limits_the_controls_here_too(visit, controls):
    page = visit("predict", controls=controls, seed="5")
    assert asked(page) == ["trend"]
    assert [box.disabled for box in page.at.selectbox] == ([True] * len(page.at.selectbox))
    assert bool(page.at.selectbox) == (controls == "locked")


# --- the outline ------------------------------------------------------------------------------------------------------


def outline(page):
    upper, lower = [data for layer, data in page.layers() if layer["mark"].get("strokeDash")]
    assert upper.equals(lower)  # one frame, of which each draws its own edge
    return upper


def commit_number(page, typed):
    (field,) = [text for text in page.at.text_input if "Factor" in text.label]
    field.set_value(typed)
    (button,) = [button for button in page.at.button if button.label == "Commit the number"]
    page.click(button.key)


def trail_of(*readings):
    """A trail in order of arrival."""
    layers = [f"layers.{place}" for place in reversed(range(len(readings)))]
    ratios = [math.nan, *(after / before for before, after in pairwise(readings))]
    frame = {"step": range(1, len(readings) + 1), "layer": layers, "name": layers, "reading": readings, "ratio": ratios}
    return pandas.DataFrame(frame).assign(mark="", status="ok")


def drawn(trail, **prediction):
    """The river's band and the outline over all layers but the first arrival, both by layer."""
    figure = charts.with_prediction(charts.river({"one": trail}), layers=list(trail["layer"])[1:], **prediction)
    figure.chart.to_dict(validate=True)
    solid, predicted = (pandas.DataFrame(figure.data[name]).set_index("layer") for name in ("solid", "predicted"))
    return solid, predicted


@pytest.mark.parametrize("factor", [0.1, 0.5, 1.0, 3.0])
def test_a_guess_that_is_the_factor_of_the_trail_is_outlined_as_its_band(factor):
    band, predicted = drawn(trail_of(7.0, *(0.01 * factor**place for place in range(6))), direction=0, factor=factor)
    for edge in ("top", "bottom"):
        assert predicted[edge].to_list() == pytest.approx(band.loc[predicted.index, edge].to_list())


@pytest.mark.parametrize("direction", [-1, 0, 1])
@pytest.mark.parametrize("readings", [(1.0, 1e-2, 1e-4, 1e-6), (1e-3, 1e-2, 1e-1, 1.0), (1.0, 1.0, 1.0)])
def test_a_direction_is_outlined_from_the_width_that_was_measured(readings, direction):
    band, predicted = drawn(trail_of(*readings), direction=direction)
    widths = (predicted["top"] - predicted["bottom"]).to_list()
    start = band.loc[predicted.index[0]]
    assert widths[0] == pytest.approx(start["top"] - start["bottom"])
    if direction < 0:
        assert widths[-1] == 0
    assert all((after > before) - (after < before) == direction for before, after in pairwise(widths))


@pytest.mark.parametrize("dark", [False, True])
def test_the_outline_is_cleared_away_where_a_number_stands(dark):
    trail = trail_of(1.0, 0.1, 0.01)
    river = charts.river({"one": trail}, dark=dark)
    figure = charts.with_prediction(river, layers=list(trail["layer"])[1:], direction=1, dark=dark)
    *outline, cleared = figure.vega_lite["layer"][: -len(river.vega_lite["layer"])]
    assert {layer["data"]["name"] for layer in outline} == {"predicted"}
    assert cleared["data"]["name"] == "numbers"
    assert cleared["encoding"]["color"]["value"] == cleared["mark"]["stroke"] == paper(dark)


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_an_outline_does_not_leave_the_picture(factor):
    band, predicted = drawn(trail_of(1.0, 0.1, 0.01, 0.001), direction=0, factor=factor)
    assert predicted["top"].max() <= 1.5 * band["top"].max()
    assert (predicted["top"] >= predicted["bottom"]).all()


def test_a_network_without_a_trend_is_not_said_to_be_shown_after_a_prediction(visit):
    page = visit("predict", gain="0")
    assert "There is no trend to ask about." in page.markdown
    assert "nothing to predict about this network" in page.markdown
    assert "until you commit" not in page.markdown
