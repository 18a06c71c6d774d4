"""A signal followed layer by layer: at finite depth the variance has often not settled, and the factor with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy
from numpy.typing import NDArray

from gradlab.spec import Activation
from gradlab.theory.gaussian import LARGEST, Array, moments


@dataclass(frozen=True, kw_only=True)
class Path:
    """What each hidden layer makes of a signal on the way forward and of a gradient on the way back; float64 arrays."""

    variances: Array
    """(layers, n): pre-activation variance q in each layer, the first layer first."""
    factors: Array
    """(layers − 1, n): RMS of the gradient at a layer's linear output, over that of the next layer's."""
    growth: Array
    """(layers − 1, n): RMS of what a layer hands on, over that of what the layer before handed on."""


def follow(
    activation: Activation,
    first: Sequence[float],
    weights: Sequence[float],
    biases: Sequence[float],
    *,
    layers: int,
    shortcut: bool = False,
    passed_by: float = 0.0,
) -> Path:
    """The path through layers of n different weight variances σ_w² at once.

    `first` is the variance of the first layer's pre-activations, `weights` σ_w² and `biases` σ_b² of the others. With
    shortcuts a layer hands on x + φ(h), and x and φ(h) are uncorrelated but for their means; `passed_by` is the mean square
    of the input where a shortcut leads around the first layer too. The mean square of a gradient gets 1 + χ₁ times as
    large, as if the two ways back were independent (Yang & Schoenholz 2017).
    """
    q, scale, offset = numpy.array(first, float), numpy.array(weights, float), numpy.array(biases, float)
    mean, square = numpy.zeros_like(q), numpy.full_like(q, passed_by)
    variances, slopes, signals = [], [], []
    for _ in range(layers):
        q = numpy.minimum(q, LARGEST)
        at_mean, at_square, slope_square, _ = numpy.transpose([moments(activation, each) for each in q.tolist()])
        if shortcut:
            square = square + at_square + 2 * mean * at_mean
            mean = mean + at_mean
        else:
            mean, square = at_mean, at_square
        variances.append(q)
        slopes.append(slope_square)
        signals.append(square)
        q = scale * square + offset
    slope, signal = numpy.array(slopes), numpy.array(signals)
    with numpy.errstate(all="ignore"):  # a signal or a slope may be zero
        passed = (1 + scale * slope[1:]) * slope[:-1] / slope[1:] if shortcut else scale * slope[:-1]
        return Path(variances=numpy.array(variances), factors=numpy.sqrt(passed), growth=numpy.sqrt(signal[1:] / signal[:-1]))


def fitted_factors(factors: Array) -> Array:
    """The one factor per layer that `diagnose` would fit to readings with these factors between neighbouring layers.

    That is, by its logarithm, the median over all pairs of layers of the factor per layer between the two; shape
    (layers − 1, n) -> (n,).
    """
    with numpy.errstate(all="ignore"):
        logs = numpy.concatenate([numpy.zeros_like(factors[:1]), numpy.log(factors)]).cumsum(0).T
        nearer, farther = _pairs(logs.shape[1])
        slopes = (logs[:, farther] - logs[:, nearer]) / (farther - nearer)
        below, above = (slopes.shape[1] - 1) // 2, slopes.shape[1] // 2
        middle: Array = numpy.exp(numpy.partition(slopes, (below, above), axis=1)[:, [below, above]].mean(axis=1))
    return middle


@lru_cache(64)
def _pairs(count: int) -> tuple[NDArray[numpy.intp], NDArray[numpy.intp]]:
    """All pairs of different numbers below `count`, the smaller ones and the larger ones."""
    smaller, larger = numpy.triu_indices(count, 1)
    return smaller, larger
