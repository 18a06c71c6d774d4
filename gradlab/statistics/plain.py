"""What is measured about one gradient, computed plainly, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

NAN = math.nan
NARROW = frozenset({torch.float16, torch.bfloat16, torch.float32})
"""Real types that float32 holds without loss."""


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
    return measure_plainly([gradient if gradient.is_meta else gradient.cpu()])[0]


def scaled(statistics: GradientStatistics, factor: float) -> GradientStatistics:
    """The statistics of the gradient multiplied by a factor above 0, such as one over the loss scale."""
    if not 0 < factor < math.inf:
        raise ValueError(f"factor must be finite and above 0, got {factor!r}")
    return GradientStatistics._make((*(number * factor for number in statistics[:7]), *statistics[7:]))


def stored_entries(gradient: Tensor) -> tuple[Tensor, int]:
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


def real_numbers(values: Tensor) -> Tensor:
    """The numbers as flat float32 or float64; of complex ones the absolute values, whose squares need float64."""
    if values.is_complex():
        values = values.to(torch.complex128).abs()
    elif values.dtype is not torch.float32 and values.dtype is not torch.float64:
        values = values.float() if values.dtype in NARROW else values.double()
    return values.reshape(-1)


def of_zeros(count: int) -> GradientStatistics:
    """The statistics of so many zeros."""
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


def measure_plainly(gradients: list[Tensor]) -> list[GradientStatistics]:
    """With torch alone: float64 on the CPU; another device is read from only when all its work is queued."""
    if gradients[0].is_meta:
        return [EMPTY._replace(norm=NAN, numel=gradient.numel()) for gradient in gradients]
    with torch.no_grad():
        parts = [stored_entries(gradient) for gradient in gradients]
        same_size: dict[tuple[torch.dtype, int], list[int]] = {}
        for index, (stored, _) in enumerate(parts):
            if stored.numel():
                same_size.setdefault((stored.dtype, stored.numel()), []).append(index)
        queued = []
        for indices in same_size.values():
            rows = torch.stack([real_numbers(parts[index][0]) for index in indices])
            queued.append((indices, *_reduced(rows.double() if rows.is_cpu else rows)))
        results = [EMPTY] * len(gradients)
        for indices, numbers, counts in queued:
            for index, lengths, (zeros, finite, numel) in zip(indices, numbers.tolist(), counts.tolist(), strict=True):
                row = (*lengths, zeros / finite if finite else NAN, numel - finite, numel)
                results[index] = GradientStatistics._make(row)
    return [combined([result, of_zeros(implied)]) for result, (_, implied) in zip(results, parts, strict=True)]


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
