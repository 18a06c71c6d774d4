"""Widespread claims: one contract for all, the science behind each number, and what the shown sentences rest on."""

import math
from functools import cache
from statistics import fmean

import pytest

from gradlab import GradlabError, build_network, diagnose, run_experiment
from gradlab.lessons.learning import weight_movement
from gradlab.lessons.myth_trails import CLAIM, THEORY, Kind
from gradlab.lessons.myths import AGREE, DISAGREE, MYTHS
from gradlab.spec import MAX_SEED
from gradlab.text import short_number
from gradlab.theory import predict_factor

EACH = pytest.mark.parametrize("name", MYTHS)
STARTS = (0, 100)


@cache
def measured(name, seed=0):
    return MYTHS[name].run(seed)


def number(name):
    """The factor over all the seeds of both starts."""
    return math.exp(fmean(math.log(each) for seed in STARTS for each in measured(name, seed).numbers))


# --- the contract -------------------------------------------------------------------------------------------------------


@EACH
def test_a_claim_has_its_words_and_a_source_with_a_year(name):
    myth = MYTHS[name]
    assert myth.title.endswith(".")
    assert len(myth.menu) <= 20
    assert all(text.endswith(".") for text in (myth.setup, myth.why))
    assert any(str(year) in myth.source for year in range(2010, 2027))
    assert myth.link.startswith("https://")
    assert list(myth.options) == [AGREE, DISAGREE]


@EACH
def test_the_number_is_the_mean_of_what_each_seed_gave(name):
    result = measured(name)
    assert len(result.numbers) == len(result.seeds) == MYTHS[name].seed_count
    assert math.log(result.number) == pytest.approx(fmean(map(math.log, result.numbers)))
    assert min(result.numbers) < max(result.numbers)  # seeds differ: nobody has written the number down


@EACH
def test_the_sentence_holds_the_number_that_was_measured(name):
    for seed in STARTS:
        result = measured(name, seed)
        assert short_number(result.number) in result.sentence


@EACH
def test_the_same_seeds_give_the_same_numbers_and_others_give_others(name):
    again = MYTHS[name].run(0)
    assert again.numbers == measured(name).numbers
    assert again.frame.equals(measured(name).frame)
    assert measured(name, STARTS[1]).numbers != again.numbers


@EACH
def test_every_line_runs_over_the_same_layers_from_one_at_the_output_end(name):
    myth, frame = MYTHS[name], measured(name).frame
    for _, line in frame.groupby("series", sort=False):
        assert tuple(line["layer"]) == myth.layers
        assert line["reading"].iloc[0] == line["low"].iloc[0] == line["high"].iloc[0] == 1
        assert (line["low"] <= line["reading"] * (1 + 1e-12)).all()
        assert (line["reading"] <= line["high"] * (1 + 1e-12)).all()
        assert (line["low"] > 0).all()
    assert set(frame["kind"]) == set(map(str, Kind))


@EACH
def test_the_claim_is_drawn_alike_before_and_beside_the_measurement(name):
    frame = measured(name).frame
    beside = frame[frame["series"] == CLAIM].reset_index(drop=True)
    assert beside.equals(MYTHS[name].claim)
    assert beside["reading"].iloc[-1] == pytest.approx(MYTHS[name].claimed ** measured(name).steps)


@EACH
def test_an_answer_is_right_if_the_measurement_says_so(name):
    for seed in STARTS:
        result = measured(name, seed)
        # A factor of two over all layers, in either direction.
        near = abs(result.steps * math.log2(result.number / MYTHS[name].claimed)) <= 1
        assert MYTHS[name].is_right(AGREE, result) == near
        assert MYTHS[name].is_right(DISAGREE, result) != near


@EACH
def test_what_holds_does_not_depend_on_the_seeds(name):
    assert len({measured(name, seed).holds for seed in STARTS}) == 1


def test_not_every_claim_is_wrong():
    """Or the answer would be known before the question."""
    holding = [name for name in MYTHS if measured(name).holds]
    assert holding == ["he"]


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, 0.5, "0", True, None])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(GradlabError, match="seed ="):
        MYTHS["he"].run(seed)


def test_the_last_seed_is_followed_by_the_first():
    assert MYTHS["adam"].run(MAX_SEED).seeds == (MAX_SEED, 0, 1, 2)


def test_an_answer_that_is_none_is_refused():
    with pytest.raises(GradlabError, match="agree and disagree"):
        MYTHS["he"].is_right("perhaps", measured("he"))


# --- the science --------------------------------------------------------------------------------------------------------


def test_batch_norm_makes_gradients_grow():
    """√(π/(π − 1)) per layer: Yang, Pennington, Rao, Sohl-Dickstein & Schoenholz 2019."""
    assert number("batch_norm") == pytest.approx(math.sqrt(math.pi / (math.pi - 1)), rel=0.01)


def test_shortcuts_make_gradients_grow():
    """√(1 + 1/6) where a layer is independent of its shortcut: Yang & Schoenholz 2017."""
    naive = math.sqrt(1 + 1 / 6)
    assert naive <= number("shortcuts") <= 1.08 * naive


def test_width_changes_the_scatter_and_not_the_factor():
    """√(1/6) per layer; the variance of the logarithm falls like 1/width: Hanin & Nica 2018."""
    assert number("width") == pytest.approx(math.sqrt(1 / 6), rel=0.03)
    frame = measured("width").frame
    ranges = frame.assign(range=frame["high"] / frame["low"]).groupby("series")["range"].last()
    assert ranges["64 units (20 seeds)"] > 1.5 * ranges["256 units (20 seeds)"]
    last = frame.groupby("series")["reading"].last()
    steps = measured("width").steps
    assert last["64 units (20 seeds)"] ** (1 / steps) == pytest.approx(math.sqrt(1 / 6), rel=0.05)


def test_the_critical_point_of_tanh_is_flat_only_in_the_limit():
    """Schoenholz et al. 2017."""
    assert number("critical") == pytest.approx(0.93, abs=0.02)
    assert predict_factor(measured("critical").spec).limit_factor == pytest.approx(1.0)


def test_he_initialisation_holds():
    """He, Zhang, Ren & Sun 2015."""
    assert number("he") == pytest.approx(1.0, rel=0.02)


def test_adam_moves_a_layer_with_a_tiny_gradient_as_far_as_the_others():
    """The size of a step does not depend on the scale of the gradient: Kingma & Ba 2015."""
    assert number("adam") == pytest.approx(1.0, rel=0.02)
    result = measured("adam")
    by_sgd = weight_movement(result.spec, 1, "sgd")
    assert by_sgd[0].first_gradient < 1e-5
    assert by_sgd[0].relative_movement < 1e-5
    first, *_ = weight_movement(result.spec, 1, "adam")
    for value in (by_sgd[0].relative_movement, first.relative_movement, first.first_gradient):
        assert short_number(value) in result.sentence


def test_without_biases_weight_gradients_are_alike_whatever_the_output_gradients_do():
    """Du, Hu & Lee 2018: ⟨W, ∂L/∂W⟩ is the same in every layer."""
    assert number("weights") == pytest.approx(1.0, rel=0.02)
    spec = measured("weights").spec
    parameters = dict(build_network(spec).named_parameters())
    result = run_experiment(spec, keep_gradients=True)
    products = [(parameters[r.parameter].double() * r.gradient.double()).sum().item() for r in result.parameters]
    assert products == pytest.approx([products[0]] * len(products), rel=1e-4)
    last = measured("weights").frame.groupby("series")["reading"].last()
    for scale, factor in {"1/3": math.sqrt(1 / 6), "2": 1.0, "8": 2.0}.items():
        assert last[f"outputs, σ_w² = {scale} (4 seeds)"] ** (1 / 10) == pytest.approx(factor, rel=0.04)


@pytest.mark.parametrize("name", [name for name in MYTHS if name not in ("adam", "weights")])
def test_the_lab_measures_the_same_factors_one_experiment_at_a_time(name):
    result = measured(name)
    for seed, number in list(zip(result.seeds, result.numbers, strict=True))[:3]:
        assert diagnose(run_experiment(result.spec.replace(seed=seed))).factor == pytest.approx(number, rel=1e-4)
    theory = predict_factor(result.spec)
    assert result.predicted == theory.factor
    expected = result.frame[result.frame["series"] == THEORY]["reading"].iloc[-1]
    assert expected == pytest.approx(math.prod(theory.factors))
