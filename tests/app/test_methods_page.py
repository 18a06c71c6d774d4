"""The capture page: a grid that fills as situations are tried, and the lines whose output the table repeats."""

import contextlib
import io
import re

import pytest
import torch

from gradlab.capture import CAPTURE_METHODS
from gradlab.charts import OutcomeCell, outcomes
from gradlab.lessons.methods import SITUATIONS, by_hand, side_by_side, true_norm
from gradlab.lessons.snippets import CAPTURES
from gradlab.spec import CaptureMethod
from gradlab.text import short_number
from gradlab.ui.methods import SIGNS, SPEC

WAYS = {"Lab's capture": side_by_side, "Lines by hand": by_hand}
METHODS = [CAPTURE_METHODS[method].title for method in CaptureMethod]


def grid(page):
    """Situation -> method -> what its cell says."""
    _, cells = page.layers()[0]
    return {
        title: {row.method: row.text for row in cells.itertuples() if row.situation == title} for title in cells["situation"]
    }


def code_on(page):
    return "\n".join(block.value for block in page.at.code)


def answered(page):
    """The page after both questions on the situations."""
    return page.answer("same").answer("tensor_hooks")


def test_at_first_one_situation_is_measured_and_how_the_numbers_compare_is_asked(visit):
    page = visit("methods")
    assert list(grid(page)) == [situation.title for situation in SITUATIONS.values()]
    assert grid(page)["Ordinary layer"] == dict.fromkeys(METHODS, "• a number")
    assert {text for title, row in grid(page).items() for text in row.values() if title != "Ordinary layer"} == {"?"}
    assert "= equal" not in page.markdown
    assert page.at.radio[0].key.startswith("option_method_same_number")
    page.answer("rounding")
    assert "✗ That is not what was measured." in page.markdown
    assert grid(page)["Ordinary layer"] == dict.fromkeys(METHODS, "= equal")


@pytest.mark.parametrize("way", WAYS)
def test_what_an_in_place_activation_does_is_not_told_before_it_is_asked(visit, way):
    page = visit("methods").set(methods_situation="in_place", methods_way=way)
    assert set(grid(page)["In-place activation"].values()) == {"? asked"}
    told = [cell.words for cell in WAYS[way]("in_place")]
    seen = page.markdown + page.chart.alt + str(page.layers()[0][1]["words"].to_list())
    assert not [words for words in told if words in seen]
    answered(page)
    assert all(words in page.markdown for words in told)


@pytest.mark.parametrize("way", WAYS)
def test_the_filled_grid_is_what_each_method_gives_in_each_situation(visit, way):
    page = answered(visit("methods")).set(methods_way=way).click("methods_all")
    for key, situation in SITUATIONS.items():
        expected = {CAPTURE_METHODS[cell.method].title: SIGNS[cell.outcome] for cell in WAYS[way](key)}
        assert grid(page)[situation.title] == expected


@pytest.mark.parametrize("dark", [False, True])
def test_the_grid_is_a_valid_picture_whose_words_name_every_cell(dark):
    cells = [OutcomeCell(row, column, f"{row}{column}", "right", "") for row in "abc" for column in "xyz"]
    drawn = outcomes(cells, at_hand="b", dark=dark)
    data = drawn.chart.to_dict()["datasets"]
    assert data["at_hand"] == [row for row in data["cells"] if row["situation"] == "b"]
    assert len(data["cells"]) == 9
    assert all(f"{cell.method} {cell.text}" in drawn.alt_text for cell in cells)


def test_what_was_tried_stays_in_the_grid(visit):
    page = answered(visit("methods")).set(methods_situation="detached").set(methods_situation="no_grad")
    assert {title for title, row in grid(page).items() if "?" not in row.values()} == {
        SITUATIONS[key].title for key in ("ordinary", "detached", "no_grad")
    }
    page.go("mistakes").go("methods")
    assert "?" not in grid(page)["Detached branch"].values()


@pytest.mark.parametrize("situation", ["ordinary", "in_place", "used_twice", "detached"])
@pytest.mark.parametrize("way", WAYS)
def test_each_number_stands_beside_the_one_without_any_hook(visit, situation, way):
    page = answered(visit("methods")).set(methods_situation=situation, methods_way=way)
    truth = true_norm(situation)
    there = "no gradient there" if truth is None else f"norm **{short_number(truth)}**"
    assert f"`torch.autograd.grad`, without any hook: {there}." in page.markdown
    found = re.findall(r"^Norm \*\*(.+)\*\*$", page.markdown, re.MULTILINE)
    assert found == [short_number(cell.value) for cell in WAYS[way](situation) if cell.value is not None]


def printed(method):
    """Layer -> shape and norm, as the lines print them."""
    out = io.StringIO()
    with torch.random.fork_rng(), contextlib.redirect_stdout(out):
        exec(CAPTURES[method].code, {})
    rows = [re.fullmatch(r"(\w+) +\((\d+), (\d+)\) +(\S+)", line).groups() for line in out.getvalue().splitlines()]
    return {name: (f"{height} × {width}", norm) for name, height, width, norm in rows}


@pytest.mark.parametrize("method", CaptureMethod)
def test_the_table_repeats_what_the_lines_print(visit, method):
    page = answered(visit("methods")).set(methods_lines=method)
    if page.at.radio:
        assert CAPTURES[method].code not in code_on(page)
        page.answer({"full_backward_hooks": "none", "retain_grad": "retain_grad"}[method])
    assert CAPTURES[method].code.strip() in code_on(page)
    table = page.at.dataframe[0].value
    rows = {row.layer.split(" ")[0]: (row.shape, row.norm) for row in table.itertuples()}
    assert list(rows) == ["fc1", "relu", "fc2"]
    lines = printed(method)
    assert lines
    assert {name: rows[name] for name in lines} == lines


@pytest.mark.parametrize("method", ["full_backward_hooks", "retain_grad"])
def test_lines_that_answer_a_question_wait_for_it(visit, method):
    page = visit("methods").set(methods_lines=method)
    assert not page.at.code
    assert len(page.at.radio) == 1  # one question at a time: those on the situations come first
    answered(page)
    assert not page.at.code
    assert page.at.radio[0].key.startswith("option_method_")


def test_the_page_measures_its_own_network_whatever_experiment_is_chosen(visit):
    page = visit("methods", layer_sizes="3x21", gain="1e6", activation="identity")
    assert page.at.dataframe[0].value.equals(visit("methods").at.dataframe[0].value)
    assert page.link["layer_sizes"] == "3x21"
    assert f"seed {SPEC.seed}" in page.markdown
