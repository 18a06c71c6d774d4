"""The trail page: the order is asked first; then the stepper, the list in four steps, and what moves."""

import json
import math
from itertools import pairwise

import pytest

from gradlab import run_experiment
from gradlab.diagnosis import diagnose
from gradlab.lessons.learning import Optimizer, weight_movement
from gradlab.lessons.questions import QUESTIONS, WORKED_EXAMPLE
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.ui.panels import SIGNS
from gradlab.ui.stepper import HOLDS_WITHIN

STEPS = [step.question for step in WORKED_EXAMPLE]


@pytest.fixture(name="follow")
def follow_fixture(visit):
    """Opens the page after the order of arrival was asked, of a network that has one."""

    def open_page(**link):
        return visit("trail").answer("output_first").go("trail", **link)

    return open_page


def asked(page):
    """The keys of the questions that are open."""
    return [radio.key.removeprefix("option_").rsplit("_", 1)[0] for radio in page.at.radio]


def right(question, **changes):
    """An answer that the measurement bears out."""
    return min(QUESTIONS[question].pose(run_experiment(ExperimentSpec().replace(**changes))).right)


def part(page, name):
    return page.set(trail_part=name)


def sentence(page):
    (line,) = [line for line in page.markdown.splitlines() if line.startswith("**Arrival ")]
    return line


def filled(page):
    """The layers up to which the band is filled: those of the chart's rules."""
    return [row.layer for layer, data in page.layers() if layer["mark"]["type"] == "rule" for row in data.itertuples()]


# --- the order is asked first -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [{}, {"layer_sizes": "8x13", "gradient": "outputs"}, {"order": "printed"}])
def test_nothing_shows_the_order_of_arrival_before_it_was_asked(visit, measured, link):
    page = visit("trail", **link)
    assert asked(page) == ["visit_order"]
    spec = ExperimentSpec.from_dict({name: text for name, text in link.items() if name == "layer_sizes"})
    assert page.drawn == measured(spec, link.get("gradient", "weights"))
    printed = [f"layers.{place}" for place in range(spec.network.depth)]
    table = page.at.dataframe[0].value
    assert list(table["layer"]) == printed
    assert not {"step", "ratio", "going", "backward_index"} & set(table)
    keys = {widget.key for widget in page.widgets}
    assert not {"arrivals", "arrivals_first", "setting_order", "trail_part"} & keys
    shown = json.dumps(json.loads(page.chart.spec)) + page.markdown
    assert "arriv" not in shown.lower().replace("no gradient arrived", "")
    assert not [sign for sign in SIGNS.values() if sign in page.markdown]


def test_an_answer_without_a_choice_opens_nothing(visit):
    page = visit("trail")
    (commit,) = [button.key for button in page.at.button if button.key.startswith("FormSubmitter:")]
    page.click(commit)
    assert "Choose an answer and how sure you are" in page.markdown
    assert "arrivals" not in {widget.key for widget in page.widgets}


@pytest.mark.parametrize("answer", ["output_first", "input_first", "at_once"])
def test_any_answer_opens_the_river_and_is_kept(visit, answer):
    page = visit("trail").answer(answer)
    assert filled(page) == [f"layers.{place}" for place in (4, 3, 2, 1, 0)]
    assert ("✓ That is what was measured" in page.markdown) == (answer == "output_first")
    assert asked(page) == ["last_layer"]
    assert asked(page.go("trail")) == ["last_layer"]


def test_the_order_once_asked_stays_open_for_every_network(follow):
    page = follow(layer_sizes="8x13", seed="4")
    assert len(filled(page)) == 12
    assert asked(page) == ["last_layer"]
    assert asked(page.answer(right("last_layer", layer_sizes="8x13", seed=4))) == ["steepest_step"]
    assert asked(page.set(seed=5)) == ["steepest_step"]


def test_the_steepest_step_is_asked_of_the_gradients_it_is_about(follow):
    page = follow().answer("input_end")
    assert asked(page) == ["steepest_step"]
    assert asked(page.set(gradient="outputs")) == []
    page.set(gradient="weights").answer(right("steepest_step"))
    assert asked(page) == []
    assert "The lowest ratio is" in page.markdown


def test_a_network_with_no_order_to_ask_about_is_shown_at_once(visit):
    page = visit("trail", layer_sizes="3-3-1")
    assert asked(page) == []
    assert "This needs at least 3 layers" in page.markdown
    assert filled(page) == ["layers.1", "layers.0"]
    part(page, "What it does to learning")
    assert "no trend over hidden layers" in page.markdown
    assert asked(page.set(layer_sizes="3-3-3-1")) == ["visit_order"]


# --- the stepper ------------------------------------------------------------------------------------------------------


def test_the_trail_starts_at_the_output_end_with_everything_arrived(follow):
    page = follow()
    table = page.at.dataframe[0].value
    assert list(table["layer"]) == [f"layers.{place}" for place in (4, 3, 2, 1, 0)]
    assert sentence(page) == "**Arrival 5 of 5: layers.0**, 2.02e-4, 1.68 times the one before: ↗ grows."
    assert filled(page) == list(table["layer"])


def test_each_ratio_is_a_reading_over_the_one_that_arrived_before(follow):
    table = follow().at.dataframe[0].value
    assert math.isnan(table["ratio"][0])
    for place in range(1, 5):
        assert table["ratio"][place] == table["reading"][place] / table["reading"][place - 1]


def test_each_step_has_a_word_that_its_ratio_bears_out(follow):
    page = follow(layer_sizes="6x21", activation="tanh", seed="3")
    table = page.at.dataframe[0].value
    for ratio, word in zip(table["ratio"][1:], table["going"][1:], strict=True):
        holds = max(ratio, 1 / ratio) <= HOLDS_WITHIN
        assert word == ("→ holds" if holds else "↘ thins out" if ratio < 1 else "↗ grows")
    counts = [list(table["going"]).count(word) for word in ("↘ thins out", "→ holds", "↗ grows")]
    assert sum(counts) == 19
    assert (
        "Of 19 ratios, {} lie below 0.8 (thins out), {} from there to 1.25 (holds), {} above".format(*counts) in page.markdown
    )


def test_the_order_switch_turns_the_list_round_and_nothing_else(follow):
    page = follow()
    arrival, picture = page.at.dataframe[0].value, page.chart.spec
    printed = page.set(order="printed").at.dataframe[0].value
    assert printed.reset_index(drop=True).equals(arrival.iloc[::-1].reset_index(drop=True))
    assert page.chart.spec == picture


def test_the_stepper_walks_in_both_directions_and_stops_at_the_ends(follow):
    page = follow()
    seen = [page.click("arrivals_back").widget("arrivals").value for _ in range(6)]
    assert seen == [4, 3, 2, 1, 1, 1]
    assert sentence(page) == "**Arrival 1 of 5: layers.4**, 5.05e-3."
    seen = [page.click("arrivals_next").widget("arrivals").value for _ in range(6)]
    assert seen == [2, 3, 4, 5, 5, 5]
    assert page.click("arrivals_first").widget("arrivals").value == 1


@pytest.mark.parametrize("step", [1, 2, 5])
def test_the_band_is_filled_up_to_the_current_arrival(follow, step):
    page = follow().set(arrivals=step)
    assert filled(page) == [f"layers.{place}" for place in (4, 3, 2, 1, 0)][:step]
    assert sentence(page).startswith(f"**Arrival {step} of 5: layers.{5 - step}**")
    assert len(page.drawn) == 5  # the rest of the band is there, only paler
    assert page.chart.alt.count("layers.") == step


def test_another_depth_starts_the_walk_anew(follow):
    page = follow().set(arrivals=2)
    page.set(layer_sizes="3x9")
    assert page.widget("arrivals").value == 8
    page.set(arrivals=6)
    assert page.set(layer_sizes="3-3-1").widget("arrivals").value == 2


def test_the_walk_goes_on_where_the_depth_is_the_same(follow):
    page = follow().set(arrivals=2)
    assert page.set(gradient="outputs", seed=5).widget("arrivals").value == 2


def test_of_a_single_layer_there_is_nothing_to_step_through(visit):
    page = visit("trail", layer_sizes="3-1")
    assert not page.at.slider
    assert not [button for button in page.at.button if button.key.startswith("arrivals")]
    assert sentence(page).startswith("**Arrival 1 of 1: layers.0**")
    assert page.set(layer_sizes="3-3-1").widget("arrivals").value == 2
    assert not page.set(layer_sizes="3-1").at.slider


def test_two_hundred_layers_can_be_walked(follow):
    page = follow(layer_sizes="3x201", activation="identity", initializer="orthogonal")
    assert len(page.drawn) == 200
    page.set(arrivals=100)
    assert sentence(page).startswith("**Arrival 100 of 200: layers.100**")
    assert filled(page)[-1] == "layers.100"
    assert page.click("arrivals_next").widget("arrivals").value == 101
    assert len(page.chart.alt) < 1000


@pytest.mark.parametrize("page_name", ["measure", "trail"])
def test_gradients_that_are_exactly_zero_are_named_in_picture_text_and_table(visit, page_name):
    page = visit("trail").answer("at_once").go(page_name, initializer="normal", sigma_w="0")
    assert page.drawn == {}
    assert page.marks == {f"layers.{place}": "zero" for place in range(5)}
    assert page.chart.alt.count(" zero") == 5
    assert "□ exactly zero" in page.markdown
    assert "not measurable" in page.markdown
    assert set(page.at.dataframe[0].value["status"]) == {"all zero"}


@pytest.mark.parametrize("page_name", ["measure", "trail"])
def test_gradients_that_are_not_finite_are_named_too(visit, page_name):
    page = visit("trail").answer("at_once").go(page_name, layer_sizes="3x21", gain="1e6", activation="identity")
    assert set(page.marks.values()) == {"non-finite"}
    assert "△ NaN or infinite" in page.markdown
    assert "non-finite" in page.chart.alt
    assert page.why == ""


def test_zeros_among_readings_are_marked_where_they_are(follow, measured):
    page = follow(layer_sizes="3-4-4-1", activation="relu", seed="0")
    for seed in range(40):
        page.set(seed=seed)
        if page.marks and page.drawn:
            break
    assert page.drawn
    assert set(page.marks.values()) == {"zero"}
    table = page.at.dataframe[0].value
    assert list(table["layer"][table["reading"] == 0]) == list(page.marks)
    assert table["ratio"][table["reading"] == 0].isna().all()


def test_readings_down_to_the_smallest_number_there_is_are_drawn(follow, measured):
    link = {"layer_sizes": "1x201", "activation": "identity", "dtype": "float64", "gain": "0.1", "use_bias": "false"}
    page = follow(**link, seed="1", gradient="outputs")
    readings = measured(ExperimentSpec.from_dict(link | {"seed": 1}), "outputs")
    assert min(reading for reading in readings.values() if reading > 0) == 5e-324
    assert page.drawn == {layer: reading for layer, reading in readings.items() if reading > 0}


# --- reading a printed list -------------------------------------------------------------------------------------------


def lines(page):
    """The printed list, line by line."""
    return page.at.code[0].value.splitlines()


def test_the_worked_example_reads_the_list_at_hand_in_four_steps(follow, measured):
    page, readings = part(follow(), "Read a list"), measured(ExperimentSpec())
    listed = {layer: short_number(value) for layer, value in readings.items()}
    assert [line.split() for line in lines(page)] == [[f"{layer}.0.weight", reading] for layer, reading in listed.items()]
    for place, step in enumerate(STEPS):
        assert asked(page) == [step]
        assert f"Step {place + 1} of 4. {WORKED_EXAMPLE[place].instruction}" in page.markdown
        assert not [sign for sign in SIGNS.values() if sign in page.markdown]
        page.answer(right(step))
    assert asked(page) == []
    assert page.markdown.count("✓ That is what was measured") == 4
    fitted = diagnose(run_experiment(ExperimentSpec()), gradient="weights").fitted_layers
    assert [line[0] for line in lines(page)] == ["▶", *"││││"]
    assert [line.split()[1] for line in lines(page) if line[0] == "│"] == [f"{layer}.weight" for layer in fitted[::-1]]
    values = list(readings.values())[::-1]
    ratios = [short_number(later / earlier) for earlier, later in pairwise(values)]
    assert [line.split("× ")[1] for line in lines(page)[1:]] == ratios
    assert "weakening" in page.markdown  # the headline, after the last step


def test_a_wrong_step_is_refuted_with_the_list_and_the_next_one_follows(follow):
    page = part(follow(), "Read a list").answer("top")
    assert "✗ That is not what was measured" in page.markdown
    assert asked(page) == ["worked_start"]
    assert lines(page)[0].split()[0] == "layers.4.0.weight"


def test_the_list_is_that_of_the_weight_gradients_whichever_are_followed(follow, measured):
    page = part(follow(gradient="outputs"), "Read a list")
    assert page.drawn == measured(ExperimentSpec())
    assert "weight gradients" in page.markdown
    assert part(page, "Follow").drawn == measured(ExperimentSpec(), "outputs")
    assert page.link == {"seed": "123", "gradient": "outputs"}


def test_where_there_is_no_trend_the_steps_end_with_the_reason(follow):
    page = part(follow(layer_sizes="3-4-5-1"), "Read a list")
    page.answer("bottom").answer("output_end")
    assert asked(page) == []
    assert "There is no trend to ask about" in page.markdown


def test_of_a_long_list_the_middle_is_left_out_and_counted(follow):
    page = part(follow(layer_sizes="3x201", activation="identity", initializer="orthogonal"), "Read a list")
    assert len(lines(page)) == 15
    assert lines(page)[7].split() == ["…", "186", "more", "…"]
    assert lines(page)[-1].split()[0] == "layers.199.0.weight"


# --- what it does to learning -----------------------------------------------------------------------------------------


def moved(page):
    """Optimiser -> layer -> what is drawn."""
    rows = [row for layer, data in page.layers() if layer["mark"]["type"] == "point" for row in data.itertuples()]
    return {name: {row.layer: row.mark or row.reading for row in rows if row.trail == name} for name in ("SGD", "Adam")}


@pytest.mark.parametrize("steps", ["1", "5", "20"])
def test_the_picture_shows_how_far_every_layer_moved(follow, steps):
    page = part(follow(), "What it does to learning").set(trail_steps=steps)
    for optimizer, name in ((Optimizer.SGD, "SGD"), (Optimizer.ADAM, "Adam")):
        rows = weight_movement(ExperimentSpec(), int(steps), optimizer)
        assert moved(page)[name] == {row.layer: row.relative_movement for row in rows}
    assert "After one step" in page.markdown if steps == "1" else f"After {steps} steps" in page.markdown


def test_what_moves_by_nothing_or_cannot_be_told_is_named(follow):
    page = part(follow(initializer="normal", sigma_w="0", layer_sizes="4x8"), "What it does to learning")
    assert set(moved(page)["SGD"].values()) == {"missing"}
    assert "the weights were all zero or are no longer finite" in page.markdown
    page.set(initializer="pytorch_default", activation="sigmoid", layer_sizes="32x12-1")
    assert "zero" in moved(page)["SGD"].values()
    assert "exactly nothing at" in page.markdown
    assert "□ moved by exactly nothing" in page.markdown


def test_what_takes_too_long_is_refused_with_a_reason_and_the_readings(follow, measured):
    page = part(follow(layer_sizes="1500x4"), "What it does to learning").set(trail_steps="20")
    assert "take too long" in page.markdown
    assert page.drawn == measured(ExperimentSpec().replace(layer_sizes="1500x4"))
