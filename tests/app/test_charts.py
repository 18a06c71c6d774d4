"""The charts: their specification is valid, their words hold the data, and what a logarithm cannot show has a mark."""

import math
from itertools import pairwise

import altair
import pandas
import pytest

from gradlab import charts, run_experiment
from gradlab.charts import HUES, MARK_SHAPES, NUMBERS_SHOWN
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.trail import Quantity, backward_trail

STATUS = {"": "ok", "zero": "all_zero", "missing": "no_gradient", "non-finite": "non_finite"}
UNSEEN = {"zero": 0.0, "missing": math.nan, "non-finite": math.nan}
HOSTILE = "<img src=x onerror=alert(1)> [a](javascript:alert(1)) \" ' \\ \u202e"


def trail_of(*readings):
    """A trail in order of arrival, made of readings above zero and of marks."""
    marks = [reading if isinstance(reading, str) else "" for reading in readings]
    values = [UNSEEN.get(reading, reading) for reading in readings]
    layers = [f"layers.{place}" for place in reversed(range(len(readings)))]
    return pandas.DataFrame(
        {
            "step": range(1, len(readings) + 1),
            "layer": layers,
            "name": [f"{layer}.0.weight" for layer in layers],
            "reading": values,
            "ratio": [math.nan, *(after / before if before else math.nan for before, after in pairwise(values))],
            "mark": marks,
            "status": [STATUS[mark] for mark in marks],
        }
    )


def measured(spec, quantity=Quantity.WEIGHTS):
    return backward_trail(run_experiment(spec), quantity)


def river(trail, **options):
    return charts.river({"A network": trail}, **options)


def readings(trail, **options):
    return charts.readings(trail, title="mean |gradient|", **options)


def layers(figure):
    """The layers of a chart, each as its specification and the rows of its data."""
    specification = figure.chart.to_dict()
    data = specification["datasets"]
    return [(layer, data[(layer.get("data") or specification["data"])["name"]]) for layer in specification["layer"]]


def of_kind(figure, kind):
    return [(layer, rows) for layer, rows in layers(figure) if layer["mark"]["type"] == kind]


def symbols(figure):
    """Layer -> mark, as drawn in the shapes that stand for what the scale cannot show."""
    return {row["layer"]: row["mark"] for layer, rows in layers(figure) if marked(layer) for row in rows}


def marked(layer):
    return layer["encoding"].get("shape", {}).get("field") == "mark"


TRAILS = {
    "one layer": trail_of(0.5),
    "one zero": trail_of("zero"),
    "ordinary": trail_of(5e-3, 1.4e-3, 7.2e-4, 2e-4),
    "equal": trail_of(0.1, 0.1, 0.1),
    "some of each": trail_of(1.0, "zero", 1e-3, "missing", "non-finite", 1e-9),
    "at the ends": trail_of("missing", 1.0, 2.0, "zero"),
    "nothing to draw": trail_of("zero", "missing", "non-finite"),
    "denormal": trail_of(1e-45, 5e-324, 1e-310),
    "huge": trail_of(1.7e308, 1e38, 1e-300),
    "two hundred": trail_of(*(0.9**place for place in range(200))),
}
each_trail = pytest.mark.parametrize("trail", TRAILS.values(), ids=list(TRAILS))
each_figure = pytest.mark.parametrize("figure", [river, readings])


@each_trail
@each_figure
def test_a_specification_is_valid(figure, trail):
    specification = figure(trail).chart.to_dict(validate=True)
    assert altair.LayerChart.from_dict(specification)


@each_trail
@each_figure
def test_a_chart_leaves_the_frame_as_it_was(figure, trail):
    before = trail.copy(deep=True)
    figure(trail)
    pandas.testing.assert_frame_equal(trail, before)


@each_trail
def test_nothing_without_a_logarithm_stands_on_a_logarithmic_axis(trail):
    for layer, rows in layers(readings(trail)):
        if layer["encoding"]["y"].get("scale", {}).get("type") == "log":
            assert all(row["reading"] > 0 and math.isfinite(row["reading"]) for row in rows)


def y_ends(figure):
    (ends,) = {
        tuple(layer["encoding"]["y"]["scale"]["domain"])
        for layer, _ in layers(figure)
        if layer["encoding"].get("y", {}).get("scale", {}).get("type") == "log"
    }
    return ends


@each_trail
def test_an_axis_holds_every_reading_and_spans_a_power_of_ten_at_least(trail):
    low, high = y_ends(readings(trail))
    assert 0 < low < high < math.inf
    assert high / low > 9.99
    drawn = trail.loc[trail["mark"] == "", "reading"]
    assert ((drawn >= low * (1 - 1e-9)) & (drawn <= high * (1 + 1e-9))).all()


def test_what_rounding_makes_of_equal_readings_is_drawn_as_a_level_line():
    low, high = y_ends(readings(trail_of(0.3, 0.30000001, 0.29999999)))
    assert low == pytest.approx(0.3 / 10**0.5)
    assert high == pytest.approx(0.3 * 10**0.5)


@each_trail
def test_every_edge_of_a_band_is_a_number(trail):
    for layer, rows in layers(river(trail)):
        fields = [layer["encoding"][channel]["field"] for channel in ("y", "y2") if channel in layer["encoding"]]
        assert all(row[field] is not None and math.isfinite(row[field]) for row in rows for field in fields)


@each_trail
@each_figure
def test_zero_missing_and_non_finite_have_marks_of_their_own(figure, trail):
    drawn = figure(trail)
    expected = {row.layer: row.mark for row in trail.itertuples() if row.mark}
    assert symbols(drawn) == expected
    for mark, words in {"zero": "□ exactly zero", "missing": "+ no gradient", "non-finite": "△ NaN or infinite"}.items():
        assert (words in drawn.how_to_read) == (mark in expected.values())


def test_the_three_marks_have_three_shapes():
    assert set(MARK_SHAPES) == set(STATUS) - {""}
    assert len(set(MARK_SHAPES.values())) == 3
    (layer,) = [layer for layer, _ in layers(river(TRAILS["some of each"])) if marked(layer)]
    scale = layer["encoding"]["shape"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == MARK_SHAPES


@each_figure
def test_the_alt_text_holds_the_data(figure):
    assert figure(TRAILS["some of each"]).alt_text.endswith(
        "from the output end to the input end: layers.5 1.00, layers.4 zero, layers.3 1.00e-3, layers.2 missing,"
        " layers.1 non-finite, layers.0 1.00e-9"
    )


@each_figure
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("quantity", Quantity)
def test_the_alt_text_holds_what_was_measured(figure, name, quantity):
    trail = measured(PRESETS[name].spec, quantity)
    text = figure(trail).alt_text
    assert len(text) < 600
    every = math.ceil(len(trail) / 12)
    for row in trail.iloc[::every].itertuples():
        assert f"{row.layer} {row.mark or short_number(row.reading)}" in text


def test_the_alt_text_of_two_networks_names_both():
    text = charts.river({"Plain": trail_of(0.1), "With shortcuts": trail_of(0.25)}).alt_text
    assert text == (
        "Plain, mean absolute gradient from the output end to the input end: layers.0 0.100."
        " With shortcuts, mean absolute gradient from the output end to the input end: layers.0 0.250"
    )


def test_a_band_is_as_wide_as_the_logarithm_of_its_reading():
    trails = {"Plain": trail_of(1e-1, 1e-2, 1e-4), "Other": trail_of(1e-2, 1e-3, 1.0)}
    (_, rows) = of_kind(charts.river(trails), "rule")[0]
    powers_of_ten = {row["top"] - row["bottom"] for row in rows if row["reading"] == 1e-2}
    assert max(powers_of_ten) == pytest.approx(min(powers_of_ten))  # one scale for both
    widths = {row["reading"]: row["top"] - row["bottom"] for row in rows}
    assert widths[1e-4] > 0
    assert widths[1e-1] - widths[1e-2] == pytest.approx(widths[1e-2] - widths[1e-3])
    assert max(widths.values()) == widths[1.0]
    assert all(row["top"] - row["middle"] == pytest.approx(row["middle"] - row["bottom"]) for row in rows)


def test_bands_of_two_networks_lie_apart():
    _, rows = of_kind(charts.river({"Plain": trail_of(1.0, 0.1), "Other": trail_of(1.0, 0.1)}), "rule")[0]
    assert min(row["bottom"] for row in rows if row["trail"] == "Plain") > max(
        row["top"] for row in rows if row["trail"] == "Other"
    )


def test_a_band_breaks_where_there_is_nothing_to_draw():
    (_, rows), *_ = of_kind(river(trail_of(1.0, 0.5, "zero", 0.2, "missing", 0.1)), "area")
    pieces = [row["stretch"] for row in rows]
    assert pieces[0] == pieces[1]
    assert len(set(pieces)) == 3


def test_layers_stand_in_the_order_of_arrival_or_as_printed():
    trail = TRAILS["ordinary"]
    for drawn, order in (
        (river(trail), list(trail["layer"])),
        (readings(trail), list(trail["layer"])),
        (readings(trail, printed_order=True), list(trail["layer"])[::-1]),
    ):
        assert all(layer["encoding"]["x"]["sort"] == order for layer, _ in layers(drawn))


@pytest.mark.parametrize("arrived", [1, 3, 6])
def test_only_what_has_arrived_is_filled_marked_and_said(arrived):
    trail = TRAILS["some of each"]
    drawn = river(trail, arrived=arrived)
    here = trail[trail["step"] <= arrived]
    (_, pale), (_, filled) = of_kind(drawn, "area")
    assert [row["layer"] for row in pale] == list(trail["layer"][trail["mark"] == ""])
    assert [row["layer"] for row in filled] == list(here["layer"][here["mark"] == ""])
    assert set(symbols(drawn)) == set(here["layer"][here["mark"] != ""])
    assert drawn.alt_text.count("layers.") == arrived


def test_every_layer_has_its_number_and_of_many_layers_some():
    _, numbers = of_kind(river(TRAILS["ordinary"]), "text")[0]
    assert [row["number"] for row in numbers] == ["5.00e-3", "1.40e-3", "7.20e-4", "2.00e-4"]
    _, numbers = of_kind(river(TRAILS["two hundred"]), "text")[0]
    assert 5 <= len(numbers) <= NUMBERS_SHOWN
    _, numbers = of_kind(river(TRAILS["two hundred"], arrived=102), "text")[0]
    assert numbers[-1]["layer"] == "layers.98"  # the latest arrival has one too


@pytest.mark.parametrize(("count", "least"), [(5, 30), (40, 20), (200, 20)])
def test_at_either_end_of_the_layers_there_is_room_for_a_name_on_a_phone(count, least):
    for figure in (river(trail_of(*[1.0] * count)), readings(trail_of(*[1.0] * count))):
        padding = figure.vega_lite["layer"][0]["encoding"]["x"]["scale"]["padding"]
        assert 350 * padding / (count - 1 + 2 * padding) >= least  # pixels
        assert "$end_room" not in str(figure.vega_lite)


def test_of_many_layers_nothing_is_filled_before_they_are_measured():
    few, many = (charts.unmeasured([f"layers.{place}" for place in range(count)]).data for count in (40, 200))
    assert len(few["ruled"]) == 40
    assert len(many["ruled"]) <= NUMBERS_SHOWN
    assert len(many["layers"]) == 200


def test_hovering_shows_every_digit():
    for figure in (river, readings):
        tooltips = [tip for layer, _ in layers(figure(TRAILS["ordinary"])) for tip in layer["encoding"].get("tooltip", [])]
        assert [tip["format"] for tip in tooltips if tip["field"] == "reading"] == [".17~g"]


def test_a_chart_keeps_its_height_when_marks_appear_or_layers_are_many():
    for figure in (river, readings):
        assert len({figure(trail).chart.to_dict()["height"] for trail in TRAILS.values()}) == 1


def test_names_are_data_and_never_code():
    trail = trail_of(1.0, "zero").assign(layer=[HOSTILE, f"{HOSTILE}2"])
    for figure in (charts.river({HOSTILE: trail, "other": trail}), charts.readings(trail, title=HOSTILE)):
        assert {"href", "url", "expr", "signal", "image"}.isdisjoint(keys_and_marks(figure.chart.to_dict()))


def keys_and_marks(node):
    """Every key in a specification, and every kind of mark; not the rows of its data."""
    if isinstance(node, dict):
        found = {node["type"]} if isinstance(node.get("type"), str) else set()
        return found.union(node, *(keys_and_marks(value) for name, value in node.items() if name != "datasets"))
    return set().union(*map(keys_and_marks, node)) if isinstance(node, list) else set()


def luminance(color):
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """The contrast of WCAG 2, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("dark", "background"), [(False, "#ffffff"), (True, "#0e1117")])
def test_text_is_legible_and_bands_are_visible_on_both_backgrounds(dark, background):
    for hue in HUES:
        band, text = hue.of(dark)
        assert contrast(text, background) >= 4.5
        assert contrast(band, background) >= 3


def test_the_two_networks_have_two_colours_in_both_themes():
    trail = TRAILS["ordinary"]
    for dark in (False, True):
        (layer, _), *_ = of_kind(charts.river({"one": trail, "other": trail}, dark=dark), "area")
        assert layer["encoding"]["color"]["scale"]["range"] == [hue.of(dark)[0] for hue in HUES]


def test_the_reference_network_has_the_published_readings():
    (_, rows), *_ = of_kind(readings(measured(ExperimentSpec())), "point")
    published = {"layers.4": 5.0496454e-3, "layers.3": 1.3988736e-3, "layers.2": 7.1520399e-4, "layers.1": 1.2011160e-4}
    found = {row["layer"]: row["reading"] for row in rows}
    assert found == pytest.approx(published | {"layers.0": 2.0173588e-4}, rel=1e-5)
