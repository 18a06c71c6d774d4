"""The predicted factor over weight scale and depth, for a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from gradlab.diagnosis import CutOffs
from gradlab.errors import SpecError
from gradlab.sizes import MAX_LAYERS
from gradlab.spec import MAX_SCALE, Activation
from gradlab.theory.mean_field import CriticalPoint, critical_point
from gradlab.theory.path import fitted_factors, follow


@dataclass(frozen=True, kw_only=True)
class FactorMap:
    """The factor γ per layer toward the input that mean-field theory expects of plain wide networks."""

    activation: Activation
    sigma_b: float
    sigma_w: tuple[float, ...]
    depths: tuple[int, ...]
    """Number of layers, the last included, as in `NetworkSpec.depth`."""
    factors: tuple[tuple[float, ...], ...]
    """One row per depth, one entry per σ_w."""
    critical: CriticalPoint | None
    """Where the factor passes 1 in the limit of many layers: the line to draw across all depths."""


def factor_map(
    activation: Activation, sigma_w: Sequence[float], depths: Sequence[int], sigma_b: float = 0.0, mean_square: float = 1.0
) -> FactorMap:
    """The predicted factor for every pair of σ_w and depth, for inputs of a given mean square.

    The factor is the one `predict_factor` gives: fitted to the hidden layers that a network of that depth has. Raises
    SpecError for a σ_w not above 0 or beyond 1e6, and for a depth below 4 or beyond 200.
    """
    fewest = CutOffs().fewest_layers + 1
    for value in sigma_w:
        if not 0 < value <= MAX_SCALE:
            raise SpecError("sigma_w", value, f"a number above 0, at most {MAX_SCALE:g}")
    for name, value in (("sigma_b", sigma_b), ("mean_square", mean_square)):
        if not 0 <= value <= MAX_SCALE:
            raise SpecError(name, value, f"a number from 0 to {MAX_SCALE:g}")
    for depth in depths:
        if not fewest <= depth <= MAX_LAYERS:
            raise SpecError("depth", depth, f"a whole number from {fewest} to {MAX_LAYERS}")
    weights = numpy.square(numpy.array(sigma_w, float))
    biases = numpy.full_like(weights, sigma_b**2)
    path = follow(activation, weights * mean_square + biases, weights, biases, layers=max(depths, default=fewest) - 1)
    rows = {depth: tuple(fitted_factors(path.factors[: depth - 2]).tolist()) for depth in set(depths)}
    return FactorMap(
        activation=activation,
        sigma_b=float(sigma_b),
        sigma_w=tuple(map(float, sigma_w)),
        depths=tuple(depths),
        factors=tuple(rows[depth] for depth in depths),
        critical=critical_point(activation, float(sigma_b), float(mean_square)),
    )


def critical_line(activation: Activation, sigma_b: Sequence[float], mean_square: float = 1.0) -> tuple[float, ...]:
    """The critical σ_w for each σ_b, NaN where there is none: the border between shrinking and growing gradients."""
    points = (critical_point(activation, float(value), float(mean_square)) for value in sigma_b)
    return tuple(math.nan if point is None else point.sigma_w for point in points)
