"""The same numbers for many gradients, built for speed: this runs inside every captured backward pass.

On the CPU gradients are copied into a slab, end to end, and measured when it is full: a few calls of float32 kernels
over memory that stays in the cache. No pass looks for NaN or infinity: a finite sum of absolute values proves that
there is none, and a gradient without that proof is measured plainly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import frexp, hypot, inf, ldexp, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradlab.statistics.plain import (
    EMPTY,
    NARROW,
    GradientStatistics,
    combined,
    measure,
    measure_plainly,
    of_zeros,
    real_numbers,
    stored_entries,
)

Array = NDArray[Any]
_make = tuple.__new__  # half the time of GradientStatistics(...)

PIECE_BYTES = 524_288
"""The memory of one slab, or of one piece of a long gradient; as much again takes their absolute values."""

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

REAL = NARROW | {torch.float64}

SLAB_TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}
"""The types that numpy measures as they are."""


class Batch:
    """Gradients that are measured together: whose they are and, once they are measured, a column for each field.

    A record is made only of what is read: making them all takes longer than to measure.
    """

    __slots__ = ("columns", "owners")

    def __init__(self, owners: list[int], columns: list[list[Any]]) -> None:
        self.owners = owners
        self.columns = columns

    def statistics(self) -> Iterator[tuple[int, GradientStatistics]]:
        """The statistics of every gradient, with the number under which it was taken in."""
        return zip(self.owners, map(GradientStatistics._make, zip(*self.columns, strict=True)), strict=True)


class Slab:
    """Room for gradients of one type that wait to be measured together, and for their absolute values."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.values = np.empty(PIECE_BYTES // dtype.itemsize, SLAB_TYPES[dtype])
        self.scratch = np.empty_like(self.values)
        self._batches: list[Batch] = []
        self._owners: list[int] = []
        self._edges: list[int] = []
        """Where each of those that wait begins, always with a block, and ends."""
        self._filled = 0

    def take(self, owner: int, numbers: Array) -> None:
        """Copy a gradient of at least one number and at most a piece; what was waiting is measured if there is no room."""
        start, size = self._filled, len(numbers)
        end = start + size
        filled = (end + BLOCK - 1) & -BLOCK
        if filled > len(self.values):
            self._measure()
            start, end, filled = 0, size, (size + BLOCK - 1) & -BLOCK
        self.values[start:end] = numbers
        if filled != end:
            self.values[end:filled] = 0
        self._owners.append(owner)
        self._edges += start, end
        self._filled = filled

    def _measure(self) -> None:
        if self._edges:
            columns = _measure_sections(self.values[: self._filled], self._edges, self.scratch)
            self._batches.append(Batch(self._owners, columns))
        self._owners, self._edges, self._filled = [], [], 0

    def settled(self) -> list[Batch]:
        """Everything taken in, measured; the slab is empty afterwards."""
        self._measure()
        batches, self._batches = self._batches, []
        return batches

    def measured(self, numbers: Array) -> GradientStatistics:
        """The statistics of a gradient of at least one number, of any length, read in pieces where it is."""
        room, whole = len(self.scratch), len(numbers) & -BLOCK
        with np.errstate(all="ignore"):
            parts = [
                _measure_blocks(numbers[start : min(start + room, whole)], self.scratch) for start in range(0, whole, room)
            ]
        if rest := len(numbers) - whole:
            block = np.zeros(BLOCK, numbers.dtype)
            block[:rest] = numbers[whole:]
            parts += map(GradientStatistics._make, zip(*_measure_sections(block, [0, rest], self.scratch), strict=True))
        return parts[0] if len(parts) == 1 else combined(parts)


Slabs = dict[torch.dtype, Slab]


def slab_for(dtype: torch.dtype, slabs: Slabs) -> Slab:
    """The slab for a type, made where there is none; KeyError for any but float32 and float64."""
    slab = slabs.get(dtype)
    if slab is None:
        slab = slabs[dtype] = Slab(dtype)
    return slab


def measure_all(gradients: Sequence[Tensor]) -> list[GradientStatistics]:
    """The statistics of every gradient, in order: those of `measure` to a relative 1e-6, or 1e-12 in float64."""
    results = [EMPTY] * len(gradients)
    elsewhere: dict[torch.device, list[int]] = {}
    slabs: Slabs = {}
    with torch.no_grad():
        for index, gradient in enumerate(gradients):
            if not gradient.is_cpu:
                elsewhere.setdefault(gradient.device, []).append(index)
            elif (
                gradient.dtype not in REAL
                or gradient.layout is not torch.strided
                or gradient.is_nested
                or gradient.numel() > _piece_length(gradient.dtype)
            ):
                results[index] = measure_long(gradient, slabs)
            elif gradient.numel():
                numbers = real_numbers(_in_memory_order(gradient))
                slab_for(numbers.dtype, slabs).take(index, numbers.numpy(force=True))
        for slab in slabs.values():
            for batch in slab.settled():
                for index, found in batch.statistics():
                    results[index] = found
        for indices in elsewhere.values():
            for index, found in zip(indices, measure_plainly([gradients[index] for index in indices]), strict=True):
                results[index] = found
    return results


def measure_few(numbers: list[float]) -> GradientStatistics:
    """The statistics of a float32 gradient of a few entries, given as Python numbers.

    For a handful of entries the functions of the standard library take less time than one call of numpy or torch.
    """
    count = len(numbers)
    total = sum(map(abs, numbers))
    if not total < inf:
        return measure(torch.tensor(numbers, dtype=torch.float64, device="cpu"))
    norm, low, high, zeros = hypot(*numbers), min(numbers), max(numbers), numbers.count(0.0)
    max_abs = high if high > -low else -low
    rms, mean = norm / sqrt(count), sum(numbers) / count
    return _make(GradientStatistics, (total / count, rms, norm, low, high, max_abs, mean, zeros / count, 0, count))


def _replace(columns: list[list[Any]], index: int, exact: GradientStatistics) -> None:
    for column, number in zip(columns, exact, strict=True):
        column[index] = number


def measure_long(gradient: Tensor, slabs: Slabs) -> GradientStatistics:
    """The statistics of a gradient on the CPU of any length, type and layout, read in pieces."""
    stored, implied_zeros = stored_entries(gradient)
    parts = [of_zeros(implied_zeros)] if implied_zeros else []
    for piece in _pieces(stored):
        values = real_numbers(piece)
        numbers = np.ascontiguousarray(values.numpy(force=True))  # one number expanded is not
        if len(numbers):
            parts.append(slab_for(values.dtype, slabs).measured(numbers))
    return parts[0] if len(parts) == 1 else combined(parts)


def _measure_blocks(values: Array, scratch: Array) -> GradientStatistics:
    """The statistics of a whole number of blocks: what `_measure_sections` computes, with fewer calls."""
    numel = len(values)
    ones = ONES[values.dtype]
    absolute = np.abs(values, scratch[:numel])
    blocks, absolute_blocks = values.reshape(-1, BLOCK), absolute.reshape(-1, BLOCK)
    total_abs = _total(np.vecdot(absolute_blocks, ones))
    if not total_abs < inf:
        return measure(torch.from_numpy(values))
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


def _piece_length(dtype: torch.dtype) -> int:
    return PIECE_BYTES // (4 if dtype in NARROW else 8)


def _pieces(gradient: Tensor) -> Iterator[Tensor]:
    """All entries, in any order, as tensors of which even a copy is no larger than a piece."""
    length = _piece_length(gradient.dtype)
    gradient = _in_memory_order(gradient)
    if gradient.is_contiguous():
        yield from torch.split(gradient.view(-1), length)
    elif gradient.numel() <= length:
        yield gradient
    else:
        outermost = next(dim for dim, size in enumerate(gradient.shape) if size > 1)
        for half in gradient.tensor_split(2, dim=outermost):
            yield from _pieces(half)


def _in_memory_order(gradient: Tensor) -> Tensor:
    """With its dimensions reordered, which no statistic depends on, so that a transposed tensor needs no slow copy."""
    if gradient.is_contiguous():
        return gradient
    return gradient.permute(sorted(range(gradient.dim()), key=gradient.stride, reverse=True))


def _measure_sections(values: Array, edges: list[int], scratch: Array) -> list[list[Any]]:
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
                exact = measure(torch.from_numpy(values[edges[2 * index] : edges[2 * index + 1]]))
                _replace(columns, index, exact)
        return columns
