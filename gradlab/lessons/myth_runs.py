"""The measurement behind each widespread claim: a small network at a few seeds, and what came out in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradlab.lessons.learning import Optimizer
from gradlab.lessons.myth_trails import (
    ONE_SAMPLE,
    MythResult,
    Trails,
    in_words,
    many_trails,
    movements,
    result_of,
    runs_at,
    trails_at,
    trails_of,
)
from gradlab.text import short_number
from gradlab.theory import predict_factor
from gradlab.trail import Quantity


def batch_norm(seeds: Sequence[int]) -> MythResult:
    """ReLU layers with He initialisation, with and without BatchNorm."""
    network = {"layer_sizes": "256x16-10", "activation": "relu", "initializer": "he"}
    # The formula is the limit of large batches.
    normed = trails_at(seeds, **network, normalization="batch_norm", batch_size=256)
    plain = trails_at(seeds, **network)
    theory = predict_factor(normed.spec)
    return result_of(
        normed,
        1.0,
        f"With BatchNorm {in_words(normed)}. Without it, in the same network, it is {short_number(plain.factor)}.",
        [normed.frame("with BatchNorm"), plain.frame("without", hue=1)],
        seeds=seeds,
        predicted=theory.factor,
        factors=theory.factors,
    )


def shortcuts(seeds: Sequence[int]) -> MythResult:
    """ReLU layers as PyTorch draws them, with and without shortcuts."""
    network = {"layer_sizes": "512x20-10", "activation": "relu"}
    joined = trails_at(seeds, **network, use_shortcut=True)
    theory = predict_factor(joined.spec)
    return result_of(
        joined,
        1.0,
        f"With shortcuts {in_words(joined)}.",
        [joined.frame("with shortcuts", hue=1)],
        seeds=seeds,
        predicted=theory.factor,
        factors=theory.factors,
    )


def width(seeds: Sequence[int]) -> MythResult:
    """The same depth at 64 and at 256 units per layer, one sample."""
    network = ONE_SAMPLE | {"activation": "relu"}
    narrow = many_trails(seeds, **network | {"layer_sizes": "64x20-10"})
    wide = many_trails(seeds, **network | {"layer_sizes": "256x20-10"})
    theory = predict_factor(wide.spec)
    return result_of(
        wide,
        1.0,
        f"With 256 units {in_words(wide)}. With 64 it is {short_number(narrow.factor)}. Seeds differ:"
        f" there, typically {short_number(narrow.scatter)}-fold with 64 units, {short_number(wide.scatter)}-fold with 256.",
        [narrow.frame("64 units"), wide.frame("256 units", hue=1)],
        seeds=seeds,
        predicted=theory.factor,
        factors=theory.factors,
    )


def critical(seeds: Sequence[int]) -> MythResult:
    """Tanh layers at σ_w = 1, σ_b = 0, the critical point."""
    network = {"layer_sizes": "512x20-10", "activation": "tanh", "initializer": "normal", "sigma_w": 1.0, "sigma_b": 0.0}
    trails = trails_at(seeds, **network)
    theory = predict_factor(trails.spec)
    limit = short_number(theory.limit_factor)
    return result_of(
        trails,
        1.0,
        f"At σ_w = 1, σ_b = 0 {in_words(trails)}. Theory has {short_number(theory.factor)} for these layers"
        f" and {limit} only in the limit of infinitely many.",
        [trails.frame("σ_w = 1, σ_b = 0")],
        seeds=seeds,
        predicted=theory.factor,
        factors=theory.factors,
    )


def he(seeds: Sequence[int]) -> MythResult:
    """ReLU layers with He initialisation."""
    trails = trails_at(seeds, layer_sizes="512x20-10", activation="relu", initializer="he")
    theory = predict_factor(trails.spec)
    return result_of(
        trails,
        1.0,
        f"With He initialisation {in_words(trails)}.",
        [trails.frame("He initialisation")],
        seeds=seeds,
        predicted=theory.factor,
        factors=theory.factors,
    )


def adam(seeds: Sequence[int]) -> MythResult:
    """How far one step of SGD and of Adam moves the weights of sigmoid layers."""
    network = {"layer_sizes": "64x6-10", "activation": "sigmoid"}
    trails, gradient, moved = movements(seeds, Optimizer.ADAM, **network)
    by_sgd, _, moved_by_sgd = movements(seeds, Optimizer.SGD, **network)
    return result_of(
        trails,
        math.sqrt(1 / 48),
        f"The first layer's mean absolute gradient is {short_number(gradient)}. One step of SGD moves its weights by"
        f" {short_number(moved_by_sgd)} of their size, one step of Adam by {short_number(moved)}. Per layer toward the input"
        f" the step changes by the factor {short_number(trails.factor)} under Adam, {short_number(by_sgd.factor)} under SGD.",
        [trails.frame("step of Adam", hue=1), by_sgd.frame("step of SGD")],
        seeds=seeds,
        predicted=1.0,
        factors=[1.0] * (len(trails.layers) - 1),
    )


def weights(seeds: Sequence[int]) -> MythResult:
    """Both gradients of ReLU layers without biases, at three scales of the weights, one sample."""
    network = ONE_SAMPLE | {"layer_sizes": "512x12-10", "activation": "relu", "initializer": "normal", "use_bias": False}
    scales = {"1/3": 1 / 3, "2": 2.0, "8": 8.0}
    runs = {name: runs_at(seeds, **network, sigma_w=math.sqrt(scale)) for name, scale in scales.items()}
    outputs = {name: trails_of(results, Quantity.OUTPUTS) for name, results in runs.items()}
    found = {name: trails_of(results, Quantity.WEIGHTS) for name, results in runs.items()}
    shown = found["1/3"]
    return result_of(
        shown,
        math.sqrt(1 / 6),
        f"At σ_w² = 1/3, 2 and 8 the output gradients change by {_listed(outputs)} per layer toward the input, the weight"
        f" gradients by {_listed(found)}.",
        [
            shown.frame("weights, σ_w² = 1/3", hue=1),
            *(trails.frame(f"outputs, σ_w² = {name}") for name, trails in outputs.items()),
        ],
        seeds=seeds,
        predicted=1.0,
        factors=[1.0] * (len(shown.layers) - 1),
    )


def _listed(trails: dict[str, Trails]) -> str:
    first, second, third = (short_number(each.factor) for each in trails.values())
    return f"{first}, {second} and {third}"
