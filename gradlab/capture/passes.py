"""Rounds and passes: the forward calls between two backward calls, and what arrived in one backward call."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, pairwise

from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from gradlab.capture.engine import Call
from gradlab.capture.measurements import Measurements, Pool
from gradlab.capture.watched import Description, Layer, Output, Parameter

DEAD_CALLS_KEPT = 1_000
"""Calls of one round that are still listed when no gradient can reach them any more: forwards without end are bounded."""

IN_PARTS = "its gradient arrived in several parts that can no longer be added up; with keep_gradients=True they are"
SEVERAL_TIMES = (
    "several gradients arrived at it in one backward, as where a custom function differentiates it again and again: none of"
    " them is that of the loss; run the layer outside the function"
)
ASKED_INSIDE = (
    "torch.autograd.grad was called inside the backward, in a hook or a custom function, and went through it: what arrived is"
    " not the gradient of the loss"
)
RUN_AGAIN = (
    "a custom autograd function ran it without gradients and again inside the backward, and which of its calls a gradient"
    " there belongs to cannot be told; use torch.utils.checkpoint, or run the layer outside the function"
)


class Round:
    """The forward calls between two backward passes."""

    def __init__(self, number: int, wanted: bool) -> None:
        self.number = number
        self.wanted = wanted
        self.outputs: list[Output] = []
        self.leaves: list[Output] = []
        self.called: set[int] = set()
        self.closed = False
        self.limit = 3 * DEAD_CALLS_KEPT

    def trim(self, awaited: set[int]) -> None:
        """Forget the oldest calls that no gradient can reach any more; those awaited (by id) a checkpoint may run again."""
        old, recent = self.outputs[:-DEAD_CALLS_KEPT], self.outputs[-DEAD_CALLS_KEPT:]
        leaves = set(map(id, self.leaves))  # a leaf lives on whatever happens to the forward that returned it
        for output in self.leaves[:-DEAD_CALLS_KEPT]:
            output.detach()
        self.leaves = self.leaves[-DEAD_CALLS_KEPT:]
        self.outputs = [
            output for output in old if (output.alive and id(output) not in leaves) or id(output) in awaited
        ] + recent
        self.limit = max(3 * DEAD_CALLS_KEPT, 2 * len(self.outputs))

    def remove_hooks(self) -> None:
        for output in self.outputs:
            output.detach()

    def forget_outputs(self) -> None:
        """Each points back at the round: without this only the garbage collector frees them."""
        self.outputs, self.leaves = [], []


class Pass(Measurements["Output | Parameter"]):
    """One backward call: what arrived in it, in order, and the outputs it could have reached."""

    def __init__(self, call: Call, inner: bool, wanted: bool, keep_gradients: bool, pool: Pool) -> None:
        super().__init__(keep_gradients, pool)
        self.call = call
        self.wanted = wanted
        self.thread = threading.get_ident()
        self.inner = inner
        self.unwatched = False
        """Whether it is wanted, and the forward calls before it were not."""
        self.joined = False
        """Whether a backward inside this one is part of it, so that an owner may have received several parts."""
        self._waiting: list[RemovableHandle] = []
        self.scale = 1.0
        self.no_zero = ""
        """Why a gradient of zeros may be none at all, if it may."""
        self.marked: list[Output] = []
        self.raw: dict[Output, Tensor] = {}
        """What passed the outputs that are marked, to compare the reports with."""
        self.reports: list[tuple[Layer, tuple[Tensor | None, ...]]] = []
        self.parameters: list[Parameter] = []
        self.descriptions: dict[Parameter, Description] = {}
        self.again = False
        """Whether it began with no forward since the pass before."""
        self.averaged: dict[Parameter, bool] = {}
        """Those whose gradient is averaged over processes, and whether `.grad` was zero before."""
        self.late: list[Parameter] = []
        """Those that are in this backward and got a hook only when it had begun."""
        self.rounds: list[Round] = []
        self.outputs: list[Output] = []
        self.untracked: set[Parameter] = set()
        self.replays: dict[object, Replay] = {}
        self.replayed: set[Output] = set()
        """The outputs of a checkpoint's second run."""
        self.asked: set[int] = set()
        """The calls of torch.autograd.grad inside this backward."""
        self.switches: list[tuple[int, int, bool]] = []
        """What had arrived and was marked whenever one backward gave way to another, and whether that was asked for."""

    def switch(self, asked: bool) -> None:
        """Take note that one backward gives way to another, and whether torch.autograd.grad has asked for that."""
        self.switches.append((len(self.arrived), len(self.marked), asked))

    def wait_behind(self, node: BackwardCFunction, reached: Callable[..., None]) -> None:
        """Have `reached` called when the backward goes on to what comes after `node`."""
        self._waiting = [after.register_prehook(reached) for after, _ in node.next_functions if after is not None]

    def stop_waiting(self) -> None:
        """It has gone on, or never will."""
        for hook in self._waiting:
            hook.remove()
        self._waiting = []

    def judge_replays(self) -> None:
        """Withhold the calls that were run again in a way that does not say which is which."""
        for replay in self.replays.values():
            self.withheld.update(dict.fromkeys(replay.doubtful, RUN_AGAIN))
        self.replays.clear()

    def judge_parts(self) -> None:
        """Settle what each owner received, where a backward ran inside this one.

        A checkpoint's second run belongs to this pass. A call of torch.autograd.grad is no part of the loss: it adds
        nothing to a parameter, and what reaches an output of the first run is a step on the way to something else.
        """
        asked = self._asked_for(0)
        outside = {id(owner) for index, owner in enumerate(self.arrived) if index not in asked}
        inside = [self.arrived[index] for index in asked]
        inside += [self.marked[index] for index in self._asked_for(1)]
        for owner in inside:
            if owner not in self.replayed and (isinstance(owner, Output) or id(owner) not in outside):
                self.withheld[owner] = ASKED_INSIDE
        for noted in (self.arrived, self.marked):
            for owner, parts in Counter(noted).items():
                if parts > 1 and isinstance(owner, Output):
                    self.withheld.setdefault(owner, SEVERAL_TIMES)
        for owner in self.add_up_parts(without={i for i in asked if self.arrived[i] not in self.replayed}):
            self.withheld.setdefault(owner, IN_PARTS)

    def _asked_for(self, kind: int) -> set[int]:
        """The numbers of those that arrived, or were marked, in a call of torch.autograd.grad inside this backward."""
        spans = [range(one[kind], other[kind]) for one, other in pairwise(self.switches) if one[2]]
        return set(chain.from_iterable(spans))


class Replay:
    """The second run, inside a backward, of the calls that a custom function made without grad.

    A checkpoint repeats all of them in order and only then differentiates. A reversible network goes through them
    backwards and an implicit layer repeats one of many: of a layer called several times nobody can say then which call it is.
    """

    def __init__(self, calls: Iterable[Output], running: Pass) -> None:
        self._running = running
        self._calls = list(calls)
        self._waiting = list(calls)
        self._began = len(running.switches)
        self._in_order = True

    def first_run(self, layer: Layer, path: str) -> Output | None:
        """The output whose second run this is; None where there was none."""
        for place, output in enumerate(self._waiting):
            if output.layer is layer and output.path == path:
                if place or len(self._running.switches) != self._began:
                    self._in_order = False
                del self._waiting[place]
                return output
        return None

    @property
    def doubtful(self) -> list[Output]:
        """The outputs of layers called several times, unless everything was repeated in order."""
        if self._in_order and not self._waiting:
            return []
        calls = Counter((output.layer, output.path) for output in self._calls)
        waiting = Counter((output.layer, output.path) for output in self._waiting)
        return [o for o in self._calls if calls[o.layer, o.path] > max(1, waiting[o.layer, o.path])]
