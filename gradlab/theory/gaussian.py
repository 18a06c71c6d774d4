"""Averages of an activation over Gaussian pre-activations: what mean-field theory is made of.

With many units a layer's pre-activations are close to Gaussian, of one variance q. Every prediction then needs four
averages over z ~ N(0, 1): of φ, φ², φ'² and their change with q, each taken at √q·z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from gradlab.networks import ACTIVATIONS
from gradlab.spec import Activation

SMALL_SIGNAL = 1e-18
"""A variance at which every activation is its own straight line, or two of them, through zero."""

_STEP = 0.1
_LOWEST, _HIGHEST = -64.0, 2.5
"""Range of log |z|: below it lies nothing even for √q = 1e12, beyond it a share of 1e-33 of the Gaussian."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Averages over z ~ N(0, 1) at √q·z, float64, of the shape of the variances q they were taken at."""

    mean: Tensor
    """E[φ]."""
    square: Tensor
    """E[φ²]: the mean square that a layer hands on."""
    slope_square: Tensor
    """E[φ'²]: the share of a gradient's mean square that passes the activation."""
    growth: Tensor
    """dE[φ²]/dq = E[z·φ·φ']/√q; NaN at q = 0."""


def moments(activation: Activation, variances: Tensor) -> Moments:
    """The averages of an activation at pre-activation variances q ≥ 0, a float64 tensor of any shape.

    Relative error below 1e-10 for q from 0 to 1e24: the trapezoidal rule in log |z|, separately for z < 0 and z > 0, which
    converges exponentially where the integrand is analytic (Trefethen & Weideman 2014). A kink of the activation may
    therefore sit at zero, as ReLU's does, and nowhere else.
    """
    nodes, weights = _rule()
    spread = variances.to(torch.float64).sqrt().unsqueeze(-1)
    # The caller may be under no_grad or in inference mode; the slopes come from autograd all the same.
    with torch.inference_mode(False), torch.enable_grad():
        x = (spread * nodes).requires_grad_()
        y = ACTIVATIONS[activation].build()(x)
        (slope,) = torch.autograd.grad(y.sum(), x) if y.requires_grad else (torch.zeros_like(x),)
    y, slope = y.detach(), slope.detach()
    return Moments(
        mean=y @ weights,
        square=y.square() @ weights,
        slope_square=slope.square() @ weights,
        growth=(y * slope * nodes) @ weights / spread.squeeze(-1),
    )


def hermite_squares(activation: Activation, variance: float, count: int) -> Tensor:
    """The squared coefficients of φ(√q·z) in normalised Hermite polynomials, orders 0 to count − 1.

    They are the covariance of a layer's outputs as a power series in the correlation c of its inputs:
    E[φ(√q·z₁)·φ(√q·z₂)] = Σ b_k²·c^k (Mehler's formula).
    """
    nodes, weights = _rule()
    with torch.no_grad():
        y = ACTIVATIONS[activation].build()(math.sqrt(variance) * nodes)
    before, polynomial = torch.zeros_like(nodes), torch.ones_like(nodes)
    squares = []
    for order in range(count):
        squares.append((y * polynomial * weights).sum().square())
        following = (nodes * polynomial - math.sqrt(order) * before) / math.sqrt(order + 1)
        before, polynomial = polynomial, following
    return torch.stack(squares)


@cache
def _rule() -> tuple[Tensor, Tensor]:
    size = torch.exp(torch.arange(_LOWEST, _HIGHEST, _STEP, dtype=torch.float64))
    weight = _STEP * size * torch.exp(-size.square() / 2) / math.sqrt(2 * math.pi)
    return torch.cat([-size.flip(0), size]), torch.cat([weight.flip(0), weight])
