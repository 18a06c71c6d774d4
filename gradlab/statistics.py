"""What is measured about one gradient.

`measure` computes every number plainly, in float64. `measure_all` computes the same numbers for many gradients and is
built for speed, because it runs inside every captured backward pass. On the CPU it lays short gradients end to end in
one float64 table, makes longer ones of one size the rows of a matrix, and cuts long ones into pieces; matrix and piece
stay in the cache while float32 kernels pass over them. No pass looks for NaN or infinity: a finite sum of absolute
values proves that there is none, and a gradient without that proof is measured plainly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._utils import _flatten_dense_tensors

Array = NDArray[Any]

# One C++ call for tensors of any shapes, in 40 % of the time of torch.cat over reshaped tensors.
lay_end_to_end: Callable[[list[Tensor]], Tensor] = _flatten_dense_tensors

# The most numbers taken at a time (half as many in float64). Their absolute values fill a megabyte, which is about all the
# memory that measuring adds to a large model; half as many at a time cost 10 to 20 % more. The float64 table has more columns.
PIECE = 262_144
SHORT_PIECE = 16_384

# Up to this length, or up to this total of all gradients of one size, the float64 table is the fastest.
SHORT = 128
SHORT_TOTAL = 8_192

# Row sums in float32 run over blocks of this many numbers and go on in float64: a dot product of a whole piece saves
# 5 %, but is off by 1e-5 where all entries are equal, as in the gradient of a mean.
BLOCK = 512
ONES = {np.dtype(kind): np.ones(BLOCK, kind) for kind in (np.float32, np.float64)}

# For a largest entry between these two numbers no sum of squares leaves the range of the type; the third is the largest
# power of two, either way, by which other gradients are brought there.
SQUARES = {np.dtype(np.float32): (1e-15, 1e15, 126), np.dtype(np.float64): (1e-140, 1e140, 1000)}

NARROW = frozenset({torch.float16, torch.bfloat16, torch.float32})
REAL = NARROW | {torch.float64}
NAN = math.nan


class GradientStatistics(NamedTuple):
    """The size, range and emptiness of one gradient over its finite entries; if complex, over their absolute values.

    A gradient without entries has norm 0 and NaN in the other float fields; one without a finite entry has NaN in all.
    """

    mean_abs: float
    """The mean of the absolute values of the finite entries."""
    rms: float
    """The root of the mean of the squares of the finite entries."""
    norm: float
    """The root of the sum of the squares of the finite entries (L2)."""
    min: float
    """The smallest finite entry."""
    max: float
    """The largest finite entry."""
    max_abs: float
    """The largest absolute value of a finite entry."""
    mean: float
    """The mean of the finite entries, in which signs cancel; its rounding error is relative to mean_abs."""
    zero_fraction: float
    """The share of the finite entries that are exactly zero."""
    nonfinite_count: int
    """The number of entries that are NaN or infinite."""
    numel: int
    """The number of all entries, including the zeros that a sparse layout leaves out."""


EMPTY = GradientStatistics(NAN, NAN, 0.0, NAN, NAN, NAN, NAN, NAN, 0, 0)


def measure(gradient: Tensor) -> GradientStatistics:
    """The statistics of one gradient, computed plainly in float64; NaN on the meta device, which holds no values."""
    return _measure_plainly([gradient if gradient.is_meta else gradient.cpu()])[0]


def measure_all(gradients: Sequence[Tensor]) -> list[GradientStatistics]:
    """The statistics of every gradient, in order: those of `measure` to a relative 1e-6, or 1e-12 in float64."""
    results = [EMPTY] * len(gradients)
    short: list[int] = []
    same_size: dict[tuple[torch.dtype, int], list[int]] = {}
    elsewhere: dict[torch.device, list[int]] = {}
    jobs: list[tuple[Callable[[list[Tensor]], list[GradientStatistics]], list[int]]] = []
    with torch.no_grad(), np.errstate(all="ignore"):
        for index, gradient in enumerate(gradients):
            dtype, numel = gradient.dtype, gradient.numel()
            if not gradient.is_cpu:
                elsewhere.setdefault(gradient.device, []).append(index)
            elif dtype not in REAL or gradient.layout is not torch.strided or gradient.is_nested:
                jobs.append((_measure_in_pieces, [index]))
            elif numel > SHORT or dtype is torch.float64:
                same_size.setdefault((dtype, numel), []).append(index)
            elif numel:
                short.append(index)

        jobs += [(_measure_plainly, indices) for indices in elsewhere.values()]
        for (dtype, numel), indices in same_size.items():
            if numel > _piece_length(dtype):
                jobs.append((_measure_in_pieces, indices))
            elif numel * len(indices) <= SHORT_TOTAL and dtype is not torch.float64:
                short += indices
            else:
                jobs += [(_measure_rows, batch) for batch in _batches(indices, gradients, _piece_length(dtype))]
        jobs += [(_measure_short, batch) for batch in _batches(short, gradients, SHORT_PIECE)]
        for job, indices in jobs:
            for index, statistics in zip(indices, job([gradients[index] for index in indices]), strict=True):
                results[index] = statistics
    return results


def measure_few(numbers: list[float]) -> GradientStatistics:
    """The statistics of a float32 gradient of a few entries, given as Python numbers, in which no square is out of range.

    For a handful of entries the functions of the standard library take less time than one call of numpy or torch.
    """
    count = len(numbers)
    total = sum(map(abs, numbers))
    if not total < math.inf:
        return measure(torch.tensor(numbers, dtype=torch.float64, device="cpu"))
    norm, low, high = math.hypot(*numbers), min(numbers), max(numbers)
    rms, max_abs, mean = norm / math.sqrt(count), max(high, -low), sum(numbers) / count
    return GradientStatistics(total / count, rms, norm, low, high, max_abs, mean, numbers.count(0.0) / count, 0, count)


def scaled(statistics: GradientStatistics, factor: float) -> GradientStatistics:
    """The statistics of the gradient multiplied by a factor above 0, such as one over the loss scale."""
    if not 0 < factor < math.inf:
        raise ValueError(f"factor must be finite and above 0, got {factor!r}")
    return GradientStatistics._make((*(number * factor for number in statistics[:7]), *statistics[7:]))


def _stored(gradient: Tensor) -> tuple[Tensor, int]:
    """The entries a gradient stores, as one strided tensor, and the number of zeros that its layout leaves out."""
    if gradient.is_nested:
        return torch.cat([part.reshape(-1) for part in gradient.unbind()] or [torch.empty(0)]), 0
    if gradient.layout is torch.strided:
        return gradient, 0
    if gradient.layout is torch.sparse_coo:
        stored = gradient.coalesce().values()  # entries at one place add up
    elif gradient.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        stored = gradient.values()
    else:
        stored = gradient.to_dense()
    return stored, gradient.numel() - stored.numel()


def _real(values: Tensor) -> Tensor:
    """The numbers as flat float32 or float64; of complex ones the absolute values, whose squares need float64."""
    if values.is_complex():
        values = values.to(torch.complex128).abs()
    elif values.dtype is not torch.float32 and values.dtype is not torch.float64:
        values = values.float() if values.dtype in NARROW else values.double()
    return values.reshape(-1)


def _zeros(count: int) -> GradientStatistics:
    return GradientStatistics(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0, count) if count else EMPTY


def combined(parts: Sequence[GradientStatistics]) -> GradientStatistics:
    """The statistics of the entries of several gradients taken together."""
    numel = sum(part.numel for part in parts)
    nonfinite_count = sum(part.nonfinite_count for part in parts)
    if (finite := numel - nonfinite_count) == 0:
        return EMPTY._replace(norm=NAN if numel else 0.0, nonfinite_count=nonfinite_count, numel=numel)
    shares = [(part, n / finite) for part in parts if (n := part.numel - part.nonfinite_count)]
    return GradientStatistics(
        mean_abs=sum(part.mean_abs * share for part, share in shares),
        rms=math.hypot(*(part.rms * math.sqrt(share) for part, share in shares)),
        norm=math.hypot(*(part.norm for part, _ in shares)),
        min=min(part.min for part, _ in shares),
        max=max(part.max for part, _ in shares),
        max_abs=max(part.max_abs for part, _ in shares),
        mean=sum(part.mean * share for part, share in shares),
        zero_fraction=round(sum(part.zero_fraction * share for part, share in shares) * finite) / finite,
        nonfinite_count=nonfinite_count,
        numel=numel,
    )


def _measure_plainly(gradients: list[Tensor]) -> list[GradientStatistics]:
    """With torch alone: float64 on the CPU; another device is read from only when all its work is queued."""
    if gradients[0].is_meta:
        return [EMPTY._replace(norm=NAN, numel=gradient.numel()) for gradient in gradients]
    with torch.no_grad():
        parts = [_stored(gradient) for gradient in gradients]
        same_size: dict[tuple[torch.dtype, int], list[int]] = {}
        for index, (stored, _) in enumerate(parts):
            if stored.numel():
                same_size.setdefault((stored.dtype, stored.numel()), []).append(index)
        queued = []
        for indices in same_size.values():
            rows = torch.stack([_real(parts[index][0]) for index in indices])
            queued.append((indices, *_reduced(rows.double() if rows.is_cpu else rows)))
        results = [EMPTY] * len(gradients)
        for indices, numbers, counts in queued:
            for index, lengths, (zeros, finite, numel) in zip(indices, numbers.tolist(), counts.tolist(), strict=True):
                row = (*lengths, zeros / finite if finite else NAN, numel - finite, numel)
                results[index] = GradientStatistics._make(row)
    return [combined([result, _zeros(implied)]) for result, (_, implied) in zip(results, parts, strict=True)]


def _reduced(rows: Tensor) -> tuple[Tensor, Tensor]:
    """For each row the first seven fields, and how many entries are zero, are finite, are there."""
    is_finite = rows.isfinite()
    finite = is_finite.sum(1)
    values = rows.where(is_finite, 0)
    max_abs = values.abs().amax(1)
    # In units of a power of two near the largest entry no square over- or underflows, and no digit changes.
    limit = 1000 if rows.dtype is torch.float64 else 126
    unit = max_abs.log2().ceil().clamp(-limit, limit).exp2()
    values = values / unit[:, None]
    squares = values.square().sum(1)
    lengths = [
        values.abs().sum(1) / finite * unit,
        (squares / finite).sqrt() * unit,
        squares.sqrt() * unit,
        rows.where(is_finite, math.inf).amin(1),
        rows.where(is_finite, -math.inf).amax(1),
        max_abs,
        values.sum(1) / finite * unit,
    ]
    counts = [(rows == 0).sum(1), finite, torch.full_like(finite, rows.shape[1])]
    return torch.stack(lengths, 1).where(finite[:, None] > 0, NAN), torch.stack(counts, 1)


def _batches(indices: list[int], gradients: Sequence[Tensor], limit: int) -> Iterator[list[int]]:
    """The indices in runs whose gradients hold at most limit numbers together."""
    batch: list[int] = []
    total = 0
    for index in indices:
        numel = gradients[index].numel()
        total += numel
        if total > limit:
            yield batch
            batch, total = [], numel
        batch.append(index)
    if batch:
        yield batch


def _measure_short(gradients: list[Tensor]) -> list[GradientStatistics]:
    """Gradients of any sizes above 0 as sections of one float64 table, in which squares of float32 cannot underflow."""
    sizes = np.array([gradient.numel() for gradient in gradients])
    starts = np.add.accumulate(sizes) - sizes
    values = _real(lay_end_to_end(gradients)).numpy(force=True)
    signed, absolute, squares, zeros = table = np.empty((4, len(values)))
    signed[:] = values
    np.abs(signed, absolute)
    np.multiply(signed, signed, squares)
    zeros[:] = signed == 0.0
    total, total_abs, total_square, zero_count = np.add.reduceat(table, starts, 1)
    low = np.minimum.reduceat(signed, starts)
    high = np.maximum.reduceat(signed, starts)
    columns = low, high, total, total_abs, np.sqrt(total_square), zero_count
    return _collected(lambda index: gradients[index], sizes, *columns)


def _measure_in_pieces(gradients: list[Tensor]) -> list[GradientStatistics]:
    """Long gradients, and those of other types and layouts, one by one."""
    results = []
    for gradient in gradients:
        stored, implied_zeros = _stored(gradient)
        parts = [_zeros(implied_zeros)]
        for piece in _pieces(stored):
            parts += _measure_rows([piece])
        results.append(combined(parts))
    return results


def _piece_length(dtype: torch.dtype) -> int:
    return PIECE if dtype in NARROW else PIECE // 2


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


def _measure_rows(gradients: list[Tensor]) -> list[GradientStatistics]:
    """Gradients of one type and size as the rows of a matrix."""
    if gradients[0].numel() == 0:
        return [EMPTY] * len(gradients)
    values = _real(lay_end_to_end([_in_memory_order(gradient) for gradient in gradients]))
    rows = values.numpy(force=True).reshape(len(gradients), -1)
    return measure_rows(rows, lambda index: gradients[index])


def measure_rows(rows: Array, gradient: Callable[[int], Tensor] | None = None) -> list[GradientStatistics]:
    """The statistics of each row of a float32 or float64 matrix; a broken row is measured exactly, from its gradient."""
    height, width = rows.shape
    with np.errstate(all="ignore"):
        absolute = np.abs(rows)
        total_abs = _row_sums(absolute)
        zero_count = np.zeros(height)
        if not np.minimum.reduce(absolute, None) > 0:  # also where it is NaN, which hides the other rows
            zero_count[:] = [np.count_nonzero(row) for row in np.equal(rows, 0)]
        low = np.minimum.reduce(rows, 1)
        high = np.maximum.reduce(rows, 1)
        max_abs = np.maximum(high, -low)
        smallest, largest, limit = SQUARES[rows.dtype]
        if np.minimum.reduce(max_abs) > smallest and np.maximum.reduce(max_abs) < largest:
            norm = np.sqrt(_row_sums(rows, squared=True))
        else:
            exponents = np.clip(np.frexp(max_abs)[1], -limit, limit)
            np.multiply(rows, np.ldexp(rows.dtype.type(1), -exponents)[:, None], absolute)
            norm = np.ldexp(np.sqrt(_row_sums(absolute, squared=True)), exponents)
        columns = low, high, _row_sums(rows), total_abs, norm, zero_count
        return _collected(gradient or (lambda index: torch.from_numpy(rows[index])), np.full(height, width), *columns)


def _row_sums(rows: Array, squared: bool = False) -> Array:
    """The float64 sum of each row, or of its squares, by BLAS dot products: twice as fast as np.add.reduce or more."""
    height, width = rows.shape
    ones = ONES[rows.dtype]
    whole = width - width % BLOCK
    blocks = rows[:, :whole].reshape(height, -1, BLOCK)
    sums: Array = np.add.reduce(np.vecdot(blocks, blocks if squared else ones), 1, np.float64)
    if whole < width:
        rest = rows[:, whole:]
        sums += np.vecdot(rest, rest if squared else ones[: width - whole])
    return sums


def _collected(gradient: Callable[[int], Tensor], sizes: Array, *columns: Array) -> list[GradientStatistics]:
    """A record for each gradient; one whose absolute values have no finite sum is measured again, exactly."""
    low, high, total, total_abs, norm, zero_count = columns
    fields = np.empty((8, len(sizes)))
    np.divide(total_abs, sizes, fields[0])
    np.divide(norm, np.sqrt(sizes), fields[1])
    fields[2], fields[3], fields[4] = norm, low, high
    np.maximum(fields[4], np.negative(fields[3]), out=fields[5])
    np.divide(total, sizes, fields[6])
    np.divide(zero_count, sizes, fields[7])
    results = list(map(GradientStatistics._make, zip(*fields.tolist(), repeat(0), sizes.tolist(), strict=False)))
    if not np.maximum.reduce(total_abs) < math.inf:
        unproven = np.flatnonzero(~(total_abs < math.inf)).tolist()
        for index, exact in zip(unproven, _measure_plainly([gradient(index) for index in unproven]), strict=True):
            results[index] = exact
    return results
