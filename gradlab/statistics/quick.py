"""The same numbers for many gradients, built for speed: this runs inside every captured backward pass.

On the CPU gradients are copied into a slab, end to end, and measured when it is full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot, inf, isfinite, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradlab.statistics.kernels import BLOCK, Array, among, measure_blocks, measure_sections
from gradlab.statistics.plain import (
    EMPTY,
    NARROW,
    GradientStatistics,
    combined,
    measure_plainly,
    of_zeros,
    real_numbers,
    stored_entries,
)

_make = tuple.__new__  # half the time of GradientStatistics(...)

PIECE_BYTES = 524_288
"""The memory of one slab, or of one piece of a long gradient; as much again takes their absolute values."""

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
            columns = measure_sections(self.values[: self._filled], self._edges, self.scratch)
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
            parts = [measure_blocks(numbers[start : min(start + room, whole)], self.scratch) for start in range(0, whole, room)]
        if rest := len(numbers) - whole:
            block = np.zeros(BLOCK, numbers.dtype)
            block[:rest] = numbers[whole:]
            parts += map(GradientStatistics._make, zip(*measure_sections(block, [0, rest], self.scratch), strict=True))
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
        finite = [number for number in numbers if isfinite(number)]
        return among(count, measure_few(finite) if finite else None)
    norm, low, high, zeros = hypot(*numbers), min(numbers), max(numbers), numbers.count(0.0)
    max_abs = high if high > -low else -low
    rms, mean = norm / sqrt(count), sum(numbers) / count
    return _make(GradientStatistics, (total / count, rms, norm, low, high, max_abs, mean, zeros / count, 0, count))


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
