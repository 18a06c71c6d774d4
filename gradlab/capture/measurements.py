"""The gradients of one backward pass, measured as they arrive in bounded memory."""

from __future__ import annotations

from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from gradlab.capture.engine import is_wrapped
from gradlab.statistics import GradientStatistics, measure, measure_all, measure_few, measure_rows

FEW = 16
"""A gradient with at most so many entries is measured on arrival, as a list of numbers: cheaper than to copy it."""
AT_ONCE = 16_384
"""A gradient with more entries is measured on arrival too; those between wait, and are measured together."""
MATRIX = 65_536
"""Entries of one size that wait at the most: a quarter of a megabyte in float32, so that all passes over it stay in cache."""
ALL_MATRICES = 262_144
"""Entries of all matrices together that are kept for the next pass: a megabyte in float32."""
NUMBERS = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Types whose squares neither underflow nor overflow in Python's floats."""
ROWS: dict[Any, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
"""Types that numpy measures as they are."""
BATCHED = "a batch of gradients arrived at once (is_grads_batched, vectorize); differentiate one at a time"

Owner = TypeVar("Owner")


class Rows:
    """Copies of gradients of one type and size as the rows of a matrix; a third of the time of `Tensor.clone`."""

    def __init__(self, width: int, dtype: np.dtype[Any]) -> None:
        self.matrix = np.empty((min(64, MATRIX // width), width), dtype)
        self.at: list[int] = []


Pool = list[dict[tuple[int, torch.dtype], Rows]]
"""Matrices that no pass is using: to ask the system for fresh memory in every pass would double the price of waiting."""


class Measurements(Generic[Owner]):
    """What arrived, whose it was and its statistics; nothing is kept of a gradient once it is measured.

    A waiting gradient is a copy. To hold the engine's own tensor would be cheaper and wrong: a later hook, or the engine
    itself, may go on to change it in place.
    """

    def __init__(self, keep_gradients: bool, pool: Pool) -> None:
        self.arrived: list[Owner] = []
        self.withheld: dict[Owner, str] = {}
        """Why there is no number, for those whose gradient arrived and could not be measured."""
        self._keep_gradients = keep_gradients
        self._statistics: list[GradientStatistics | None] = []
        self._gradients: list[Tensor] = []
        self._pool = pool
        self._rows = pool.pop() if pool else {}

    def add(self, owner: Owner, gradient: Tensor) -> None:
        """Take in the gradient that has just arrived."""
        entries, dtype = gradient.numel(), gradient.dtype
        if self._keep_gradients or gradient.requires_grad:
            self._add_slowly(owner, gradient)
            return
        try:
            if entries <= FEW and dtype in NUMBERS and gradient.is_cpu:
                numbers = gradient.tolist()
                if gradient.dim() != 1:
                    numbers = _flat(numbers)
                statistics = measure_few(numbers)
            else:
                rows = self._rows_for(entries, dtype)
                rows.matrix[len(rows.at)] = gradient.numpy().reshape(-1)
                statistics = None
        except (LookupError, RuntimeError, TypeError, ZeroDivisionError):  # large, empty, of another type, layout or device
            self._add_slowly(owner, gradient)
            return
        if statistics is None:
            rows.at.append(len(self.arrived))
        self.arrived.append(owner)
        self._statistics.append(statistics)
        if statistics is None and len(rows.at) == len(rows.matrix):
            self._measure(rows)

    def _rows_for(self, entries: int, dtype: torch.dtype) -> Rows:
        rows = self._rows.get((entries, dtype))
        if rows is None:
            if not 0 < entries <= AT_ONCE:
                raise LookupError
            rows = self._rows[entries, dtype] = Rows(entries, ROWS[dtype])
        return rows

    def _add_slowly(self, owner: Owner, gradient: Tensor) -> None:
        """Measure any kind of gradient at once."""
        if is_wrapped(gradient):
            self.withheld[owner] = BATCHED
            return
        gradient = gradient.detach()  # create_graph=True: a number needs no graph
        self.arrived.append(owner)
        self._statistics.append(measure_all((gradient,))[0])
        if self._keep_gradients:
            self._gradients.append(gradient.clone())

    def _measure(self, rows: Rows) -> None:
        for index, statistics in zip(rows.at, measure_rows(rows.matrix[: len(rows.at)]), strict=True):
            self._statistics[index] = statistics
        rows.at.clear()

    def settle(self) -> None:
        """Measure what is waiting."""
        for rows in self._rows.values():
            if rows.at:
                self._measure(rows)
        if sum(rows.matrix.size for rows in self._rows.values()) <= ALL_MATRICES:
            self._pool.append(self._rows)
        self._rows = {}

    def add_up_parts(self) -> list[Owner]:
        """Make one arrival of all those of one owner, with the sum of its parts; the owners whose parts are not kept.

        A re-entrant checkpoint runs a backward of its own: a parameter used inside and outside receives a part from each.
        """
        if len(set(map(id, self.arrived))) == len(self.arrived):
            return []
        places: dict[int, list[int]] = {}
        for index, owner in enumerate(self.arrived):
            places.setdefault(id(owner), []).append(index)
        lost = []
        for first, *others in places.values():
            if others and self._keep_gradients:
                self._gradients[first] = sum((self._gradients[index] for index in others), start=self._gradients[first])
                self._statistics[first] = measure(self._gradients[first])
            elif others:
                lost.append(self.arrived[first])
        kept = [first for first, *_ in places.values()]
        self.arrived = [self.arrived[index] for index in kept]
        self._statistics = [self._statistics[index] for index in kept]
        self._gradients = [self._gradients[index] for index in kept] if self._keep_gradients else []
        return lost

    def drop_gradients(self) -> None:
        """Keep the numbers only."""
        self._gradients.clear()
        self._keep_gradients = False

    def statistics(self, index: int) -> GradientStatistics:
        """The statistics of arrival number `index`."""
        statistics = self._statistics[index]
        assert statistics is not None, "settle() first"
        return statistics

    def gradient(self, index: int) -> Tensor | None:
        """A copy of the gradient of arrival number `index`, where gradients are kept."""
        return self._gradients[index] if self._keep_gradients else None


def _flat(numbers: Any) -> Any:
    """The numbers of a nested list in order."""
    if not isinstance(numbers, list):
        return [numbers]
    while numbers and isinstance(numbers[0], list):
        numbers = list(chain.from_iterable(numbers))
    return numbers
