"""The gradients of one backward pass, measured as they arrive in bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from gradlab.capture.engine import as_plain, is_foreign, is_sharded, is_wrapped
from gradlab.statistics import GradientStatistics, measure, measure_few
from gradlab.statistics.quick import Batch, Slabs, measure_long, slab_for

FEW = 16
"""A gradient with at most so many entries waits as a list of numbers: cheaper than to copy it."""
FEW_AT_ONCE = 256
"""So many of them wait at the most."""
AT_ONCE = 16_384
"""A gradient with more entries is measured on arrival; the others wait, and are measured together."""
NUMBERS = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Types whose squares neither underflow nor overflow in Python's floats."""
BATCHED = "a batch of gradients arrived at once (is_grads_batched, vectorize); differentiate one at a time"
SHARDED = "a DTensor, of which this process has only its share; gather it with .full_tensor() where you need its numbers"

Owner = TypeVar("Owner")

Pool = list[Slabs]
"""Slabs that no pass is using: to ask the system for fresh memory in every pass would double the price of waiting."""


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
        self._gradients: list[Tensor] = []
        self._few: list[tuple[int, Any]] = []
        self._pool = pool
        self._slabs = pool.pop() if pool else {}
        self._batches: list[Batch] = []
        self._measured: dict[int, GradientStatistics] = {}
        self._same_as: dict[int, int] = {}
        """For an arrival that was measured as another one, the number of that."""

    def add(self, owner: Owner, gradient: Tensor) -> None:
        """Take in the gradient that has just arrived."""
        arrived = self.arrived
        entries, dtype = gradient.numel(), gradient.dtype
        if self._keep_gradients or gradient.requires_grad or not entries:
            self._add_slowly(owner, gradient)
            return
        try:
            if entries > FEW or dtype not in NUMBERS:
                numbers = gradient.numpy()
                slab = self._slabs.get(dtype) or slab_for(dtype, self._slabs)
                if entries <= AT_ONCE:
                    slab.take(len(arrived), numbers.reshape(-1))
                elif numbers.flags.c_contiguous:
                    self._measured[len(arrived)] = slab.measured(numbers.reshape(-1))
                else:  # reshape would copy all of it at once
                    raise LookupError
            elif gradient.is_cpu and type(gradient) is Tensor:
                self._few.append((len(arrived), gradient.tolist()))
                if len(self._few) == FEW_AT_ONCE:
                    self._measure_few()
            else:
                raise LookupError
        except Exception:  # of another type, layout or device, or of a class that does not allow this
            self._add_slowly(owner, gradient)
            return
        arrived.append(owner)

    def add_shared(self, owners: Sequence[Owner], gradient: Tensor) -> None:
        """Take in one gradient that has just arrived at several owners, with nothing between them that could change it."""
        first, *others = owners
        index = len(self.arrived)
        self.add(first, gradient)
        if self._keep_gradients or index == len(self.arrived):  # each has a copy, or a note, of its own
            for owner in others:
                self.add(owner, gradient)
            return
        for owner in others:
            self._same_as[len(self.arrived)] = index
            self.arrived.append(owner)

    def _add_slowly(self, owner: Owner, gradient: Tensor) -> None:
        """Measure any kind of gradient at once."""
        if is_wrapped(gradient):
            self.withheld[owner] = BATCHED
            return
        if type(gradient) is not Tensor and is_sharded(gradient):
            self.withheld[owner] = SHARDED
            return
        gradient = as_plain(gradient).detach()  # create_graph=True: a number needs no graph
        try:
            if gradient.is_cpu and gradient.numel():
                with torch.no_grad():
                    found = measure_long(gradient, self._slabs)
            else:
                found = measure(gradient)
        except Exception as error:
            if not is_foreign(gradient):
                raise
            # A fake tensor, for one, has no values; the backward of whoever uses such tensors goes on all the same.
            why = str(error).partition("\n")[0]
            self.withheld[owner] = f"its gradient is a {type(gradient).__name__}, which cannot be measured: {why}"
            return
        self._measured[len(self.arrived)] = found
        self.arrived.append(owner)
        if self._keep_gradients:
            self._gradients.append(gradient.clone())

    def _measure_few(self) -> None:
        for arrival, numbers in self._few:
            self._measured[arrival] = measure_few(_flat(numbers))
        self._few.clear()

    def settle(self) -> None:
        """Measure what is waiting."""
        self._measure_few()
        for slab in self._slabs.values():
            self._batches += slab.settled()
        self._pool.append(self._slabs)
        self._slabs = {}

    def add_up_parts(self, without: Collection[int] = ()) -> list[Owner]:
        """Make one arrival of all those of one owner, with the sum of its parts; the owners whose parts are not kept.

        The arrivals numbered in `without` are forgotten.

        A re-entrant checkpoint runs a backward of its own: a parameter used inside and outside receives a part from each.
        """
        places: dict[int, list[int]] = {}
        for index, owner in enumerate(self.arrived):
            if index in without:
                continue
            places.setdefault(id(owner), []).append(index)
        lost = []
        for first, *others in places.values():
            if others and self._keep_gradients:
                self._gradients[first] = sum((self._gradients[index] for index in others), start=self._gradients[first])
                self._measured[first] = measure(self._gradients[first])
            elif others:
                lost.append(self.arrived[first])
        kept = [first for first, *_ in places.values()]
        self.arrived = [self.arrived[index] for index in kept]
        self._measured = {place: self.statistics(index) for place, index in enumerate(kept)}
        self._same_as = {}
        self._gradients = [self._gradients[index] for index in kept] if self._keep_gradients else []
        return lost

    def drop_gradients(self) -> None:
        """Keep the numbers only."""
        self._gradients.clear()
        self._keep_gradients = False

    def statistics(self, index: int) -> GradientStatistics:
        """The statistics of arrival number `index`."""
        for batch in self._batches:
            self._measured.update(batch.statistics())
        self._batches.clear()
        return self._measured[self._same_as.get(index, index)]

    def gradient(self, index: int) -> Tensor | None:
        """A copy of the gradient of arrival number `index`, where gradients are kept."""
        return self._gradients[index] if self._keep_gradients else None


def _flat(numbers: Any) -> Any:
    """The numbers of a nested list in order; of a lone number, a list of it."""
    if not isinstance(numbers, list):
        return [numbers]
    while isinstance(numbers[0], list):
        numbers = list(chain.from_iterable(numbers))
    return numbers
