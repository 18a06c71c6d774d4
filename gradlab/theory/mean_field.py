"""What many layers do to a signal of given variance: where it settles, what then happens to gradients.

Notation as in Poole et al. 2016 and Schoenholz et al. 2017: weights of variance σ_w²/fan_in, biases of variance σ_b²,
pre-activations of variance q, and χ₁ = σ_w²·E[φ'²], the factor of a gradient's mean square per layer toward the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy

from gradlab.spec import MAX_SCALE, Activation, Initializer, NetworkSpec
from gradlab.theory.gaussian import SMALL_SIGNAL, hermite_squares, moments

LARGE = 1e30
"""A variance that still grows here grows for ever: every activation is a straight line on each side by then."""
SMALL = 1e-9
"""A variance that still shrinks here, with nothing to stop it at zero, counts as zero; the error in χ₁ is of this size."""
TOLERANCE = 1e-12
"""A variance that a layer changes by less than this share of itself stays as it is."""

_MEHLER_ORDERS = 400


class Fate(StrEnum):
    """What becomes of the pre-activation variance, layer after layer."""

    SETTLES = "settles"
    DIES_OUT = "dies_out"
    DIVERGES = "diverges"
    STAYS = "stays"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Where the pre-activation variance ends after very many layers, and what a layer then does."""

    fate: Fate
    q_star: float | None
    """The fixed point q* = σ_w²·E[φ²] + σ_b²; 0 where it dies out, None where it diverges."""
    chi: float
    """χ₁ in that limit; its root is the factor of gradients per layer toward the input."""
    chi_q: float
    """The factor of a small deviation from q* per layer; 1 where the variance stays whatever it is."""


@dataclass(frozen=True, kw_only=True)
class DepthScales:
    """Numbers of layers over which something changes e-fold near the fixed point (Schoenholz et al. 2017); ∞ at criticality."""

    variance: float
    """ξ_q: for a deviation of the variance from q*."""
    correlation: float
    """ξ_c: for what two inputs still have in common, or apart. Networks up to about 6·ξ_c layers can be trained."""
    gradient: float
    """1/|log χ₁|: for the mean square of gradients."""


@dataclass(frozen=True, kw_only=True)
class LayerVariances:
    """Variances of one layer's draws, in mean-field units."""

    sigma_w_squared: float
    """Weight variance times fan_in."""
    sigma_b_squared: float
    """Bias variance."""


_WEIGHT_VARIANCES: dict[Initializer, Callable[[NetworkSpec, int, int], float]] = {
    Initializer.PYTORCH_DEFAULT: lambda spec, fan_in, fan_out: 1 / 3,  # uniform within ±1/√fan_in
    Initializer.XAVIER: lambda spec, fan_in, fan_out: 2 * fan_in / (fan_in + fan_out),
    Initializer.HE: lambda spec, fan_in, fan_out: 2.0,
    # Rows or columns of length 1, whichever are the fewer.
    Initializer.ORTHOGONAL: lambda spec, fan_in, fan_out: min(1.0, fan_in / fan_out),
    Initializer.NORMAL: lambda spec, fan_in, fan_out: spec.sigma_w**2,
}


def layer_variances(spec: NetworkSpec, index: int) -> LayerVariances:
    """The variances of weights (times fan_in) and biases that a specification draws for one layer, counted from 0.

    PyTorch's default draws biases of variance 1/(3·fan_in): the one number here that depends on the width itself.
    """
    fan_in, fan_out = spec.layer_sizes[index], spec.layer_sizes[index + 1]
    bias = {Initializer.PYTORCH_DEFAULT: 1 / (3 * fan_in), Initializer.NORMAL: spec.sigma_b**2}.get(spec.initializer, 0.0)
    return LayerVariances(
        sigma_w_squared=spec.gain**2 * _WEIGHT_VARIANCES[spec.initializer](spec, fan_in, fan_out),
        sigma_b_squared=bias if spec.use_bias else 0.0,
    )


def limit_of(activation: Activation, variances: LayerVariances, start: float = 1.0) -> Limit:
    """Where the pre-activation variance ends that begins at `start`, if every layer has the same variances.

    The fixed point is the nearest one in the direction in which the first layer moves the variance: bracketed, then
    found to a relative 1e-12. Iterating the layers leads to the same point, since E[φ²] rises with q, but near
    criticality not in any number of steps worth waiting for.
    """
    w, b = variances.sigma_w_squared, variances.sigma_b_squared

    def change(q: float) -> float:
        return (w * moments(activation, q).square + b) / q - 1

    silent = w * moments(activation, 0.0).square + b == 0
    low = high = min(max(start, SMALL if silent else SMALL_SIGNAL), LARGE)
    direction = change(low)
    if silent and abs(direction) <= TOLERANCE and abs(change(4 * low)) <= TOLERANCE:
        return _limit(activation, variances, Fate.STAYS, start)
    while direction > 0 and change(high) > 0:
        low, high = high, high * (4 if high < 1e3 else 1e3)  # all bends of an activation lie below
        if high > LARGE:
            return _limit(activation, variances, Fate.DIVERGES, None)
    while direction < 0 and change(low) < 0:
        low, high = low / 4, low
        if low < SMALL and silent:
            return _limit(activation, variances, Fate.DIES_OUT, 0.0)
    return _limit(activation, variances, Fate.SETTLES, _root(change, low, high))


def depth_scales(activation: Activation, variances: LayerVariances, limit: Limit) -> DepthScales:
    """The depth scales at a limit of the variance; without a fixed point only that of the gradient is finite.

    In the ordered phase, χ₁ ≤ 1, two inputs grow alike at the rate χ₁. In the chaotic one they settle at a correlation
    c* < 1, and the rate is the slope of the correlation map there.
    """
    settled = limit.fate is Fate.SETTLES
    slope = limit.chi if settled or limit.fate is Fate.DIES_OUT else 1.0
    if settled and limit.q_star and limit.chi > 1 + TOLERANCE:
        slope = _slope_at_settled_correlation(activation, variances, limit.q_star)
    return DepthScales(
        variance=_scale(limit.chi_q) if limit.fate is not Fate.DIVERGES else math.inf,
        correlation=_scale(slope),
        gradient=_scale(limit.chi),
    )


@dataclass(frozen=True, kw_only=True)
class CriticalPoint:
    """The σ_w, for a given σ_b, at which gradients pass from shrinking to growing in the limit of many layers."""

    sigma_w: float
    abrupt: bool
    """Whether they pass from one to the other in a jump, with nothing near χ₁ = 1 between."""


@lru_cache(maxsize=1024)
def critical_point(activation: Activation, sigma_b: float = 0.0, mean_square: float = 1.0) -> CriticalPoint | None:
    """Where gradients neither shrink nor grow, for inputs of a given mean square; None where that is at no σ_w up to 1e6.

    On the critical line χ₁ = 1 at a stable fixed point, so σ_w² = 1/E[φ'²] and σ_b² = q* − E[φ²]/E[φ'²] (Poole et al.
    2016). With GELU and SiLU and small biases no such point is stable: the variance falls to a low value up to some σ_w and
    grows out of bounds above it. That σ_w, which depends on the input, is then the answer, to a relative 1e-6.
    """
    line = _critical_variance(activation, sigma_b**2)
    if line is not None:
        sigma_w = 1 / math.sqrt(moments(activation, line).slope_square)
        if abs(_limit_for(activation, sigma_w, sigma_b, mean_square).chi - 1) < 1e-6:
            return CriticalPoint(sigma_w=sigma_w, abrupt=False)

    def shrinks(sigma_w: float) -> bool:
        return _limit_for(activation, sigma_w, sigma_b, mean_square).chi < 1

    low, high = 0.5, 1.0
    while low > 1e-3 and not shrinks(low):
        low, high = low / 2, low
    while high < MAX_SCALE and shrinks(high):
        low, high = high, 2 * high
    if not shrinks(low) or shrinks(high):
        return None
    while high / low - 1 > 1e-6:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if shrinks(middle) else (low, middle)
    return CriticalPoint(sigma_w=high, abrupt=True)


def _limit_for(activation: Activation, sigma_w: float, sigma_b: float, mean_square: float) -> Limit:
    variances = LayerVariances(sigma_w_squared=sigma_w**2, sigma_b_squared=sigma_b**2)
    return limit_of(activation, variances, sigma_w**2 * mean_square + sigma_b**2)


def _limit(activation: Activation, variances: LayerVariances, fate: Fate, q_star: float | None) -> Limit:
    at = moments(activation, LARGE if q_star is None else max(q_star, SMALL_SIGNAL))
    w = variances.sigma_w_squared
    return Limit(fate=fate, q_star=q_star, chi=w * at.slope_square, chi_q=w * at.growth)


def _critical_variance(activation: Activation, sigma_b_squared: float) -> float | None:
    """The q* on the critical line, by narrowing a grid around the first point where σ_b² is reached."""

    def is_reached(log_q: float) -> bool:
        q = math.exp(log_q)
        at = moments(activation, q)
        # Piecewise linear activations need no bias at any q: what is left of q there is rounding.
        return q - at.square / at.slope_square + 1e-14 * q >= sigma_b_squared

    low, high = math.log(SMALL_SIGNAL), math.log(LARGE)
    for _ in range(9):
        grid: list[float] = numpy.linspace(low, high, 64).tolist()
        first = next((place for place, log_q in enumerate(grid) if is_reached(log_q)), None)
        if first is None:
            return None
        if first == 0:
            return math.exp(low)
        low, high = grid[first - 1], grid[first]
    return math.exp((low + high) / 2)


def _slope_at_settled_correlation(activation: Activation, variances: LayerVariances, q_star: float) -> float:
    """The slope of the correlation map at its stable fixed point c* < 1.

    The map is a power series with no negative coefficient, hence convex; with a slope above 1 at c = 1 it crosses the
    diagonal once below, and Newton's method from 0 rises to that point.
    """
    orders = numpy.arange(_MEHLER_ORDERS)
    terms = variances.sigma_w_squared * hermite_squares(activation, q_star, _MEHLER_ORDERS) / q_star
    c = 0.0
    for _ in range(100):
        powers = c**orders
        slope = float((terms[1:] * orders[1:] * powers[:-1]).sum())
        step = (float((terms * powers).sum()) + variances.sigma_b_squared / q_star - c) / (1 - slope)
        if not 0 < step < 1 - c or step < TOLERANCE:
            break
        c += step
    return slope


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function passes zero between two positive points: regula falsi on the logarithm (Illinois), then bisection."""
    at_low, at_high = function(low), function(high)
    for step in range(100):
        if at_low == at_high or high / low - 1 < 1e-14:
            break
        share = at_low / (at_low - at_high) if step < 40 else 0.5
        middle = math.exp(math.log(low) + share * math.log(high / low))
        value = function(middle)
        if abs(value) < 4e-15 or not low < middle < high:
            return middle
        if (value > 0) == (at_low > 0):
            low, at_low, at_high = middle, value, at_high / 2
        else:
            high, at_high, at_low = middle, value, at_low / 2
    return math.sqrt(low * high)


def _scale(factor: float) -> float:
    """Over how many layers a factor per layer makes e or 1/e of a number."""
    if factor <= 0:
        return 0.0
    return math.inf if abs(factor - 1) <= 1e-9 else 1 / abs(math.log(factor))
