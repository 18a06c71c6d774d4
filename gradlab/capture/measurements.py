"""The gradients of one backward pass, measured as they arrive in bounded memory."""

from __future__ import annotations

from itertools import chain
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from gradlab.capture.engine import is_wrapped
from gradlab.statistics import GradientStatistics, measure, measure_all, measure_few

FEW = 64
"""A gradient with at most so many entries is measured on arrival, as a list of numbers: cheaper than to copy it."""
AT_ONCE = 16_384
"""A gradient with more entries is measured on arrival; smaller ones wait to be measured together, which is cheaper."""
WAITING = 65_536
"""Entries that may wait: a quarter of a megabyte in float32, which leaves room in a core's cache for the model."""
NUMBERS = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Types whose squares neither underflow nor overflow in Python's floats."""

BATCHED = "a batch of gradients arrived at once (is_grads_batched, vectorize); differentiate one at a time"

Owner = TypeVar("Owner")


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
        self._waiting: list[Tensor] = []
        self._waiting_at: list[int] = []
        self._waiting_entries = 0

    def add(self, owner: Owner, gradient: Tensor) -> None:
        """Take in the gradient that has just arrived."""
        if gradient.numel() <= FEW and gradient.dtype in NUMBERS and gradient.is_cpu and not self._keep_gradients:
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
        self._add_tensor(owner, gradient)

    def _add_tensor(self, owner: Owner, gradient: Tensor) -> None:
        if is_wrapped(gradient):
            self.withheld[owner] = BATCHED
            return
        index = len(self.arrived)
        self.arrived.append(owner)
        self._statistics.append(None)
        gradient = gradient.detach()  # create_graph=True: a number needs no graph
        if self._keep_gradients:
            self._gradients.append(gradient.clone())
        entries = gradient.numel()
        if entries > AT_ONCE:
            self._statistics[index] = measure_all((gradient,))[0]
            return
        self._waiting.append(gradient.clone())
        self._waiting_at.append(index)
        self._waiting_entries += entries
        if self._waiting_entries > WAITING:
            self.settle()

    def settle(self) -> None:
        """Measure what is waiting."""
        if self._waiting:
            for index, statistics in zip(self._waiting_at, measure_all(self._waiting), strict=True):
                self._statistics[index] = statistics
            self._waiting, self._waiting_at, self._waiting_entries = [], [], 0

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


def _flat(numbers: Any) -> list[float]:
    """The numbers of a nested list in order."""
    if not isinstance(numbers, list):
        return [numbers]
    while numbers and isinstance(numbers[0], list):
        numbers = list(chain.from_iterable(numbers))
    return numbers
