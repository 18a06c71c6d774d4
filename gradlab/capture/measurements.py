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
WAITING = 262_144
"""Entries that may wait: a megabyte in float32."""
NUMBERS = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Types whose squares neither underflow nor overflow in Python's floats."""
ROWS = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
"""Types that numpy measures as they are."""
BATCHED = "a batch of gradients arrived at once (is_grads_batched, vectorize); differentiate one at a time"

Owner = TypeVar("Owner")


class Rows:
    """Copies of gradients of one type and size as the rows of a matrix that grows; a third of the time of `Tensor.clone`."""

    def __init__(self, width: int, dtype: np.dtype[Any]) -> None:
        self._matrix = np.empty((max(1, 4096 // width), width), dtype)
        self.at: list[int] = []

    def add(self, index: int, gradient: Tensor) -> None:
        """Copy the gradient of arrival number `index`."""
        row = gradient.numpy().reshape(-1)
        used = len(self.at)
        if used == len(self._matrix):
            self._matrix = np.concatenate([self._matrix, np.empty_like(self._matrix)])
        self._matrix[used] = row
        self.at.append(index)

    def measure(self) -> list[GradientStatistics]:
        return measure_rows(self._matrix[: len(self.at)])


class Measurements(Generic[Owner]):
    """What arrived, whose it was and its statistics; nothing is kept of a gradient once it is measured.

    A waiting gradient is a copy. To hold the engine's own tensor would be cheaper and wrong: a later hook, or the engine
    itself, may go on to change it in place.
    """

    def __init__(self, keep_gradients: bool) -> None:
        self.arrived: list[Owner] = []
        self._keep_gradients = keep_gradients
        self._statistics: list[GradientStatistics | None] = []
        self._gradients: list[Tensor] = []
        self.withheld: dict[Owner, str] = {}
        """Why there is no number, for those whose gradient arrived and could not be measured."""
        self._rows: dict[tuple[int, torch.dtype], Rows] = {}
        self._waiting: list[Tensor] = []
        self._waiting_at: list[int] = []
        self._waiting_entries = 0

    def add(self, owner: Owner, gradient: Tensor) -> None:
        """Take in the gradient that has just arrived."""
        entries, dtype = gradient.numel(), gradient.dtype
        if entries <= FEW and dtype in NUMBERS and gradient.is_cpu and not self._keep_gradients:
            try:
                numbers = gradient.tolist()
                if gradient.dim() != 1:
                    numbers = _flat(numbers)
            except RuntimeError:  # sparse, nested or batched: no plain numbers
                numbers = None
            if numbers:
                self.arrived.append(owner)
                self._statistics.append(measure_few(numbers))
                return
        if is_wrapped(gradient):
            self.withheld[owner] = BATCHED
            return
        index = len(self.arrived)
        self.arrived.append(owner)
        self._statistics.append(None)
        if gradient.requires_grad:
            gradient = gradient.detach()  # create_graph=True: a number needs no graph
        if self._keep_gradients:
            self._gradients.append(gradient.clone())
        if entries > AT_ONCE:
            self._statistics[index] = measure_all((gradient,))[0]
        else:
            self._wait(index, gradient, entries)

    def _wait(self, index: int, gradient: Tensor, entries: int) -> None:
        dtype = gradient.dtype
        try:
            rows = self._rows.get((entries, dtype)) or self._rows.setdefault((entries, dtype), Rows(entries, ROWS[dtype]))
            rows.add(index, gradient)
        except (KeyError, RuntimeError, TypeError, ZeroDivisionError):  # another type, layout or device, or empty
            self._waiting.append(gradient.clone())
            self._waiting_at.append(index)
        self._waiting_entries += entries
        if self._waiting_entries > WAITING:
            self.settle()

    def settle(self) -> None:
        """Measure what is waiting."""
        for rows in self._rows.values():
            if rows.at:
                self._note(rows.at, rows.measure())
        if self._waiting:
            self._note(self._waiting_at, measure_all(self._waiting))
        self._rows, self._waiting, self._waiting_at, self._waiting_entries = {}, [], [], 0

    def _note(self, places: list[int], statistics: list[GradientStatistics]) -> None:
        for index, measured in zip(places, statistics, strict=True):
            self._statistics[index] = measured

    def add_up_parts(self) -> list[Owner]:
        """Make one arrival of all those of one owner, with the sum of its parts; the owners whose parts are not kept.

        A re-entrant checkpoint runs a backward of its own: a parameter used inside and outside receives a part from each.
        """
        places: dict[int, list[int]] = {}
        for index, owner in enumerate(self.arrived):
            places.setdefault(id(owner), []).append(index)
        if len(places) == len(self.arrived):
            return []
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
