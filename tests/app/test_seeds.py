"""The seeds page: bands against single experiments, a share that stays hidden until it is guessed, work with a limit."""

import math
import re

import altair
import numpy as np
import pandas
import pytest

from gradlab import charts, diagnose, run_ensemble, run_experiment
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.trail import Quantity, backward_trail
from gradlab.ui import ensembles
from gradlab.ui.links import MAX_PRODUCTS
from gradlab.ui.seeds import WITH, WITHOUT


def spec_of(**fields):
    return ExperimentSpec.from_dict(fields)


def rows(page, *columns):
    """The rows of the chart's data that have these columns."""
    return next(data for _, data in page.layers() if {*columns} <= {*data.columns})


def commit(page, guess):
    page.widget("seeds_option").set_value(guess)
    return page.click("FormSubmitter:seeds_form-Commit")


@pytest.mark.parametrize("gradient", list(Quantity))
def test_the_bands_are_the_quantiles_of_single_experiments(visit, gradient):
    band = rows(visit("seeds", gradient=str(gradient)), "median")
    for name, shortcut in ((WITHOUT, False), (WITH, True))[gradient == "outputs" :]:
        trails = [
            backward_trail(run_experiment(spec_of(seed=seed, use_shortcut=shortcut)), gradient).set_index("layer")["reading"]
            for seed in range(200)
        ]
        expected = pandas.DataFrame(trails).quantile([0.1, 0.5, 0.9])
        shown = band[band["network"] == name].set_index("layer")
        for column, share in {"low": 0.1, "median": 0.5, "high": 0.9}.items():
            assert np.allclose(shown[column], expected.loc[share, shown.index], rtol=1e-4)


def test_the_own_line_is_the_chosen_seed_of_both_networks(visit, measured):
    own = rows(visit("seeds", seed="7"), "reading")
    for name, shortcut in ((WITHOUT, False), (WITH, True)):
        line = own[own["network"] == name]
        assert dict(zip(line["layer"], line["reading"], strict=True)) == measured(spec_of(seed=7, use_shortcut=shortcut))


def test_the_headline_says_how_often_another_seed_shows_the_opposite(visit):
    page = visit("seeds", gradient="outputs", use_shortcut="true")
    for name, shortcut in ((WITHOUT, False), (WITH, True)):
        ensemble = run_ensemble(spec_of(use_shortcut=shortcut), range(200))
        (line,) = [text for text in page.markdown.splitlines() if text.startswith(f"**{name}, output gradients")]
        assert f"γ = {short_number(float(np.median(ensemble.factors)))} at the median of 200 seeds" in line
        opposite = round(200 * ensemble.opposite_share)
        assert f"At {opposite or 'none'} of them γ lies on the other side of 1" in line
        assert ("one run alone shows the opposite trend" in line) == (opposite > 0)
    own = diagnose(run_experiment(spec_of(use_shortcut=True))).factor
    assert f"**Your seed 123** (with shortcuts): γ = {short_number(own)}, larger than at" in page.markdown


def test_a_seed_is_compared_with_those_that_have_a_factor(visit):
    page = visit("seeds", layer_sizes="16x10-1", activation="relu")  # ReLU units die at some seeds
    assert "of the other seeds with one." in page.markdown
    assert "of the other seeds. It lies" in visit("seeds").markdown


def test_more_seeds_are_measured_when_asked_for(visit):
    page = visit("seeds").set(seed_count="1000")
    assert "at the median of 1,000 seeds" in page.markdown
    assert page.link["seed_count"] == "1000"


def test_how_often_a_list_falls_is_shown_after_a_guess_and_the_guess_stays(visit):
    falling = round(200 * run_ensemble(spec_of(), range(200)).monotone_share())
    assert 0.3 < falling / 200 < 0.7  # about half
    page = visit("seeds")
    words = f"At {falling} of 200 seeds"
    assert words not in page.said
    assert f"| falls at every step | {falling} of 200" not in page.said
    assert "Choose a number before you commit." in page.click("FormSubmitter:seeds_form-Commit").markdown
    assert words not in page.said
    commit(page, 10)
    assert "You said: *10 of 10*" in page.markdown
    assert "✗ That is not what was measured." in page.markdown
    assert words in page.markdown
    assert f"| falls at every step | {falling} of 200" in page.markdown
    page.at.session_state["seeds_option"] = 5
    assert "You said: *10 of 10*" in page.set(seed=5, activation="relu").markdown
    assert "You said: *10 of 10*" in page.go("start").go("seeds").markdown


def test_one_layer_has_no_step_to_count(visit):
    said = visit("seeds", layer_sizes="3-3").markdown
    assert "| falls at every step | – | – |" in said
    assert "| first layer below the last | – | – |" in said


def test_a_network_that_holds_the_gradient_has_no_opposite(visit):
    kept = {"layer_sizes": "8x12", "activation": "identity", "initializer": "orthogonal", "use_bias": "false"}
    (line,) = [
        text for text in visit("seeds", gradient="outputs", **kept).markdown.splitlines() if text.startswith(f"**{WITHOUT}, ")
    ]
    assert "steady at 200. The median is 1: no seed shows the opposite of that." in line


def test_a_guess_within_one_of_ten_is_right(visit):
    assert "✓ That is what was measured, within one of ten." in commit(visit("seeds"), 5).markdown


EDGES = {
    "one layer": ({"layer_sizes": "3-1"}, "no factor at any of 200 seeds"),
    "no shortcut fits": ({"layer_sizes": "5-4-3-2-1"}, "with shortcuts it would be the same network"),
    "dead units": ({"layer_sizes": "1x6", "activation": "relu"}, "some layer's gradient is exactly zero throughout"),
    "batch norm": (
        {"normalization": "batch_norm", "batch_size": "8", "sample_input": "standard_normal"},
        "at the median of 200 seeds",
    ),
    "float64": ({"dtype": "float64"}, "at the median of 200 seeds"),
    "many layers": ({"layer_sizes": "3x121", "seed_count": "5000"}, "250 are measured instead"),
}


@pytest.mark.parametrize(("link", "words"), EDGES.values(), ids=EDGES)
def test_an_unusual_network_is_measured_or_told_in_words(visit, link, words):
    page = visit("seeds", **link)
    assert words in page.markdown
    assert "nan" not in page.said


def test_what_takes_long_waits_until_it_is_asked_for(visit):
    """A hundred visitors who only look around: whatever they set, a page measures a tenth of a second's worth of seeds."""
    page = visit("seeds", layer_sizes="48x41", seed_count="1000", use_shortcut="true")
    (total,) = set(re.findall(r"Measure all (\S+) seeds", " ".join(b.label for b in page.at.button)))
    assert total.replace(",", "").isdigit()
    assert f" of {total} seeds are measured; the rest waits until you ask for it" in page.markdown
    so_far = re.findall(r"at the median of (\S+) seeds", page.markdown)
    assert all(0 < int(number) < int(total.replace(",", "")) for number in so_far)
    assert "waits until" in page.run().markdown
    page.click("seeds_go_on")
    assert re.findall(r"at the median of (\S+) seeds", page.markdown) == [total, total]
    assert "waits until" not in page.markdown
    assert "seeds_go_on" not in {button.key for button in page.at.button}
    assert "waits until" in page.set(seed_count="200", layer_sizes="48x42").markdown  # for others it was not asked


def test_infinite_gradients_are_named(visit, monkeypatch):
    monkeypatch.setattr(ensembles, "MAX_READINGS", 400)
    link = {"layer_sizes": "4x40", "initializer": "normal", "sigma_w": "100", "activation": "identity"}
    page = visit("seeds", **link).click("seeds_go_on")
    assert "at 10 of 10 seeds (0, 1, 2, 3, 4, …) some layer's gradient is NaN or infinity" in page.markdown
    assert "△ NaN or infinite" in page.markdown
    assert "non-finite" in set(rows(page, "mark", "network")["mark"]) | {
        row for _, d in page.layers() if "mark" in d for row in d["mark"]
    }


def test_what_a_visitor_can_ask_for_has_a_limit():
    """Any allowed experiment: one forward run has at most so many products, and drawing its weights comes on top."""
    for sizes in ("3-3-3-3-3-1", "64x21", "256x51", "1024x21", "4096-4096-2900", "1x201"):
        spec = spec_of(layer_sizes=sizes)
        seeds = ensembles.affordable_seeds(spec, 5000)
        assert 1 <= seeds <= 5000
        assert seeds == 1 or seeds * spec.network.parameter_count <= 6 * MAX_PRODUCTS
        assert seeds * spec.network.depth <= ensembles.MAX_READINGS
    assert ensembles.affordable_seeds(spec_of(), 5000) == 5000


def test_parts_go_on_where_they_were_stopped(monkeypatch):
    monkeypatch.setattr(ensembles, "PART_SEEDS", 30)
    spec = spec_of(activation="tanh")
    sizes = [len(part.ensemble) for part in ensembles.parts(spec, 100)]
    assert sum(sizes) == 100
    stopped = [part.ensemble.seeds for part in ensembles.parts(spec, 100, stopped=60)]
    assert np.concatenate(stopped).tolist() == list(range(60))
    assert ensembles.summary(spec, 100, 60, Quantity.OUTPUTS).seeds == 60


def test_the_picture_is_valid_and_a_band_down_to_zero_keeps_its_true_numbers():
    trail = backward_trail(run_experiment(spec_of()), Quantity.WEIGHTS)
    over = run_ensemble(spec_of(), range(50)).band(Quantity.WEIGHTS)
    over.loc[1, ["low", "zero_share"]] = [0.0, 0.2]
    over.loc[2, ["low", "median", "high", "nonfinite_share"]] = [math.nan, math.nan, math.nan, 1.0]
    for series in (
        {"one": charts.Band(own=trail, over_seeds=over)},
        {name: charts.Band(own=trail, over_seeds=None) for name in "ab"},
    ):
        figure = charts.bands(series, y_title="mean |gradient|", seed=3)
        altair.Chart.from_dict(figure.chart.to_dict())
        assert "seed 3" in figure.alt_text
    figure = charts.bands({"one": charts.Band(own=trail, over_seeds=over)}, y_title="mean |gradient|", seed=3)
    band = pandas.DataFrame(figure.data["band"]).set_index("layer")
    assert band.loc["layers.1", "low"] == 0
    assert band.loc["layers.1", "bottom"] > 0
    assert "layers.2" not in band.index
    assert band.loc["layers.3", "stretch"] != band.loc["layers.1", "stretch"]
    marks = pandas.DataFrame(figure.data["unseen"]).set_index("layer")["mark"]
    assert dict(marks) == {"layers.1": "zero", "layers.2": "non-finite"}
    assert "□ exactly zero" in figure.how_to_read
