"""The trend of many seeds at once, by the rule of `gradlab.diagnosis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import Verdict, hidden_depths, verdict_on
from gradlab.ensemble.readings import Floats, Readings

AT_ONCE = 2_000_000
"""Slopes that are sorted at a time."""


ROUNDING = 1e-6
"""How near to 1 a factor is 1: where every layer holds the gradient, as orthogonal ones do, float32 leaves some 1e-7."""


class Trends(NamedTuple):
    """One entry per seed, as `diagnose` would give it; NaN where there is no line."""

    factors: Floats
    attenuations: Floats
    verdicts: NDArray[Any]


def trends(readings: Readings, layer_sizes: Sequence[int], cut_offs: CutOffs) -> Trends:
    """Factor, attenuation and verdict at every seed, for a network of these layer sizes."""
    hidden = np.array(hidden_depths(layer_sizes), np.intp)
    sizes, count = readings.finite("rms")[:, hidden], len(hidden)
    if count < cut_offs.fewest_layers:
        nothing = np.full(len(sizes), np.nan)
        return Trends(nothing, nothing, np.array([Verdict.TOO_SHALLOW] * len(sizes), object))
    measured = np.count_nonzero(sizes > 0, axis=1)
    # The layers without a reading are those nearest the input, and exactly zero: the gradient fell below the type's range.
    dried_up = (measured < count) & (np.cumprod(sizes == 0, axis=1).sum(1) == count - measured)
    is_fitted = (measured >= cut_offs.fewest_layers) & ((count - measured <= measured) | dried_up)
    factors = np.full(len(sizes), np.nan)
    factors[is_fitted] = _factors(hidden, sizes[is_fitted])
    with np.errstate(all="ignore"):
        attenuations = factors ** (measured - 1)
        is_cut_off = dried_up & (attenuations >= cut_offs.weakening)
    factors[is_cut_off] = attenuations[is_cut_off] = np.nan
    judged = [Verdict.NOT_MEASURABLE if a != a else verdict_on(a, cut_offs) for a in attenuations.tolist()]
    return Trends(factors, attenuations, np.array(judged, object))


def opposite(factors: Floats) -> int | None:
    """How many of these factors lie on the other side of 1 than their median; None where there is no other side."""
    middle = float(np.median(factors)) if len(factors) else 1.0
    if abs(middle - 1) <= ROUNDING:
        return None
    return int(np.count_nonzero(factors > 1 + ROUNDING if middle < 1 else factors < 1 - ROUNDING))


def _factors(depths: NDArray[np.intp], sizes: Floats) -> Floats:
    """`per_layer_factor` of each row, over the sizes in it that are above 0: at least two."""
    one, other = np.triu_indices(len(depths), 1)
    distance = depths[other] - depths[one]
    slopes = np.empty(len(sizes))
    rows = max(1, AT_ONCE // len(distance))
    for start in range(0, len(sizes), rows):
        part = slice(start, start + rows)
        logarithms = np.log10(np.where(sizes[part] > 0, sizes[part], np.nan))
        between = (logarithms[:, other] - logarithms[:, one]) / distance
        slopes[part] = (np.nanmedian if np.isnan(between).any() else np.median)(between, axis=1)
    with np.errstate(over="ignore"):
        factors: Floats = 10.0**-slopes
    return factors
