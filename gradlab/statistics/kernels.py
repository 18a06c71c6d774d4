"""Kernels of numpy over the numbers of one gradient, or of several end to end: a few calls over memory that stays in the cache.

None looks for NaN or infinity: a finite sum of absolute values proves that there is none, and of numbers without that proof
the finite ones are picked out and measured in float64.
"""

from __future__ import annotations

from math import frexp, inf, ldexp, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gradlab.statistics.plain import EMPTY, NAN, GradientStatistics, measure

Array = NDArray[Any]

BLOCK = 256
"""Sums in float32 run over so many numbers and go on in float64: a dot product of a whole piece saves 5 %, but is off by
1e-5 where all entries are equal, as in the gradient of a mean. Every gradient in a slab begins a new block."""

ONES = {np.dtype(kind): np.ones(BLOCK, kind) for kind in (np.float32, np.float64)}

SQUARES = {np.dtype(np.float32): (1e-15, 1e15, 126), np.dtype(np.float64): (1e-140, 1e140, 1000)}
"""For a largest entry between the first two numbers no sum of squares leaves the range of the type; the third is the
largest power of two, either way, by which other gradients are brought there."""

NEAR = 48
"""Gradients whose largest entries are fewer powers of two apart are brought there by one power: half the time, and usual
for layers that follow each other. The smallest of them stays above the first number."""


def measure_sections(values: Array, edges: list[int], scratch: Array) -> list[list[Any]]:
    """The fields of gradients that begin with a block, at one edge, and end at the next; gaps are filled with zeros."""
    bounds = np.array(edges)
    starts = bounds[::2]
    numel = bounds[1::2] - starts
    first = starts // BLOCK
    if edges[-1] == len(values):  # reduceat wants every index to be inside
        bounds = bounds[:-1]
    with np.errstate(all="ignore"):
        absolute = np.abs(values, scratch[: len(values)])
        blocks, absolute_blocks, ones = values.reshape(-1, BLOCK), absolute.reshape(-1, BLOCK), ONES[values.dtype]
        sums = np.empty((3, len(blocks)), values.dtype)
        np.vecdot(absolute_blocks, ones, sums[0])
        np.vecdot(blocks, ones, sums[1])
        low = np.minimum.reduceat(values, bounds)[::2]
        high = np.maximum.reduceat(values, bounds)[::2]
        smallest = np.minimum.reduceat(absolute, bounds)[::2]
        zero_count = np.zeros(len(numel))
        if not np.minimum.reduce(smallest) > 0:  # also where it is NaN
            is_zero = np.equal(values, 0, absolute.view(np.bool_)[: len(values)])
            for index in np.flatnonzero(~(smallest > 0)).tolist():
                zero_count[index] = np.count_nonzero(is_zero[edges[2 * index] : edges[2 * index + 1]])
        max_abs = np.maximum(high, -low)
        smallest_safe, largest_safe, limit = SQUARES[values.dtype]
        exponents: Any = 0
        if not (np.minimum.reduce(max_abs) > smallest_safe and np.maximum.reduce(max_abs) < largest_safe):
            exponents = np.minimum(np.maximum(np.frexp(max_abs)[1], -limit), limit)
            if (largest := np.maximum.reduce(exponents)) - np.minimum.reduce(exponents) < NEAR:
                exponents = largest
                units = np.ldexp(values.dtype.type(1), -exponents)
            else:
                units = np.repeat(np.ldexp(values.dtype.type(1), -exponents), (numel + (BLOCK - 1)) // BLOCK)[:, None]
            blocks = np.multiply(blocks, units, absolute_blocks)
        np.vecdot(blocks, blocks, sums[2])
        total_abs, total, total_square = np.add.reduceat(sums, first, 1, np.float64)
        norm = np.ldexp(np.sqrt(total_square), exponents)
        fields = np.empty((8, len(numel)))
        np.divide(total_abs, numel, fields[0])
        np.divide(norm, np.sqrt(numel), fields[1])
        fields[2], fields[3], fields[4], fields[5] = norm, low, high, max_abs
        np.divide(total, numel, fields[6])
        np.divide(zero_count, numel, fields[7])
        columns: list[list[Any]] = [*fields.tolist(), [0] * len(numel), numel.tolist()]
        if not np.maximum.reduce(total_abs) < inf:
            for index in np.flatnonzero(~(total_abs < inf)).tolist():
                exact = _measure_finite(values[edges[2 * index] : edges[2 * index + 1]])
                _replace(columns, index, exact)
        return columns


def measure_blocks(values: Array, scratch: Array) -> GradientStatistics:
    """The statistics of a whole number of blocks: what `measure_sections` computes, with fewer calls."""
    numel = len(values)
    ones = ONES[values.dtype]
    absolute = np.abs(values, scratch[:numel])
    blocks, absolute_blocks = values.reshape(-1, BLOCK), absolute.reshape(-1, BLOCK)
    total_abs = _total(np.vecdot(absolute_blocks, ones))
    if not total_abs < inf:
        return _measure_finite(values)
    zero_count = 0
    if np.minimum.reduce(absolute) == 0:
        zero_count = int(np.count_nonzero(np.equal(values, 0, absolute.view(np.bool_)[:numel])))
    low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    max_abs = max(high, -low)
    smallest, largest, limit = SQUARES[values.dtype]
    if smallest < max_abs < largest:
        norm = sqrt(_total(np.vecdot(blocks, blocks)))
    else:
        exponent = min(max(frexp(max_abs)[1], -limit), limit)
        np.multiply(blocks, np.ldexp(values.dtype.type(1), -exponent), absolute_blocks)
        norm = ldexp(sqrt(_total(np.vecdot(absolute_blocks, absolute_blocks))), exponent)
    mean, rms = _total(np.vecdot(blocks, ones)) / numel, norm / sqrt(numel)
    return GradientStatistics(total_abs / numel, rms, norm, low, high, max_abs, mean, zero_count / numel, 0, numel)


def _total(sums: Array) -> float:
    return float(np.add.reduce(sums, 0, np.float64))


def _measure_finite(values: Array) -> GradientStatistics:
    """The statistics of the finite ones of some numbers, one or more, whose absolute values have no finite sum."""
    if values.dtype != np.float32:
        return measure(torch.from_numpy(values))
    finite = values[np.isfinite(values)].astype(np.float64)  # where neither a sum nor a square leaves the range
    count = len(finite)
    if not count:
        return among(len(values), None)
    norm, low, high = sqrt(np.dot(finite, finite)), float(finite.min()), float(finite.max())
    lengths = float(np.abs(finite).sum()) / count, norm / sqrt(count), norm, low, high, max(high, -low)
    zero_fraction = (count - int(np.count_nonzero(finite))) / count
    return among(len(values), GradientStatistics(*lengths, float(finite.sum()) / count, zero_fraction, 0, count))


def among(numel: int, finite: GradientStatistics | None) -> GradientStatistics:
    """The statistics of so many numbers, of which the finite ones, if there are any, have these."""
    if finite is None:
        return EMPTY._replace(norm=NAN, nonfinite_count=numel, numel=numel)
    return finite._replace(nonfinite_count=numel - finite.numel, numel=numel)


def _replace(columns: list[list[Any]], index: int, exact: GradientStatistics) -> None:
    for column, number in zip(columns, exact, strict=True):
        column[index] = number
