"""The measure page: the readings as a table, the three stages, a matrix that becomes one number, the lines of code."""

import ast
import math
import re

import pandas
import pytest
import torch

from gradlab import build_network, charts, run_experiment
from gradlab.batches import loss_function, sample_input, target
from gradlab.charts.matrices import NUMBERS_UP_TO
from gradlab.lessons.questions import QUESTIONS
from gradlab.lessons.snippets import MEASUREMENT
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.ui.stages import SECTIONS, STAGES

NAN = re.compile(r"\bnan\b")  # and not a fingerprint's banana
SMALL = {}
WIDE = {"layer_sizes": "8x5", "activation": "relu", "seed": "3"}
WIDER = {"layer_sizes": "20-30-1"}
NOT_FINITE = {"layer_sizes": "3x21", "gain": "1e6", "activation": "identity"}
ALL_ZERO = {"initializer": "normal", "sigma_w": "0"}
EDGES = [
    {"layer_sizes": "1-1"},
    {"layer_sizes": "3x201"},
    {"layer_sizes": "4096-1"},
    {"loss": "output_sum", "batch_size": "3"},
    {"normalization": "batch_norm", "batch_size": "2", "sample_input": "standard_normal"},
    {"use_bias": "false", "capture_method": "full_backward_hooks"},
    NOT_FINITE,
    ALL_ZERO,
]


def weight_gradient(link, place):
    """The gradient of one layer's weight by plain autograd."""
    spec = ExperimentSpec.from_dict(link)
    network = build_network(spec)
    loss_function(spec)(network(sample_input(spec)), target(spec)).backward()
    (weight,) = [p for name, p in network.named_parameters() if name.startswith(f"layers.{place}.") and p.dim() == 2]
    return weight.grad


def on_matrix(visit, place=0, **link):
    return visit("measure", **link).set(measure_part="Matrix").set(measure_layer=f"layers.{place}")


def cells(page):
    """Of each of the matrix' pictures the cells by row and column."""
    frames = [page.layers(chart)[0][1] for chart in page.charts[1:]]
    return [{(row.row, row.column): row for row in frame.itertuples()} for frame in frames]


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["weights", "outputs"])
def test_the_table_holds_the_whole_numbers_that_the_chart_shows(visit, gradient):
    page = visit("measure", gradient=gradient)
    table = page.at.dataframe[0].value
    layers = table["parameter" if gradient == "weights" else "layer"].str.split(".").str[:2].str.join(".")
    linear = [True] * len(table) if gradient == "weights" else table["module_type"] == "Linear"
    assert dict(zip(layers[linear], table["mean_abs"][linear], strict=True)) == page.drawn
    assert list(layers) == sorted(layers)  # as printed: the first layer first


# --- the stages -------------------------------------------------------------------------------------------------------


def rows(page):
    """The small table of what exists, by the name of the row."""
    (table,) = [text.value for text in page.at.markdown if text.value.startswith("| after")]
    pairs = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return dict(pairs)


def test_before_the_loss_there_is_an_output_and_nothing_else(visit):
    there = rows(visit("measure"))
    (output,) = run_experiment(ExperimentSpec()).output[0]
    assert there == {
        "output (1 × 1)": f"**{short_number(output)}**",
        "loss": "not yet",
        "`.grad` of `layers.0.0.weight`": "`None`",
        "parameters that have a `.grad`": "**0 of 10**",
    }


def test_the_loss_is_one_number_and_still_no_gradient_exists(visit):
    page = visit("measure").set(stage="2 Loss")
    (output,) = run_experiment(ExperimentSpec()).output[0]
    assert rows(page)["loss"] == f"**{short_number(output**2)}**"  # the target is zero, the loss the mean squared error
    assert rows(page)["`.grad` of `layers.0.0.weight`"] == "`None`"
    assert "Mean squared error" in page.markdown
    assert "0 of 10" in page.markdown


def test_after_backward_every_parameter_has_a_gradient_of_its_own_shape(visit):
    there = rows(visit("measure").set(stage="3 Backward"))
    gradient = weight_gradient(SMALL, 0)
    low, high = short_number(gradient.min().item()), short_number(gradient.max().item())
    assert there["`.grad` of `layers.0.0.weight`"] == f"**3 × 3 numbers**, from {low} to {high}"
    assert there["parameters that have a `.grad`"] == "**10 of 10**"


def test_the_last_stage_says_where_the_gradient_arrived_first_and_last(visit):
    result = run_experiment(ExperimentSpec())
    page = visit("measure").set(stage="3 Backward")
    assert f"arrived at `{result.arrival_order[0]}`, the last at `{result.arrival_order[-1]}`" in page.markdown


def test_a_gradient_that_is_not_finite_is_counted_and_not_shown_as_a_number(visit):
    page = visit("measure", **NOT_FINITE).set(stage="3 Backward")
    assert rows(page)["`.grad` of `layers.0.0.weight`"] == "3 × 3 numbers, 9 of them NaN or infinite"
    assert not NAN.search(page.markdown)


def test_each_stage_asks_what_it_hands_on(visit):
    result = run_experiment(ExperimentSpec())
    page = visit("measure")
    for stage, key in zip(STAGES, ("forward_hands_on", "loss_hands_on", "backward_hands_on"), strict=True):
        page.set(stage=stage)
        (question,) = page.at.radio
        assert question.key.startswith(f"option_{key}_")
        posed = QUESTIONS[key].pose(result)
        assert posed.explanation not in page.markdown
        (right,) = posed.right
        page.answer(right)
        assert not page.at.radio
        assert posed.explanation in page.markdown


# --- the matrix -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [SMALL, WIDE], ids=["numbers", "signs"])
@pytest.mark.parametrize("place", [0, 3])
def test_the_cells_hold_the_gradient_and_its_absolute_values(visit, link, place):
    signed, absolute, _ = cells(on_matrix(visit, place, **link))
    gradient = weight_gradient(link, place)
    for (row, column), cell in signed.items():
        assert float(cell.value) == gradient[row, column].item()
        assert float(absolute[row, column].value) == abs(gradient[row, column].item())
    assert len(signed) == len(absolute) == gradient.numel()


@pytest.mark.parametrize("place", range(5))
def test_the_mean_of_the_absolute_values_is_the_reading_of_that_layer(visit, measured, place):
    page = on_matrix(visit, place)
    *_, mean = cells(page)
    (only,) = mean.values()
    assert float(only.value) == measured(ExperimentSpec())[f"layers.{place}"] == page.at.dataframe[0].value["mean_abs"][place]
    assert float(only.value) == pytest.approx(weight_gradient(SMALL, place).abs().mean().item(), rel=1e-6)
    assert only.text == short_number(float(only.value))
    assert f"become **{only.text}**" in page.markdown


@pytest.mark.parametrize("link", [SMALL, WIDE], ids=["numbers", "signs"])
def test_a_sign_is_a_character_and_not_only_a_colour(visit, link):
    signed, *_ = cells(on_matrix(visit, 1, **link))
    texts = {cell.text[0] for cell in signed.values() if float(cell.value) > 0}
    assert texts == {"+"}
    assert {cell.text[0] for cell in signed.values() if float(cell.value) < 0} <= {"−"}
    assert {cell.text for cell in signed.values() if float(cell.value) == 0} <= {"0"}
    assert all(math.copysign(1, cell.share) == math.copysign(1, float(cell.value)) for cell in signed.values())


def test_of_a_large_matrix_a_corner_is_shown_and_the_mean_is_that_of_all(visit, measured):
    page = on_matrix(visit, 0, **WIDER)
    signed, _, mean = cells(page)
    assert len(signed) == 12 * 12
    assert "Of 30 × 20 entries you see the first 12 × 12; the mean is that of all of them." in page.markdown
    (only,) = mean.values()
    assert float(only.value) == measured(ExperimentSpec.from_dict(WIDER))["layers.0"]
    assert float(only.value) == pytest.approx(weight_gradient(WIDER, 0).abs().mean().item(), rel=1e-6)


def test_without_a_finite_mean_there_is_a_sentence_instead(visit):
    page = on_matrix(visit, 0, **NOT_FINITE)
    assert len(page.charts) == 3
    assert "there is no mean" in page.markdown
    assert not {cell.text for cell in cells(page)[0].values()} - {"NaN", "∞", "−∞"}


def test_a_gradient_of_zeros_is_shown_as_zeros(visit):
    signed, absolute, mean = cells(on_matrix(visit, 0, **ALL_ZERO))
    assert {cell.text for matrix in (signed, absolute, mean) for cell in matrix.values()} == {"0"}
    assert {cell.share for cell in signed.values()} == {0.0}


def test_the_matrix_follows_the_network(visit):
    page = on_matrix(visit, 4)
    page.set(layer_sizes="3-3-1")
    assert page.widget("measure_layer").options == ["layers.0", "layers.1"]
    assert len(page.charts) == 4


def test_how_the_number_is_made_is_asked_under_the_matrix(visit):
    page = on_matrix(visit)
    (question,) = page.at.radio
    assert question.key.startswith("option_one_number_")
    posed = QUESTIONS["one_number"].pose(run_experiment(ExperimentSpec()))
    page.answer("norm")
    assert posed.reply("norm") in page.markdown


# --- the lines of code, and every part everywhere ---------------------------------------------------------------------


def test_the_lines_of_code_stand_there_as_they_are_with_their_notes(visit):
    page = visit("measure").set(measure_part="Lines of code")
    (code,) = page.at.code
    assert code.value == MEASUREMENT.code.strip()
    assert ast.parse(code.value)
    for note in MEASUREMENT.notes:
        assert f"- `{note.fragment}`: {note.text}" in page.markdown.replace("\\_", "_")


@pytest.mark.parametrize("link", EDGES, ids=lambda link: " ".join(link.values()))
def test_every_part_can_be_seen_on_every_network(visit, link):
    page = visit("measure", **link)
    for part in SECTIONS:
        page.set(measure_part=part)
        assert not NAN.search(page.markdown)
        for stage in STAGES if part == "Stages" else ():
            page.set(stage=stage)
            assert len(rows(page)) == 4


# --- cells ------------------------------------------------------------------------------------------------------------


def matrix_of(values, kind="signed", **options):
    unit = charts.unit_of(values)
    return charts.cells(values, unit=unit, kind=charts.Cells(kind), name="a layer", what="Gradient", **options)


@pytest.mark.parametrize("kind", charts.Cells)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [1, NUMBERS_UP_TO, NUMBERS_UP_TO + 1])
def test_the_specification_of_a_matrix_is_valid(kind, dark, size):
    figure = matrix_of([[0.5] * size] * 2, kind, dark=dark)
    assert figure.chart.to_dict(validate=True)
    assert "2 × " in figure.alt_text


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e30, 1e-300, 5e-324, 1.7e308])
def test_a_number_in_a_cell_is_the_entry_in_the_unit_of_the_axis(scale):
    values = [[scale, -scale, scale / 3, -scale / 2000, 0.0]]
    unit = charts.unit_of(values)
    for cell in pandas.DataFrame(matrix_of(values).data["cells"]).itertuples():
        shown = float(cell.text.replace("−", "-").replace("+", "", 1))
        exact = float(cell.value)
        assert (shown == 0) == (exact == 0)  # small is not shown as nothing
        assert shown * 10.0**unit.power == pytest.approx(exact, rel=0.1, abs=0.006 * 10.0**unit.power)


def test_what_is_no_number_has_a_name_or_a_mark_in_its_cell():
    values = [[math.nan, math.inf, -math.inf, 1.0]]
    texts = [cell["text"] for cell in matrix_of(values).data["cells"]]
    assert texts == ["NaN", "+∞", "−∞", "+1.00"]
    large = pandas.DataFrame(matrix_of([values[0] * 2]).data["cells"])
    assert large["text"].to_list() == ["△", "△", "△", "+"] * 2
    assert large["share"].to_list() == [0.0, 0.0, 0.0, 1.0] * 2


def contrast(one, other):
    """The contrast of two colours by WCAG 2."""

    def luminance(colour):
        parts = torch.tensor(colour, dtype=torch.float64)
        linear = torch.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ torch.tensor([0.2126, 0.7152, 0.0722], dtype=torch.float64))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def rgb(text):
    return [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", ["signed", "absolute"])
def test_text_can_be_read_on_every_shade(kind, dark):
    values = [[place / 50 for place in range(-50 if kind == "signed" else 0, 51)]]
    figure = matrix_of(values, kind, dark=dark)
    scale = figure.vega_lite["layer"][0]["encoding"]["color"]["scale"]
    for cell in pandas.DataFrame(figure.data["cells"]).itertuples():
        start = rgb(scale["range"][scale["domain"].index(0.0)])
        end = rgb(scale["range"][0 if cell.share < 0 else -1])
        shade = [a + (b - a) * abs(cell.share) for a, b in zip(start, end, strict=True)]
        assert contrast(shade, rgb(cell.ink)) >= 4.5
