"""What a few optimiser steps did to the layers, in one sentence: how far the weights move toward the input end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import per_layer_factor
from gradlab.lessons.learning import OPTIMIZERS, Movement, Optimizer
from gradlab.text import share_left, short_number


def moved(movements: Mapping[Optimizer, Sequence[Movement]], fitted: Sequence[str], steps: int) -> str:
    """How far each hidden layer moved compared with the one before it, toward the input, under every optimiser.

    `fitted` are the layers a verdict rests on (`layers.0`). The factor is found as the verdict's is, through the median of all
    pairwise slopes, so that one odd layer, or a large last one, does not make it.
    """
    if len(fitted) < CutOffs().fewest_layers:
        return "There is no trend over hidden layers to speak of here; the picture shows every layer by itself."
    after = "one step" if steps == 1 else f"{steps} steps"
    parts = [f"{OPTIMIZERS[optimizer].title} moves {_trend(rows, fitted)}" for optimizer, rows in movements.items()]
    return f"After {after}, from each hidden layer to the next toward the input: {'; '.join(parts)}."


def _trend(rows: Sequence[Movement], fitted: Sequence[str]) -> str:
    hidden = [(depth, row.relative_movement) for depth, row in enumerate(rows) if row.layer in fitted]
    known = [(depth, size) for depth, size in hidden if size]
    gaps = [
        words
        for words, count in (
            ("exactly nothing", sum(size == 0 for _, size in hidden)),
            ("no amount that can be told", sum(size is None for _, size in hidden)),
        )
        if count
        for words in [f"{words} at {count} of {len(hidden)} layers"]
    ]
    if len(known) < CutOffs().fewest_layers:
        return " and ".join(gaps)
    factor = per_layer_factor(*zip(*known, strict=True))
    left = factor ** (len(known) - 1)
    amount = f"{share_left(left)} is left" if left < 1 else f"{short_number(left)} times as far"
    what = f"the weights {short_number(factor)} times as far ({amount} over {len(known)} layers)"
    return ", and ".join([what, *gaps])
