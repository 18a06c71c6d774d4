"""The weights and biases of many seeds, equal to those that `build_network` draws for each, bit for bit.

Most of the time to measure a small network goes into drawing its parameters, so the draws are as few as they can be.
`uniform_` takes one random number per entry, however the entries are split: all parameters of a seed are one draw.
`normal_` takes them differently from 16 entries on, so every parameter is a draw of its own, as in `build_network`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from gradlab.ensemble.twister import MOST_NUMBERS, uniform_numbers
from gradlab.networks import PRECISIONS
from gradlab.spec import Initializer, NetworkSpec

IN_CACHE = 65_536
"""Numbers that are scaled while the cache still holds them."""

ENOUGH_SEEDS = 500
"""From here on it is faster to draw for all seeds together than for one after the other."""

Scales = Callable[[NetworkSpec, int, int], tuple[float, float | None]]
"""(spec, fan in, fan out) -> the scale of a layer's weights and of its biases; None for biases that are not drawn."""


def _pytorch_default(spec: NetworkSpec, fan_in: int, fan_out: int) -> tuple[float, float | None]:
    slope = nn.init.calculate_gain("leaky_relu", math.sqrt(5))
    return math.sqrt(3.0) * (slope / math.sqrt(fan_in)), 1 / math.sqrt(fan_in)


def _xavier(spec: NetworkSpec, fan_in: int, fan_out: int) -> tuple[float, float | None]:
    return math.sqrt(3.0) * math.sqrt(2.0 / float(fan_in + fan_out)), None


def _he(spec: NetworkSpec, fan_in: int, fan_out: int) -> tuple[float, float | None]:
    return nn.init.calculate_gain("relu") / math.sqrt(fan_in), None


def _normal(spec: NetworkSpec, fan_in: int, fan_out: int) -> tuple[float, float | None]:
    return spec.sigma_w / math.sqrt(fan_in), spec.sigma_b


def _standard_normal(spec: NetworkSpec, fan_in: int, fan_out: int) -> tuple[float, float | None]:
    return 1.0, None


def _uniform_rows(rows: Tensor, seeds: Sequence[int], sizes: list[int], bounds: list[float]) -> None:
    high = torch.tensor(bounds, dtype=torch.float32).repeat_interleave(torch.tensor(sizes))
    low, width = -high, high + high
    together = len(high) <= MOST_NUMBERS and len(seeds) >= ENOUGH_SEEDS
    at_once = len(seeds) if together else max(1, IN_CACHE // len(high))
    generator = torch.Generator()
    for start in range(0, len(seeds), at_once):
        part, some = rows[start : start + at_once], seeds[start : start + at_once]
        if together:
            part.copy_(torch.from_numpy(uniform_numbers(some, len(high))))
        else:
            for seed, row in zip(some, part.unbind(), strict=True):
                row.uniform_(generator=generator.manual_seed(seed))
        # `uniform_(low, high)` rounds once, as a fused multiply-add does; a product and a sum would round twice.
        torch.addcmul(low, part, width, out=part)


def _normal_rows(rows: Tensor, seeds: Sequence[int], sizes: list[int], deviations: list[float]) -> None:
    generator = torch.Generator()
    for seed, row in zip(seeds, rows.unbind(), strict=True):
        generator.manual_seed(seed)
        for part, deviation in zip(row.split(sizes), deviations, strict=True):
            part.normal_(0, deviation, generator=generator)


DRAWS: dict[Initializer, tuple[Scales, Callable[[Tensor, Sequence[int], list[int], list[float]], None]]] = {
    Initializer.PYTORCH_DEFAULT: (_pytorch_default, _uniform_rows),
    Initializer.XAVIER: (_xavier, _uniform_rows),
    Initializer.HE: (_he, _normal_rows),
    Initializer.NORMAL: (_normal, _normal_rows),
    Initializer.ORTHOGONAL: (_standard_normal, _normal_rows),
}


class Parameters:
    """The parameters of one chunk of seeds after the other, in the same memory: to ask for fresh memory takes longer."""

    def __init__(self, spec: NetworkSpec) -> None:
        self._spec = spec
        self._dtype = PRECISIONS[spec.dtype].build()
        self._sizes: list[int] = []
        self._scales: list[float] = []
        scales_of, self._fill = DRAWS[spec.initializer]
        for fan_in, fan_out in pairwise(spec.layer_sizes):
            of_weight, of_bias = scales_of(spec, fan_in, fan_out)
            self._sizes.append(fan_in * fan_out)
            self._scales.append(of_weight)
            if spec.use_bias and of_bias is not None:
                self._sizes.append(fan_out)
                self._scales.append(of_bias)
        self._rows = torch.empty(0, sum(self._sizes), dtype=torch.float32)

    def draw(self, seeds: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Every layer's weights (seeds, fan out, fan in) and biases (seeds, fan out), which are None if all are zero.

        They hold until parameters are drawn again.
        """
        if len(self._rows) < len(seeds):
            self._rows = torch.empty(len(seeds), sum(self._sizes), dtype=torch.float32)
        rows = self._rows[: len(seeds)]
        self._fill(rows, seeds, self._sizes, self._scales)
        parts = iter(rows.split(self._sizes, 1))
        is_biased = len(self._sizes) > self._spec.depth
        for fan_in, fan_out in pairwise(self._spec.layer_sizes):
            weight = next(parts).unflatten(1, (fan_out, fan_in))
            if self._spec.initializer is Initializer.ORTHOGONAL:
                weight = _orthonormal(weight)
            if self._spec.gain != 1:
                weight *= self._spec.gain
            yield weight.to(self._dtype), next(parts).to(self._dtype) if is_biased else None


def _orthonormal(drawn: Tensor) -> Tensor:
    """What `nn.init.orthogonal_` makes of normal numbers, for every seed."""
    is_wide = drawn.shape[1] < drawn.shape[2]
    # One by one: the last digit depends on where in memory a matrix begins.
    factors = [torch.linalg.qr(one) for one in (drawn.mT if is_wide else drawn)]
    signs = torch.stack([r.diagonal() for _, r in factors]).sign()
    signed = torch.stack([q for q, _ in factors]) * signs[:, None]
    return (signed.mT if is_wide else signed).contiguous()
