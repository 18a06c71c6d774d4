"""The trail page: the order of arrival, the stepper, the marks."""

import math

import pytest

from gradlab.spec import ExperimentSpec


def sentence(page):
    (line,) = [line for line in page.markdown.splitlines() if line.startswith("**Arrival ")]
    return line


def filled(page):
    """The layers up to which the band is filled: those of the chart's rules."""
    return [row.layer for layer, data in page.layers() if layer["mark"]["type"] == "rule" for row in data.itertuples()]


def test_the_trail_starts_at_the_output_end_with_everything_arrived(visit):
    page = visit("trail")
    table = page.at.dataframe[0].value
    assert list(table["layer"]) == [f"layers.{place}" for place in (4, 3, 2, 1, 0)]
    assert sentence(page) == "**Arrival 5 of 5: layers.0**, 2.02e-4, 1.68 times the one before."
    assert filled(page) == list(table["layer"])


def test_each_ratio_is_a_reading_over_the_one_that_arrived_before(visit):
    table = visit("trail").at.dataframe[0].value
    assert math.isnan(table["ratio"][0])
    for place in range(1, 5):
        assert table["ratio"][place] == table["reading"][place] / table["reading"][place - 1]


def test_the_order_switch_turns_the_list_round_and_nothing_else(visit):
    page = visit("trail")
    arrival, picture = page.at.dataframe[0].value, page.chart.spec
    printed = page.set(order="printed").at.dataframe[0].value
    assert printed.reset_index(drop=True).equals(arrival.iloc[::-1].reset_index(drop=True))
    assert page.chart.spec == picture


def test_the_stepper_walks_in_both_directions_and_stops_at_the_ends(visit):
    page = visit("trail")
    seen = [page.click("arrivals_back").widget("arrivals").value for _ in range(6)]
    assert seen == [4, 3, 2, 1, 1, 1]
    assert sentence(page) == "**Arrival 1 of 5: layers.4**, 5.05e-3."
    seen = [page.click("arrivals_next").widget("arrivals").value for _ in range(6)]
    assert seen == [2, 3, 4, 5, 5, 5]
    assert page.click("arrivals_first").widget("arrivals").value == 1


@pytest.mark.parametrize("step", [1, 2, 5])
def test_the_band_is_filled_up_to_the_current_arrival(visit, step):
    page = visit("trail").set(arrivals=step)
    assert filled(page) == [f"layers.{place}" for place in (4, 3, 2, 1, 0)][:step]
    assert sentence(page).startswith(f"**Arrival {step} of 5: layers.{5 - step}**")
    assert len(page.drawn) == 5  # the rest of the band is there, only paler
    assert page.chart.alt.count("layers.") == step


def test_another_depth_starts_the_walk_anew(visit):
    page = visit("trail").set(arrivals=2)
    page.set(layer_sizes="3x9")
    assert page.widget("arrivals").value == 8
    page.set(arrivals=6)
    assert page.set(layer_sizes="3-3-1").widget("arrivals").value == 2


def test_the_walk_goes_on_where_the_depth_is_the_same(visit):
    page = visit("trail").set(arrivals=2)
    assert page.set(gradient="outputs", seed=5).widget("arrivals").value == 2


def test_of_a_single_layer_there_is_nothing_to_step_through(visit):
    page = visit("trail", layer_sizes="3-1")
    assert not page.at.slider
    assert not page.at.button
    assert sentence(page).startswith("**Arrival 1 of 1: layers.0**")
    assert page.set(layer_sizes="3-3-1").widget("arrivals").value == 2
    assert not page.set(layer_sizes="3-1").at.slider


def test_two_hundred_layers_can_be_walked(visit):
    page = visit("trail", layer_sizes="3x201", activation="identity", initializer="orthogonal")
    assert len(page.drawn) == 200
    page.set(arrivals=100)
    assert sentence(page).startswith("**Arrival 100 of 200: layers.100**")
    assert filled(page)[-1] == "layers.100"
    assert page.click("arrivals_next").widget("arrivals").value == 101
    assert len(page.chart.alt) < 1000


@pytest.mark.parametrize("page_name", ["measure", "trail"])
def test_gradients_that_are_exactly_zero_are_named_in_picture_text_and_table(visit, page_name):
    page = visit(page_name, initializer="normal", sigma_w="0")
    assert page.drawn == {}
    assert page.marks == {f"layers.{place}": "zero" for place in range(5)}
    assert page.chart.alt.count(" zero") == 5
    assert "□ exactly zero" in page.markdown
    assert "not measurable" in page.markdown
    assert set(page.at.dataframe[0].value["status"]) == {"all_zero"}


@pytest.mark.parametrize("page_name", ["measure", "trail"])
def test_gradients_that_are_not_finite_are_named_too(visit, page_name):
    page = visit(page_name, layer_sizes="3x21", gain="1e6", activation="identity")
    assert set(page.marks.values()) == {"non-finite"}
    assert "△ NaN or infinite" in page.markdown
    assert "non-finite" in page.chart.alt
    assert page.why == ""


def test_zeros_among_readings_are_marked_where_they_are(visit, measured):
    page = visit("trail", layer_sizes="3-4-4-1", activation="relu", seed="0")
    for seed in range(40):
        page.set(seed=seed)
        if page.marks and page.drawn:
            break
    assert page.drawn
    assert set(page.marks.values()) == {"zero"}
    table = page.at.dataframe[0].value
    assert list(table["layer"][table["reading"] == 0]) == list(page.marks)
    assert table["ratio"][table["reading"] == 0].isna().all()


def test_readings_down_to_the_smallest_number_there_is_are_drawn(visit, measured):
    link = {"layer_sizes": "1x201", "activation": "identity", "dtype": "float64", "gain": "0.1", "use_bias": "false"}
    page = visit("trail", **link, seed="1", gradient="outputs")
    readings = measured(ExperimentSpec.from_dict(link | {"seed": 1}), "outputs")
    assert min(reading for reading in readings.values() if reading > 0) == 5e-324
    assert page.drawn == {layer: reading for layer, reading in readings.items() if reading > 0}
