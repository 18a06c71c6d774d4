"""The depth page: measured intervals beside theory, a map that holds theory's own numbers, and a network picked from it."""

import math
import re

import altair
import numpy as np
import pandas
import pytest

from gradlab import charts, diagnose, run_ensemble, run_experiment
from gradlab.fingerprint import fingerprint
from gradlab.networks import ACTIVATIONS
from gradlab.spec import Activation, ExperimentSpec, NetworkSpec
from gradlab.text import short_number
from gradlab.theory import predict_factor
from gradlab.ui import theory_map
from gradlab.ui.depth import SEEDS, WIDE, difference


def spec_of(**fields):
    return ExperimentSpec.from_dict(fields)


def data_with(page, column, place=0):
    return next(data for _, data in page.layers(page.charts[place]) if column in data.columns)


def commit(page, option):
    page.widget("depth_option").set_value(option)
    return page.click("FormSubmitter:depth_form-Commit and measure")


def test_each_activation_has_its_measured_interval_and_theory_beside_it(visit):
    page = visit("depth")
    measured = data_with(page, "median").set_index("network")
    expected = data_with(page, "most").set_index("network")
    assert len(measured) == len(expected) == len(Activation)
    for activation in (Activation.RELU, Activation.TANH, Activation.GELU_TANH):
        spec = spec_of(layer_sizes=WIDE, activation=str(activation))
        title = ACTIVATIONS[activation].title
        row = f"▸ {title}" if activation is Activation.GELU_TANH else title
        factors = [diagnose(run_experiment(spec.replace(seed=seed))).factor for seed in range(SEEDS)]
        assert list(measured.loc[row, ["low", "median", "high"]]) == pytest.approx(
            np.quantile(factors, (0.1, 0.5, 0.9)), rel=1e-4
        )
        assert expected.loc[row, "factor"] == predict_factor(spec.replace(seed=0)).factor
    assert expected.loc["ReLU", "factor"] == pytest.approx(math.sqrt(1 / 6), rel=1e-6)


def test_of_another_experiment_the_chosen_activation_is_measured_and_all_of_them_if_asked(visit):
    page = visit("depth", use_shortcut="true")
    assert list(data_with(page, "median")["network"]) == ["▸ GELU (tanh form)"]
    assert len(data_with(page, "most")) > 1
    waiting = set(data_with(page, "sign")["sign"])
    assert waiting == {"?"}
    assert "? not measured yet" in page.markdown
    assert len(data_with(page.click("depth_every"), "median")) == len(Activation)
    assert len(data_with(page.set(activation="relu"), "median")) == len(Activation)
    assert len(data_with(page.set(gain=2.0), "median")) == 1  # another experiment, for which it was not asked


def test_the_headline_holds_both_and_how_far_they_are_apart(visit):
    page = visit("depth", activation="relu")
    found = float(np.median(run_ensemble(spec_of(layer_sizes=WIDE, activation="relu"), range(SEEDS)).factors))
    assert f"ReLU: γ = {short_number(found)} is measured at the median seed" in page.markdown
    assert "Mean-field theory expects 0.408 per layer" in page.markdown
    assert f"Measured is {difference(found, math.sqrt(1 / 6))}" in page.markdown


def test_with_shortcuts_theory_is_a_range(visit):
    page = visit("depth", use_shortcut="true")
    expected = data_with(page, "most").set_index("network")
    prediction = predict_factor(spec_of(layer_sizes=WIDE, use_shortcut=True))
    row = expected.loc["▸ GELU (tanh form)"]
    assert (row["factor"], row["most"]) == (prediction.factor, prediction.factor_at_most)
    assert "With shortcuts theory gives a range" in page.markdown


def test_at_sizes_that_are_too_small_theory_has_no_number_and_says_so(visit):
    page = visit("depth", measured_sizes="own")
    assert "Theory gives no number here." in page.markdown
    assert "3 units are too few" in page.markdown
    assert not [data for _, data in page.layers() if "most" in data.columns]
    assert page.link["measured_sizes"] == "own"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"layer_sizes": "3-1"}, "too shallow to judge"),
        ({"layer_sizes": "9-8-7-6-5"}, "different widths"),
        ({"layer_sizes": "1x30", "activation": "relu"}, "Theory gives no number here"),
        (
            {"normalization": "batch_norm", "batch_size": "8", "sample_input": "standard_normal", "layer_sizes": "16x6"},
            "too noisy",
        ),
        ({"dtype": "float64", "layer_sizes": "16x6"}, "Mean-field theory expects"),
        ({"initializer": "normal", "sigma_w": "0", "layer_sizes": "16x6"}, "No gradient passes"),
    ],
)
def test_an_unusual_network_is_measured_or_told_in_words(visit, link, words):
    page = visit("depth", measured_sizes="own", **link)
    assert words in page.markdown
    assert "nan" not in page.said


def test_as_many_seeds_are_told_as_were_measured(visit):
    page = visit("depth", gain="1e6")  # which overflows, and then each seed takes its time
    (measured,) = re.findall(rf"without shortcuts, (\d+) of {SEEDS} seeds\.", page.markdown)
    words = "the one seed measured" if measured == "1" else f"any of {measured} seeds"  # on a slow machine it is one
    assert f"no γ at {words} (" in page.markdown


def test_what_is_taken_home_was_measured_at_the_sizes_on_the_page(visit):
    for option, sizes in (("wide", WIDE), ("own", "3-3-3-3-3-1")):
        page = visit("depth", measured_sizes=option)
        assert fingerprint(run_experiment(spec_of(layer_sizes=sizes))) in page.markdown


@pytest.mark.parametrize("activation", [Activation.RELU, Activation.SIGMOID, Activation.SILU])
@pytest.mark.parametrize("sigma_b", [0.0, 0.5])
def test_the_map_has_the_factor_that_theory_gives_for_each_of_its_networks(activation, sigma_b):
    found = theory_map.theory_map(activation, sigma_b)
    for place in (0, 13, 39):
        for row in (0, 3, 11):
            network = NetworkSpec.of_width(
                64,
                found.depths[row],
                activation=activation,
                initializer="normal",
                sigma_w=found.sigma_w[place],
                sigma_b=sigma_b,
            )
            prediction = predict_factor(network)
            if prediction.factor is not None:
                assert found.factors[row][place] == pytest.approx(prediction.factor, rel=1e-9)
    if found.critical:
        assert found.critical.sigma_w < found.sigma_w[-1]


@pytest.mark.parametrize("activation", Activation)
def test_the_map_is_a_valid_picture_without_holes(activation):
    figure = charts.factor_map(theory_map.theory_map(activation, 0.0), picked=(1.0, 20), name=str(activation))
    altair.Chart.from_dict(figure.chart.to_dict())
    assert np.isfinite(pandas.DataFrame(figure.data["cells"]).to_numpy()).all()
    assert "critical" in figure.alt_text


def test_lines_on_the_map_pass_where_the_factor_is_theirs():
    """For ReLU γ = σ_w/√2 at every depth."""
    figure = charts.factor_map(theory_map.theory_map(Activation.RELU, 0.0), picked=(1.0, 20), name="ReLU")
    lines = pandas.DataFrame(figure.data["contours"])
    assert set(lines["line"]) == {"0.5", "0.8", "1.25", "2"}
    for row in lines.itertuples():
        assert row.sigma_w / math.sqrt(2) == pytest.approx(float(row.line), rel=2e-3)


def test_the_pick_is_measured_after_an_answer_which_stays(visit):
    page = visit("depth", activation="relu").set(depth_layers=30)
    pick = theory_map.picked_spec(spec_of(activation="relu"), 1.0, 30)
    factor = short_number(diagnose(run_experiment(pick)).factor)
    assert len(page.charts) == 2
    assert f"γ = {factor}" not in page.said
    assert "Choose an answer before you commit." in page.click("FormSubmitter:depth_form-Commit and measure").markdown
    commit(page, "above")
    assert "You said: *γ is above 1.05*, at σ_w = 1.00, 30 layers of 64 units." in page.markdown
    assert f"✗ That is not what was measured: γ = {factor}." in page.markdown
    assert len(page.charts) == 3
    page.at.session_state["depth_option"] = "below"
    page.set(**{"depth_sigma_w_0.1": 2.0})
    other = theory_map.picked_spec(spec_of(activation="relu"), 2.0, 30)
    assert f"γ = {short_number(diagnose(run_experiment(other)).factor)} is measured" in page.markdown
    assert "You said: *γ is above 1.05*, at σ_w = 1.00" in page.markdown


def test_a_pick_where_everything_overflows_says_so(visit):
    page = visit("depth", activation="identity").set(**{"depth_sigma_w_0.1": 4.0, "depth_layers": 60})
    commit(page.set(**{"depth_sigma_w_0.1": 1.0}), "about")
    page.set(**{"depth_sigma_w_0.1": 4.0, "depth_layers": 60})
    assert "exploding, severely" in page.markdown or "no γ is measured" in page.markdown


def test_what_a_click_on_the_map_must_be(visit):
    assert theory_map.cell_of([{"sigma_w": 1.5, "layers": 25}], 0.1) == (1.5, 25)
    for made_up in (
        None,
        [],
        {},
        [3],
        [{}],
        [{"sigma_w": 1.55, "layers": 25}],
        [{"sigma_w": 1.5, "layers": 26}],
        [{"sigma_w": "x"}],
    ):
        assert theory_map.cell_of(made_up, 0.1) is None


def test_large_networks_are_measured_at_the_chosen_activation_alone(visit):
    page = visit("depth", layer_sizes="1024x11", measured_sizes="own")
    assert "only the chosen activation is measured" in page.markdown
    assert list(data_with(page, "median")["network"]) == ["▸ GELU (tanh form)"]


def test_a_difference_is_said_with_its_direction():
    assert difference(1.1, 1.0) == "10 % above"
    assert difference(0.9, 1.0) == "10 % below"
    assert difference(0.40824, 0.40821) == "the same to three digits"
    assert difference(3.0, 1.0) == "200 % above"
