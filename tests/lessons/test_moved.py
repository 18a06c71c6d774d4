"""The sentence on what optimiser steps moved: its factor is that of the hidden layers, and gaps are named."""

import pytest

from gradlab.lessons.learning import Movement, Optimizer, weight_movement
from gradlab.lessons.moved import moved
from gradlab.spec import ExperimentSpec


def rows(*sizes):
    """Movements of these sizes, the first layer first."""
    return [
        Movement(layer=f"layers.{place}", relative_movement=size, first_gradient=1.0, moved_share=1.0)
        for place, size in enumerate(sizes)
    ]


def said(*sizes, hidden=4, steps=5):
    return moved({Optimizer.SGD: rows(*sizes)}, [f"layers.{place}" for place in range(hidden)], steps)


def test_a_movement_that_halves_per_layer_toward_the_input_is_said_with_what_is_left():
    sentence = said(1e-3 / 8, 1e-3 / 4, 1e-3 / 2, 1e-3, 1.0)
    assert sentence == (
        "After 5 steps, from each hidden layer to the next toward the input: SGD moves the weights 0.500 times as far"
        " (12 % is left over 4 layers)."
    )


def test_the_large_last_layer_and_one_odd_layer_do_not_make_the_factor():
    usual = said(1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 1.0, hidden=5)
    assert said(1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 1e9, hidden=5) == usual
    assert "0.500 times as far" in said(1e-3, 2e-3, 4.5e-3, 8e-3, 16e-3, 1.0, hidden=5)


def test_a_movement_that_grows_toward_the_input_is_told_as_a_multiple():
    assert "3.00 times as far (27.0 times as far over 4 layers)" in said(27.0, 9.0, 3.0, 1.0, 1.0)


def test_what_moved_by_nothing_or_cannot_be_told_is_counted_and_not_fitted():
    sentence = said(0.0, None, 1.0, 2.0, 4.0, 1.0, hidden=5)
    assert "0.500 times as far (25 % is left over 3 layers)" in sentence
    assert sentence.endswith(", and exactly nothing at 1 of 5 layers, and no amount that can be told at 1 of 5 layers.")
    assert "SGD moves exactly nothing at 4 of 4 layers." in said(0.0, 0.0, 0.0, 0.0, 1.0)


def test_of_too_few_hidden_layers_no_trend_is_told():
    assert "no trend over hidden layers" in said(1.0, 2.0, 1.0, hidden=2)
    assert "no trend over hidden layers" in said(1.0, 2.0, 1.0, hidden=0)


@pytest.mark.parametrize("steps", [1, 5])
def test_both_optimisers_are_told_in_one_sentence(steps):
    measured = {optimizer: weight_movement(ExperimentSpec(), steps, optimizer) for optimizer in Optimizer}
    sentence = moved(measured, [f"layers.{place}" for place in range(4)], steps)
    assert sentence.startswith("After one step, " if steps == 1 else "After 5 steps, ")
    assert ["SGD moves" in sentence, "Adam moves" in sentence, sentence.count(". ")] == [True, True, 0]
