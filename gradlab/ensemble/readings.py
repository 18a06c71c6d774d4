"""The statistics of many seeds' gradients, one array per statistic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradlab.capture.records import SQUARE_OVERFLOWS, SQUARE_UNDERFLOWS, Status

Floats = NDArray[np.float64]

STATISTICS = ("mean_abs", "rms", "norm", "min", "max", "max_abs")

SHORT = 64
"""Up to this length rows are turned into columns first: numpy is slow over short rows."""

SQUARES = 1e-140, 1e140
"""For a largest entry between the two no sum of squares leaves the range of float64."""

PRODUCTS = {torch.float32: (1e-30, 1e37), torch.float64: (1e-300, 1e307)}
"""With the largest product between the two, all that underflow together are less than a relative 1e-7 of the sum."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """One kind of gradient at every seed and layer: float64 arrays of shape (seeds, layers), first layer first.

    As in a single experiment the statistics are over the finite entries, NaN where there is none, and
    `nonfinite_count` is the number of the others.
    """

    mean_abs: Floats
    rms: Floats
    norm: Floats
    min: Floats
    max: Floats
    max_abs: Floats
    nonfinite_count: NDArray[np.int64]

    @property
    def statuses(self) -> NDArray[Any]:
        """The `Status` of every reading, as in a single experiment: ok, tiny, huge, all_zero or non_finite."""
        cases = {
            Status.NON_FINITE: self.nonfinite_count > 0,
            Status.ALL_ZERO: self.max_abs == 0,
            Status.TINY: self.max_abs < SQUARE_UNDERFLOWS,
            Status.HUGE: self.max_abs > SQUARE_OVERFLOWS,
        }
        codes = np.select(list(cases.values()), range(len(cases)), len(cases))
        statuses: NDArray[Any] = np.array([*cases, Status.OK], dtype=object)[codes]
        return statuses

    def finite(self, statistic: str) -> Floats:
        """One statistic, NaN wherever a gradient has an entry that is NaN or infinite."""
        values: Floats = np.where(self.nonfinite_count > 0, np.nan, getattr(self, statistic))
        return values


def statistics_of(gradients: Sequence[Tensor]) -> Floats:
    """The numbers named in `STATISTICS` for each row of each of the gradients (seeds, any): (6, seeds, gradients).

    A row with an entry that is NaN or infinite has NaN or infinity as mean_abs.
    """
    seeds = len(gradients[0])
    result = np.empty((len(STATISTICS), seeds, len(gradients)))
    same_width: dict[int, list[int]] = {}
    for place, gradient in enumerate(gradients):
        same_width.setdefault(gradient.shape[1], []).append(place)
    for places in same_width.values():
        together = torch.cat([gradients[place] for place in places])
        result[:, :, places] = row_statistics(together).reshape(len(STATISTICS), len(places), seeds).swapaxes(1, 2)
    return result


def row_statistics(rows: Tensor) -> Floats:
    """As `statistics_of`, for one float32 or float64 matrix, summed in float64: (6, rows)."""
    width = rows.shape[1]
    axis = 0 if width <= SHORT else 1
    values = np.array(rows.numpy().T if axis == 0 else rows.numpy(), np.float64, order="C")
    with np.errstate(all="ignore"):
        absolute = np.abs(values)
        result = np.empty((len(STATISTICS), rows.shape[0]))
        mean_abs, rms, norm, low, high, max_abs = result
        np.sum(absolute, axis, out=mean_abs)
        mean_abs /= width
        np.min(values, axis, out=low)
        np.max(values, axis, out=high)
        np.max(absolute, axis, out=max_abs)
        exponents = _exponents(max_abs, rows.dtype)
        if exponents is not None:
            np.ldexp(absolute, -np.expand_dims(exponents, axis), out=absolute)
        np.square(absolute, out=absolute)
        np.sqrt(np.sum(absolute, axis), out=norm)
        np.divide(norm, np.sqrt(width), out=rms)
        if exponents is not None:
            np.ldexp(norm, exponents, out=norm)
            np.ldexp(rms, exponents, out=rms)
    return result


def _exponents(max_abs: Floats, dtype: torch.dtype) -> NDArray[np.int32] | None:
    """Powers of two that bring each row's squares into range; None where they are: those of float32 are, in float64."""
    smallest, largest = SQUARES
    if dtype is not torch.float64 or (np.min(max_abs) > smallest and np.max(max_abs) < largest):
        return None
    return np.frexp(max_abs)[1]


def product_statistics(left: Sequence[Tensor], right: Sequence[Tensor], of_left: Floats) -> Floats:
    """The statistics of all products of an entry of `left` and one of `right`, which are not made: (6, seeds, gradients).

    For one sample these are the entries of a weight's gradient. `of_left` is `statistics_of(left)`. Where products
    underflow in the type, they are made.
    """
    of_right = statistics_of(right)
    kind = np.float32 if left[0].dtype is torch.float32 else np.float64
    low, high = PRODUCTS[left[0].dtype]
    with np.errstate(all="ignore"):
        result = of_left * of_right
        ends = [of_left[a].astype(kind) * of_right[b].astype(kind) for a in (3, 4) for b in (3, 4)]
        result[3], result[4], result[5] = np.min(ends, 0), np.max(ends, 0), np.max(np.abs(ends), 0)
        inexact = (of_left[5] > 0) & (of_right[5] > 0) & ~((result[5] > low) & (result[5] < high))
    for place in np.flatnonzero(inexact.any(0)).tolist():
        seeds = np.flatnonzero(inexact[:, place])
        chosen = torch.from_numpy(seeds)
        products = left[place][chosen][:, :, None] * right[place][chosen][:, None, :]
        result[:, seeds, place] = row_statistics(products.flatten(1))
    return result
