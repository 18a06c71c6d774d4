"""The gradients of one backward pass, measured as they arrive in bounded memory."""

from __future__ import annotations

from typing import Generic, TypeVar

from torch import Tensor

from gradlab.statistics import GradientStatistics, measure, measure_all

AT_ONCE = 16_384
"""A gradient with more entries is measured on arrival; smaller ones wait to be measured together, which is cheaper."""
WAITING = 131_072
"""Entries that may wait: half a megabyte in float32, what stays in a core's cache."""

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
        self._waiting: list[Tensor] = []
        self._waiting_at: list[int] = []
        self._waiting_entries = 0

    def add(self, owner: Owner, gradient: Tensor) -> None:
        """Take in the gradient that has just arrived."""
        self.arrived.append(owner)
        if gradient.requires_grad:  # create_graph=True: a number needs no graph
            gradient = gradient.detach()
        if self._keep_gradients:
            gradient = gradient.clone()
            self._gradients.append(gradient)
        entries = gradient.numel()
        if entries > AT_ONCE:
            self._statistics.append(measure_all((gradient,))[0])
            return
        self._waiting.append(gradient if self._keep_gradients else gradient.clone())
        self._waiting_at.append(len(self._statistics))
        self._statistics.append(None)
        self._waiting_entries += entries
        if self._waiting_entries > WAITING:
            self.settle()

    def settle(self) -> None:
        """Measure what is waiting."""
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
