"""Averages of an activation over Gaussian pre-activations: what mean-field theory is made of.

With many units a layer's pre-activations are close to Gaussian, of one variance q. Every prediction then needs four
averages over x of variance q: of φ(x), φ², φ'² and how φ² changes with q.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import NDArray

from gradlab.networks import ACTIVATIONS
from gradlab.spec import Activation

Array = NDArray[numpy.float64]

SMALL_SIGNAL = 1e-18
"""A variance at which every activation is its own straight line, or two of them, through zero."""
LARGEST = 1e200
"""The largest variance; long before it nothing changes any more: what lets a variance grow so far is straight on both sides."""

_STEP = 0.1
_LOWEST, _HIGHEST = -371.0, 234.0
"""Range of log |x|, wide enough for the averages at variances from 1e-288 to `LARGEST`."""
_BELOW, _ABOVE = 38.0, 2.5
"""Closer to zero than e**-38, in standard deviations or, where these are larger, in units of x, lies a share of 1e-17 of
every average; farther out than e**2.5 standard deviations one of 1e-33."""


class Moments(NamedTuple):
    """Averages over Gaussian x of variance q."""

    mean: float
    """E[φ]."""
    square: float
    """E[φ²]: the mean square that a layer hands on."""
    slope_square: float
    """E[φ'²]: the share of a gradient's mean square that passes the activation."""
    growth: float
    """dE[φ²]/dq = E[x·φ·φ']/q; NaN at q = 0."""


def moments(activation: Activation, variance: float) -> Moments:
    """The averages of an activation at pre-activation variance q from 0 to `LARGEST`.

    Relative error below 1e-10 for q up to 1e24: the trapezoidal rule in log |x|, separately for x < 0 and x > 0, which
    converges exponentially where the integrand is analytic (Trefethen & Weideman 2014). A kink of the activation may
    therefore sit at zero, as ReLU's does, and nowhere else. The points x are the same whatever q, so that the activation
    is worked out once and q decides only how much each of them weighs. Raises ValueError for a variance out of range.
    """
    if not 0 <= variance <= LARGEST:
        raise ValueError(f"variance = {variance}: a number from 0 to {LARGEST:g}")
    size, samples = _points(), _samples(activation)
    if not variance:
        mean, square, slope_square, _ = (samples[:, -1] / 2).tolist()
        return Moments(mean, square, slope_square, math.nan)
    spread = math.sqrt(max(variance, 1e-288))
    logarithm = math.log(spread)
    start = int((min(logarithm, 0.0) - _BELOW - _LOWEST) / _STEP)
    counted = slice(start, int((logarithm + _ABOVE - _LOWEST) / _STEP) + 1)
    z = size[counted] / spread
    weights = numpy.exp(-0.5 * z * z) * z
    mean, square, slope_square, change = (samples[:, counted] @ weights * (_STEP / math.sqrt(2 * math.pi))).tolist()
    return Moments(mean, square, slope_square, change / variance)


def hermite_squares(activation: Activation, variance: float, count: int) -> Array:
    """The squared coefficients of φ(√q·z) in normalised Hermite polynomials, orders 0 to count − 1.

    They are the covariance of a layer's outputs as a power series in the correlation c of its inputs:
    E[φ(√q·z₁)·φ(√q·z₂)] = Σ b_k²·c^k (Mehler's formula).
    """
    nodes, polynomials = _weighted_hermite(count)
    with torch.no_grad():
        y = ACTIVATIONS[activation].build()(torch.from_numpy(math.sqrt(variance) * nodes)).numpy()
    found: Array = numpy.square(polynomials @ y)
    return found


@cache
def _points() -> Array:
    points: Array = numpy.exp(numpy.arange(_LOWEST, _HIGHEST, _STEP))
    return points


@cache
def _samples(activation: Activation) -> Array:
    """φ, φ², φ'² and x·φ·φ' at every point x and at 0, each added up with its value at −x, which weighs as much."""
    size = numpy.append(_points(), 0.0)
    # The caller may be under no_grad or in inference mode; the slopes come from autograd all the same.
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.from_numpy(numpy.stack([size, -size])).requires_grad_()
        y = ACTIVATIONS[activation].build()(x)
        (slope,) = torch.autograd.grad(y.sum(), x) if y.requires_grad else (torch.zeros_like(x),)
    x, y, slope = x.detach(), y.detach(), slope.detach()
    found: Array = torch.stack([y, y * y, slope * slope, x * y * slope]).sum(1).numpy()
    return found


@cache
def _weighted_hermite(count: int) -> tuple[Array, Array]:
    """Nodes z of the trapezoidal rule, and the normalised Hermite polynomials there times their weight, one row per order."""
    size = numpy.exp(numpy.arange(-64.0, _ABOVE, _STEP))
    nodes = numpy.concatenate([-size[::-1], size])
    weights = _STEP * numpy.abs(nodes) * numpy.exp(-0.5 * nodes * nodes) / math.sqrt(2 * math.pi)
    rows: list[Any] = [numpy.ones_like(nodes), nodes]
    for order in range(1, count - 1):
        rows.append((nodes * rows[-1] - math.sqrt(order) * rows[-2]) / math.sqrt(order + 1))
    return nodes, numpy.array(rows[:count]) * weights
