"""The output page: both gradients in one picture, what ties them, and nothing told before it was asked."""

import pytest

from gradlab import diagnose, run_experiment
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.ui.panels import SIGNS

PARADOX = PRESETS["bias_free_relu"].spec
RIGHT = {"two_trends": "agree", "which_is_which": "weight_shape", "stored": "parameters"}
ANY = {**RIGHT, "stored": "both", "zero_or_none": "zero", "none_means": "zero"}
EDGES = {
    "one layer": {"layer_sizes": "3-1"},
    "width 1": {"layer_sizes": "1x8"},
    "two layers": {"layer_sizes": "4-8-1", "activation": "relu", "batch_size": "3"},
    "zero weights": {"initializer": "normal", "sigma_w": "0"},
    "zero input": {"sample_input": "zeros", "use_bias": "false"},
    "not finite": {"layer_sizes": "3x21", "gain": "1e6", "activation": "identity"},
    "200 layers": {"layer_sizes": "3x201", "activation": "relu"},
    "underflow": {"layer_sizes": "8x40", "gain": "0.001"},
    "normalised": {"normalization": "batch_norm", "batch_size": "16", "sample_input": "standard_normal"},
    "impossible": {"layer_sizes": "soup"},
}
PARTS = ("What ties them", "Shapes", "What to look for")


def lines(page):
    """Which gradient -> layer -> reading, of all that is drawn."""
    rows = [row for _, data in page.layers() for row in data.itertuples() if not row.mark]
    return {name: {row.layer: row.reading for row in rows if row.trail == name} for name in {row.trail for row in rows}}


def open_question(page):
    (radio,) = page.at.radio
    return radio.key.removeprefix("option_").rsplit("_", 1)[0]


def answered(page, *questions):
    for question in questions:
        assert open_question(page) == question
        page.answer(RIGHT[question])
    return page


def norms(records):
    return {".".join(record.layer.split(".")[:2]): record.statistics.norm for record in records}


@pytest.mark.parametrize(
    "link", [{}, {"seed": "5", "use_shortcut": "true", "layer_sizes": "8x7-2"}], ids=["reference", "other"]
)
def test_the_picture_shows_the_norm_of_both_gradients_of_every_layer(visit, link):
    result = run_experiment(ExperimentSpec.from_dict(link))
    expected = {"weight gradient": norms(result.linear_weights), "output gradient": norms(result.linear_outputs)}
    page = visit("outputs", **link)
    assert lines(page) == expected
    for name, readings in expected.items():
        last = max(readings)
        assert f"{name}, L2 norm of the gradient from the output end to the input end: {last} " in page.chart.alt


def test_both_lines_have_the_networks_colour_and_differ_in_dash_and_shape(visit):
    line, points = (layer["encoding"] for layer, _ in visit("outputs").layers())
    assert len(set(points["color"]["scale"]["range"])) == 1
    assert len(set(points["shape"]["scale"]["range"])) == 2
    assert len({tuple(dash) for dash in line["strokeDash"]["scale"]["range"]}) == 2


def test_the_verdicts_follow_the_answer_on_the_trends(visit):
    page = visit("outputs")
    assert open_question(page) == "two_trends"
    assert not [sign for sign in SIGNS.values() if sign in page.markdown]
    assert "Per layer toward the input" not in page.markdown
    answered(page, "two_trends")
    result = run_experiment(ExperimentSpec())
    for kind in ("weights", "outputs"):
        found = diagnose(result, gradient=kind)
        assert f"**{kind.capitalize().rstrip('s')} gradients: {SIGNS[found.verdict]}" in page.markdown
        assert found.sentence in page.markdown
        assert f"**{short_number(found.factor)}**" in page.markdown


def test_the_shapes_follow_the_answer_on_which_is_which_and_what_is_kept_the_next_one(visit):
    page = visit("outputs").set(outputs_part="Shapes")
    assert "outputs_layer" not in [box.key for box in page.at.selectbox]
    assert "outputs × inputs" not in page.markdown
    answered(page, "two_trends", "which_is_which")
    page.set(outputs_layer="layers.4")
    assert "| shape | **1 × 3** | **1 × 1** |" in page.markdown
    assert "after backward" not in page.markdown
    answered(page, "stored")
    assert "| after backward | in `.grad` of `layers.4.0.weight` |" in page.markdown


def test_every_question_is_asked_one_at_a_time_and_none_after_the_last(visit):
    page, seen = visit("outputs"), []
    while page.at.radio:
        seen.append(open_question(page))
        page.answer(ANY[seen[-1]])
    assert seen == ["two_trends", "which_is_which", "stored", "zero_or_none", "none_means"]
    page.set(seed=7)
    assert not page.at.radio


def test_an_answer_stays_as_it_was_given(visit):
    page = visit("outputs").answer("disagree")
    assert "You said: *No, they go different ways*" in page.markdown
    assert "✗ That is not what was measured." in page.markdown
    page.set(seed=5).set(seed=123)
    assert "You said: *No, they go different ways*" in page.markdown


@pytest.mark.parametrize("link", [{}, {"batch_size": "9", "sample_input": "standard_normal", "target": "standard_normal"}])
def test_the_table_holds_both_sides_of_the_identity(visit, link):
    page = visit("outputs", **link)
    table = page.at.dataframe[0].value
    result = run_experiment(ExperimentSpec.from_dict(link))
    for row, weight, output, layer in zip(
        table.itertuples(), result.linear_weights, result.linear_outputs, result.layers, strict=True
    ):
        left, right = weight.statistics.norm, output.statistics.norm * layer.input_norm
        assert tuple(row)[1:4] == (layer.layer, left, right)
        assert row[4] == pytest.approx(left / right if link else abs(left / right - 1), abs=1e-15)
    assert ("‖∂L/∂W‖ ≤ ‖δ‖" if link else "‖∂L/∂W‖ = ‖δ‖") in page.markdown
    assert ("triangle inequality" in page.markdown) == bool(link)


def test_the_button_loads_the_network_in_which_the_two_part(visit):
    page = answered(visit("outputs"), "two_trends").click("outputs_paradox")
    assert page.settings == PARADOX.to_dict()
    assert page.widget("preset").value == "bias_free_relu"
    assert "**Output gradients: ▼ vanishing" in page.markdown
    assert "**Weight gradients: ◆ steady" in page.markdown
    assert "Du, Hu & Lee 2018" in page.markdown
    assert "The output gradients are vanishing" in page.markdown
    assert "outputs_paradox" not in [button.key for button in page.at.button]
    assert page.link["layer_sizes"] == "128x12-1"


@pytest.mark.parametrize("controls", ["locked", "hidden"])
def test_a_lesson_link_that_sets_the_experiment_leaves_the_button_out(visit, controls):
    assert "outputs_paradox" not in [button.key for button in visit("outputs", controls=controls).at.button]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("link", EDGES.values(), ids=EDGES)
def test_a_network_with_nothing_to_compare_says_so_and_raises_nothing(visit, link, part):
    page = visit("outputs", **link).set(outputs_part=part)
    while page.at.radio:
        page.answer(ANY[open_question(page)])
    assert page.chart.alt
    assert "nan" not in page.markdown.lower().replace("nan or infinite", "")


def test_what_to_look_for_lists_every_layer_and_after_its_question_the_four_signs(visit):
    page = visit("outputs", layer_sizes="3x5", activation="relu", seed="2").set(outputs_part="What to look for")
    (table,) = (frame.value for frame in page.at.dataframe)
    result = run_experiment(ExperimentSpec.from_dict({"layer_sizes": "3x5", "activation": "relu", "seed": 2}))
    assert list(table["norm"]) == [record.statistics.norm for record in result.linear_outputs]
    assert list(table["min"]) == [record.statistics.min for record in result.linear_outputs]
    assert list(table["max"]) == [record.statistics.max for record in result.linear_outputs]
    assert "shape" not in table.columns  # which of the two has it is still to be answered
    while page.at.radio:
        page.answer(ANY[open_question(page)])
    assert list(page.at.dataframe[0].value["shape"]) == ["1 × 3"] * 4
    signs = page.at.dataframe[1].value
    assert list(signs["status"]) == ["all zero", "tiny", "huge", "no gradient"]
    assert list(signs["norm"])[:3] == ["0.00e+0", "1.73e-25", "1.73e+25"]  # 3 entries of 0, 1e-25 and 1e25
    assert signs["norm"].isna()[3]
