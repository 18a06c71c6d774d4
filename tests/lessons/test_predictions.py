"""A guessed factor per layer is scored by its error in powers of ten, whatever was typed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlab import ExperimentSpec, diagnose, run_experiment
from gradlab.lessons.predictions import factor_question, score_factor
from gradlab.trail import Quantity

FACTORS = st.floats(1e-6, 1e6)


@given(FACTORS, FACTORS)
def test_the_error_is_the_distance_in_powers_of_ten(guess, measured):
    score = score_factor(guess, measured)
    assert score.log_error == pytest.approx(abs(math.log10(guess / measured)), abs=1e-9)
    assert 0 <= score.points <= 1


@given(FACTORS)
def test_the_measured_factor_gets_all_points_and_threefold_off_none(measured):
    assert score_factor(measured, measured).points == 1
    assert score_factor(measured * 3, measured).points == pytest.approx(0, abs=1e-9)
    assert score_factor(measured / math.sqrt(3), measured).points == pytest.approx(0.5)


@given(FACTORS, FACTORS)
def test_twice_too_much_is_as_far_off_as_twice_too_little(measured, fold):
    assert score_factor(measured * fold, measured).log_error == pytest.approx(
        score_factor(measured / fold, measured).log_error, abs=1e-9
    )


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        *[("0.3", 0.3), ("0,3", 0.3), (" .5 ", 0.5), ("30 %", 0.3), ("30%", 0.3)],
        *[("3e-1", 0.3), ("2", 2.0), ("+2.", 2.0), (2, 2.0), (1e-5, 1e-5)],
    ],
)
def test_a_number_is_read_as_it_is_typed(typed, read):
    assert score_factor(typed, 0.5).guess == pytest.approx(read)


@pytest.mark.parametrize(
    "typed",
    [
        *["0", "-1", "0,0", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 31, "1e13", "abc", "", "  ", "%", "1,000.5", "1_0"],
        *[
            "0x1",
            "½",
            "<b>1</b>",
            "=1+1",
            "1/3",
            "1\n2",
            None,
            True,
            [],
            math.nan,
            math.inf,
            0,
            -3,
            1e300,
            10**400,
            "x" * 100_000,
        ],
    ],
)
def test_what_is_no_factor_is_answered_with_a_sentence(typed):
    score = score_factor(typed, 0.5)
    assert (score.guess, score.log_error, score.points) == (None, None, None)
    assert score.sentence.endswith(".")
    assert len(score.sentence) < 200


@given(st.text())
def test_whatever_is_typed_gets_a_score_or_a_sentence(typed):
    score = score_factor(typed, 0.5)
    assert (score.guess is None) == (score.points is None)
    assert score.sentence


@pytest.mark.parametrize("measured", [math.nan, math.inf, 0.0])
def test_a_guess_is_not_held_against_a_factor_that_was_not_measured(measured):
    assert score_factor("0.3", measured).log_error is None


@pytest.mark.parametrize("quantity", Quantity)
def test_the_measured_factor_is_that_of_the_verdict(quantity):
    result = run_experiment(ExperimentSpec())
    question = factor_question(result, quantity)
    found = diagnose(result, gradient=quantity)
    assert (question.measured, question.layers) == (found.factor, len(found.fitted_layers))
    assert not question.why_not
    assert f"{quantity.removesuffix('s')} gradient" in question.text


def test_a_network_without_a_trend_is_not_asked_for_its_factor():
    question = factor_question(run_experiment(ExperimentSpec().replace(layer_sizes="3-3-1")))
    assert question.measured is None
    assert "shallow" in question.why_not


def test_the_sentence_says_what_an_error_per_layer_makes_over_all_layers():
    sentence = score_factor("1", 0.5, layers=11).sentence
    assert "2.00-fold more per layer" in sentence
    assert "1020-fold" in sentence  # 2 to the power of 10
