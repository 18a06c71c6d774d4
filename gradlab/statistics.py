"""What is measured about one gradient.

`measure` says what every number is, in plain float64. `measure_all` gives the same numbers for many gradients at once and is
built for speed, because it runs inside every captured backward pass. On a CPU it measures

- short gradients end to end in one float64 buffer: with a handful of numbers each, calls cost more than arithmetic;
- longer ones of one size as the rows of a matrix, long ones in pieces, both small enough to stay in the cache, with float32
  kernels that read each number from memory once.

No kernel looks for NaN or infinity: a finite sum of absolute values proves that there is none. Where it is not finite, the
exact path takes over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# The one C++ call that lays tensors of any shapes end to end: a third of the time of torch.cat over reshaped tensors.
from torch._utils import _flatten_dense_tensors as lay_end_to_end

Matrix = NDArray[Any]


class GradientStatistics(NamedTuple):
    """The size, range and emptiness of one gradient, over its finite entries; of a complex gradient, over absolute values.

    A gradient without entries has norm 0 and NaN in the other real numbers; one with entries, none of them finite, has NaN
    in all of them.
    """

    mean_abs: float
    """The mean of the absolute values of the finite entries."""
    rms: float
    """The root of the mean of the squared finite entries."""
    norm: float
    """The Euclidean length (L2 norm) of all finite entries taken as one vector."""
    min: float
    """The smallest finite entry."""
    max: float
    """The largest finite entry."""
    max_abs: float
    """The largest absolute value of a finite entry."""
    mean: float
    """The mean of the finite entries; its rounding error is relative to mean_abs, as the signs cancel."""
    zero_fraction: float
    """The share of the finite entries that are exactly zero."""
    nonfinite_count: int
    """The number of entries that are NaN or infinite."""
    numel: int
    """The number of all entries, finite or not, stored or implied by a sparse layout."""


NAN = math.nan
EMPTY = GradientStatistics(NAN, NAN, 0.0, NAN, NAN, NAN, NAN, NAN, 0, 0)

# Row sums in float32 run over blocks of this many numbers, added up in float64. One long BLAS dot product is no faster and
# drifts by 1e-5 where all entries are equal, which the gradient of a mean often is.
BLOCK = 1024
ONES = {np.dtype(kind): np.ones(BLOCK, kind) for kind in (np.float32, np.float64)}

# Numbers handled at a time: with its absolute values a float32 piece fills half of a common 1 MB L2 cache.
PIECE = 65_536
SHORT_PIECE = 16_384

# Up to this length, or this total of one size, the float64 buffer is faster than a matrix of its own.
SHORT = 256
SHORT_TOTAL = 4_096

# The largest absolute value for which neither squares nor their sums leave the range of the type, and the greatest power
# of two that brings others back without leaving it itself.
SAFE = {np.dtype(np.float32): (1e-15, 1e15, 126), np.dtype(np.float64): (1e-140, 1e140, 1000)}

REAL = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def measure(gradient: Tensor) -> GradientStatistics:
    """The statistics of one gradient, computed plainly in float64; all NaN on the meta device, which holds no values."""
    return _measure_plainly([gradient if gradient.is_meta else gradient.cpu()])[0]


def measure_all(gradients: Sequence[Tensor]) -> list[GradientStatistics]:
    """The statistics of every gradient, in order: the numbers `measure` gives, to 1e-6 and usually to 1e-7."""
    results: dict[int, GradientStatistics] = {}
    short: list[int] = []
    same_size: dict[tuple[torch.dtype, int], list[int]] = {}
    elsewhere: dict[torch.device, list[int]] = {}

    with torch.no_grad(), np.errstate(all="ignore"):
        for index, gradient in enumerate(gradients):
            if not gradient.is_cpu:
                elsewhere.setdefault(gradient.device, []).append(index)
            elif gradient.dtype not in REAL or gradient.layout is not torch.strided or gradient.is_nested:
                stored, implied_zeros = _stored(gradient)
                results[index] = _combined([_measure_in_pieces(stored), _zeros(implied_zeros)])
            elif (numel := gradient.numel()) > PIECE:
                results[index] = _measure_in_pieces(gradient)
            elif numel > SHORT:
                same_size.setdefault((gradient.dtype, numel), []).append(index)
            elif numel:
                short.append(index)
            else:
                results[index] = EMPTY

        jobs = [(_measure_plainly, indices) for indices in elsewhere.values()]
        for (_, numel), indices in same_size.items():
            if numel * len(indices) <= SHORT_TOTAL:
                short += indices
            else:
                jobs += [(_measure_same_size, batch) for batch in _batches(indices, gradients, PIECE)]
        jobs += [(_measure_short, batch) for batch in _batches(short, gradients, SHORT_PIECE)]
        for job, indices in jobs:
            results.update(zip(indices, job([gradients[index] for index in indices]), strict=True))
    return [results[index] for index in range(len(gradients))]


def scaled(statistics: GradientStatistics, factor: float) -> GradientStatistics:
    """The statistics of the gradient multiplied by a factor above 0, such as one over the loss scale."""
    if not 0 < factor < math.inf:
        raise ValueError(f"factor must be a finite number above 0, got {factor!r}")
    return GradientStatistics(*(number * factor for number in statistics[:7]), *statistics[7:])


def _stored(gradient: Tensor) -> tuple[Tensor, int]:
    """The entries a gradient stores, as one strided tensor, and the number of zeros its layout implies."""
    if gradient.is_nested:
        return torch.cat([part.reshape(-1) for part in gradient.unbind()] or [torch.empty(0)]), 0
    if gradient.layout is torch.strided:
        return gradient, 0
    if gradient.layout is torch.sparse_coo:
        stored = gradient.coalesce().values()  # entries of one index add up
    elif gradient.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        stored = gradient.values()
    else:
        stored = gradient.to_dense()
    return stored, gradient.numel() - stored.numel()


def _real(values: Tensor) -> Tensor:
    """The numbers in float32 or float64, flat; absolute values of complex ones, in float64 as their squares may overflow."""
    if values.is_complex():
        values = values.to(torch.complex128).abs()
    elif values.dtype not in (torch.float32, torch.float64):
        values = values.float() if values.dtype in REAL else values.double()
    return values.reshape(-1)


def _measure_plainly(gradients: list[Tensor]) -> list[GradientStatistics]:
    """By torch alone: in float64 on the CPU; on another device in its own types, and waited for when all is queued."""
    if gradients[0].is_meta:
        return [EMPTY._replace(norm=NAN, numel=gradient.numel()) for gradient in gradients]
    results = [EMPTY] * len(gradients)
    with torch.no_grad():
        parts = [_stored(gradient) for gradient in gradients]
        same_size: dict[tuple[torch.dtype, int], list[int]] = {}
        for index, (stored, _) in enumerate(parts):
            same_size.setdefault((stored.dtype, stored.numel()), []).append(index)
        queued = []
        for (_, numel), indices in same_size.items():
            rows = torch.stack([_real(parts[index][0]) for index in indices])
            if numel:
                queued.append((indices, _reduced(rows.double() if rows.is_cpu else rows)))
        for indices, (lengths, counts) in queued:
            for index, numbers, (zeros, finite, numel) in zip(indices, lengths.tolist(), counts.tolist(), strict=True):
                results[index] = GradientStatistics(*numbers, zeros / finite if finite else NAN, numel - finite, numel)
    return [_combined([result, _zeros(implied)]) for result, (_, implied) in zip(results, parts, strict=True)]


def _reduced(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The first seven numbers of GradientStatistics, and the numbers of zeros, of finite and of all entries, for each row."""
    is_finite = rows.isfinite()
    finite = is_finite.sum(1)
    values = rows.where(is_finite, 0)
    max_abs = values.abs().amax(1)
    # Measured in units of a power of two near the largest entry, an exact change, no square over- or underflows.
    limit = 1000 if rows.dtype is torch.float64 else 126
    unit = max_abs.log2().ceil().clamp(-limit, limit).exp2()
    values = values / unit[:, None]
    mean_square = values.square().sum(1) / finite
    lengths = [
        values.abs().sum(1) / finite * unit,
        mean_square.sqrt() * unit,
        (mean_square * finite).sqrt() * unit,
        rows.where(is_finite, math.inf).amin(1),
        rows.where(is_finite, -math.inf).amax(1),
        max_abs,
        values.sum(1) / finite * unit,
    ]
    counts = torch.stack([(rows == 0).sum(1), finite, torch.full_like(finite, rows.shape[1])], 1)
    return torch.stack(lengths, 1).where(finite[:, None] > 0, NAN), counts


def _zeros(count: int) -> GradientStatistics:
    return GradientStatistics(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0, count) if count else EMPTY


def _combined(parts: Sequence[GradientStatistics]) -> GradientStatistics:
    """The statistics of the entries of several gradients taken together."""
    numel = sum(part.numel for part in parts)
    nonfinite_count = sum(part.nonfinite_count for part in parts)
    if (count := numel - nonfinite_count) == 0:
        return EMPTY._replace(norm=NAN if numel else 0.0, nonfinite_count=nonfinite_count, numel=numel)
    counted = [(part, n / count) for part in parts if (n := part.numel - part.nonfinite_count)]
    return GradientStatistics(
        mean_abs=sum(part.mean_abs * share for part, share in counted),
        rms=math.hypot(*(part.rms * math.sqrt(share) for part, share in counted)),
        norm=math.hypot(*(part.norm for part, _ in counted)),
        min=min(part.min for part, _ in counted),
        max=max(part.max for part, _ in counted),
        max_abs=max(part.max_abs for part, _ in counted),
        mean=sum(part.mean * share for part, share in counted),
        zero_fraction=sum(round(part.zero_fraction * share * count) for part, share in counted) / count,
        nonfinite_count=nonfinite_count,
        numel=numel,
    )


def _batches(indices: list[int], gradients: Sequence[Tensor], limit: int) -> Iterator[list[int]]:
    """The indices in runs whose gradients hold at most limit numbers together."""
    batch: list[int] = []
    total = 0
    for index in indices:
        total += (numel := gradients[index].numel())
        if batch and total > limit:
            yield batch
            batch, total = [], numel
        batch.append(index)
    if batch:
        yield batch


def _measure_short(gradients: list[Tensor]) -> list[GradientStatistics]:
    sizes = [gradient.numel() for gradient in gradients]
    flat = _real(lay_end_to_end(gradients)).numpy(force=True)
    table = np.empty((4, flat.size))
    signed, absolute, squares, zeros = table
    signed[:] = flat
    np.abs(signed, absolute)
    np.multiply(signed, signed, squares)
    np.equal(signed, 0.0, zeros, casting="unsafe")
    starts = np.add.accumulate(sizes) - sizes
    columns = zip(
        gradients,
        sizes,
        *np.add.reduceat(table, starts, 1).tolist(),
        np.minimum.reduceat(signed, starts).tolist(),
        np.maximum.reduceat(signed, starts).tolist(),
        strict=True,
    )
    tiny, huge, _ = SAFE[table.dtype]
    results = []
    for gradient, n, total, total_abs, total_square, zero_count, low, high in columns:
        max_abs = high if high > -low else -low
        if total_abs < math.inf and (tiny < max_abs < huge or max_abs == 0.0):
            norm = math.sqrt(total_square)
            rms = norm / math.sqrt(n)
            results.append(GradientStatistics(total_abs / n, rms, norm, low, high, max_abs, total / n, zero_count / n, 0, n))
        else:
            results.append(measure(gradient))
    return results


def _measure_same_size(gradients: list[Tensor]) -> list[GradientStatistics]:
    rows = _real(lay_end_to_end(gradients)).numpy(force=True).reshape(len(gradients), -1)
    return [row or measure(gradient) for row, gradient in zip(_measure_rows(rows), gradients, strict=True)]


def _measure_in_pieces(gradient: Tensor) -> GradientStatistics:
    parts = []
    for piece in _pieces(gradient):
        (row,) = _measure_rows(_real(piece).numpy(force=True).reshape(1, -1))
        parts.append(row or measure(piece))
    return _combined(parts)


def _pieces(gradient: Tensor) -> Iterator[Tensor]:
    """All entries as flat tensors of at most PIECE, in any order; no copy is larger than a piece."""
    order = sorted(range(gradient.dim()), key=gradient.stride, reverse=True)  # the order in memory, if transposed
    gradient = gradient.permute(order)
    if gradient.is_contiguous():
        yield from gradient.view(-1).split(PIECE)
    elif gradient.numel() <= PIECE:
        yield gradient.reshape(-1)
    else:
        outermost = next(dim for dim, size in enumerate(gradient.shape) if size > 1)
        for half in gradient.tensor_split(2, dim=outermost):
            yield from _pieces(half)


def _measure_rows(rows: Matrix) -> list[GradientStatistics | None]:
    """The statistics of each row; None where it holds a NaN, an infinity or a sum beyond the range of its type."""
    height, width = rows.shape
    if width == 0:
        return [EMPTY] * height
    absolute = np.abs(rows)
    total_abs = _row_sums(absolute)
    zero_counts = [0] * height
    if not np.minimum.reduce(absolute, None) > 0:  # also if it is NaN, which says nothing about the other rows
        zero_counts = [np.count_nonzero(row) for row in np.equal(rows, 0)]
    low = np.minimum.reduce(rows, 1)
    high = np.maximum.reduce(rows, 1)
    max_abs = np.maximum(high, -low)
    tiny, huge, largest_exponent = SAFE[rows.dtype]
    if ((max_abs > tiny) & (max_abs < huge)).all():
        norm = np.sqrt(_row_sums(rows, squared=True))
    else:
        exponents = np.clip(np.frexp(max_abs)[1], -largest_exponent, largest_exponent)
        np.multiply(rows, np.ldexp(rows.dtype.type(1), -exponents)[:, None], absolute)
        norm = np.ldexp(np.sqrt(_row_sums(absolute, squared=True)), exponents)
    columns = (total_abs / width, norm / math.sqrt(width), norm, low, high, max_abs, _row_sums(rows) / width)
    return [
        GradientStatistics(*numbers, zero_count / width, 0, width) if numbers[0] < math.inf else None
        for *numbers, zero_count in zip(*(column.tolist() for column in columns), zero_counts, strict=True)
    ]


def _row_sums(rows: Matrix, squared: bool = False) -> NDArray[np.float64]:
    """The sum of each row, or of its squares, by BLAS dot products: two to three times as fast as np.add.reduce."""
    height, width = rows.shape
    ones = ONES[rows.dtype]
    whole = width - width % BLOCK
    rest = rows[:, whole:]
    sums = np.vecdot(rest, rest if squared else ones[: width - whole]).astype(np.float64)
    if whole:
        blocks = rows[:, :whole].reshape(height, -1, BLOCK)
        sums += np.add.reduce(np.vecdot(blocks, blocks if squared else ones), 1, np.float64)
    return sums
