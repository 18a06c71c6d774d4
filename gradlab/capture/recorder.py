"""The bookkeeping shared by every method: backward passes, and which reading belongs to which."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter

import torch
from torch import nn

from gradlab.capture import engine
from gradlab.capture.averages import Averages
from gradlab.capture.forward import ForwardRecorder
from gradlab.capture.layers import NamedParameter
from gradlab.capture.measurements import Pool
from gradlab.capture.new_modules import NewModules
from gradlab.capture.parameters import WatchedParameters
from gradlab.capture.passes import Pass, Round
from gradlab.capture.watched import Parameter
from gradlab.errors import CaptureWarning

_round_of = attrgetter("round")
PASSED_BY = "its weights are used without calling it, or inside a compiled function; call it itself to see its output"
LEAF = "the layer returned a leaf, and a leaf does not tell which forward its gradient belongs to, this one or one begun later"
LATE = (
    "it was thawed or replaced after the forward had begun, and its gradient came before that of any layer: do so before the"
    " forward"
)
REPLACED = (
    "the module that held it has left the model, and the one in its place is not watched; begin a capture after the change"
)


class Recorder(ForwardRecorder):
    """Everything one capture knows while it watches a model."""

    def __init__(
        self,
        layers: dict[str, nn.Module],
        parameters: Iterable[NamedParameter],
        model: nn.Module,
        among: Sequence[str] | None,
        hidden: Mapping[str, str],
        *,
        keep_passes: int | None,
        keep_gradients: bool,
        loss_scale: Callable[[], float],
        wanted: Callable[[], bool],
        averages: Averages | None,
    ) -> None:
        super().__init__(layers, hidden, wanted)
        self.new_modules: NewModules | None = None
        self.parameters = WatchedParameters(self, parameters, model, among)
        self._absent: list[Parameter] = []
        self._called: set[int] = set()
        self._passes: deque[Pass] = deque(maxlen=keep_passes)
        self._pool: Pool = []
        self._inner: deque[Pass] = deque(maxlen=keep_passes)
        self.averages = averages
        self.when_finished: Callable[[Pass], None] | None = None
        self.closed = False
        self._keep_gradients = keep_gradients
        self._loss_scale = loss_scale
        self._unfinished: dict[int, Pass] = {}
        self._warned: set[str] = set()

    def running_pass(self) -> Pass:
        task = engine.current_task()
        known, running = self.running
        if task == known and running is not None:
            return running
        return self._enter(task)

    def _enter(self, task: int) -> Pass:
        entered = self._unfinished.get(task)
        if entered is None:
            calls = engine.backward_calls()
            self.drop_interrupted(calls)
            entered = self._part_of(task, calls) if self._unfinished else None
            if entered is None:
                entered = self._begin(task, calls)
            self._unfinished[task] = entered
        if entered.joined:
            entered.switch(task in entered.asked)
        self.running = (task, entered)
        return entered

    def _part_of(self, task: int, calls: Sequence[engine.Call]) -> Pass | None:
        """The pass of the backward inside which this one runs; or its own, where one inside it has begun that."""
        # Of a list, as other threads may begin or end passes meanwhile.
        known = {each.call: each for each in list(self._unfinished.values()) if each.thread == threading.get_ident()}
        for call in calls:
            if (entered := known.get(call)) is not None:
                if call is calls[0]:
                    entered.stop_waiting()
                    entered.inner = self._is_inner()
                    engine.when_backward_ends(partial(self._finish, entered))
                else:
                    entered.joined = True
                    if engine.asked_by_grad():
                        entered.asked.add(task)
                return entered
        return None

    def _begin(self, task: int, calls: Sequence[engine.Call]) -> Pass:
        """The pass of this backward, or of one around it that has reached nothing yet, as where a checkpoint ends the model."""
        nested = len(calls) > 2  # itself, one around it, NO_FRAME
        around = engine.function_around() if nested and self.home == engine.NO_TASK else None
        keep = self._keep_gradients or bool(self._checkpoints) or around is not None
        begun = Pass(calls[0] if calls else engine.NO_FRAME, self._is_inner(), self._now_wanted(), keep, self._pool)
        begun.again = self.round.closed
        if around is None:
            engine.when_backward_ends(partial(self._finish, begun))
        else:
            node, begun.call = around
            begun.wait_behind(node, self._note_backward)
            begun.joined = True
            if engine.asked_by_grad():
                begun.asked.add(task)
        changed = self.parameters.refresh()
        begun.parameters, begun.descriptions = self.parameters.now, self.parameters.descriptions
        if changed:
            begun.late = [p for p in changed if p.known is not None and p.hooked and engine.accumulates_into(p.known)]
        return begun

    def _note_backward(self, *_: object) -> None:
        self.running_pass()

    def _now_wanted(self) -> bool:
        return self.wanted() if self.between_rounds else self.round.wanted

    def _is_inner(self) -> bool:
        """Whether this is a gradient taken to be differentiated again, as a gradient penalty does."""
        if not torch.is_grad_enabled():  # autograd runs hooks with grad enabled where create_graph=True
            return False
        asked_by_grad = engine.asked_by_grad()
        if asked_by_grad is not None:
            return asked_by_grad
        leaves = (parameter.current for parameter in self.parameters.now)
        return not any(engine.accumulates_into(leaf) for leaf in leaves if leaf is not None and leaf.requires_grad)

    @property
    def differentiates(self) -> bool:
        """Whether any backward call is under way, or was ended by an exception."""
        return bool(self._unfinished)

    def differentiates_in(self, threads: Collection[int | None]) -> bool:
        """Whether a backward call is under way in one of these threads."""
        return any(entered.thread in threads for entered in list(self._unfinished.values()))

    def drop_interrupted(self, calls: Sequence[engine.Call]) -> None:
        for task, entered in list(self._unfinished.items()):
            if entered.thread == threading.get_ident() and entered.call not in calls:
                entered.stop_waiting()
                self._unfinished.pop(task, None)
        self.running = (engine.NO_TASK, None)

    def _finish(self, finished: Pass) -> None:
        self.running = (engine.NO_TASK, None)
        for task in [task for task, entered in list(self._unfinished.items()) if entered is finished]:
            self._unfinished.pop(task, None)
        if self.averages is None:
            self._complete(finished)
        else:  # after the callback in which DistributedDataParallel waits for the other processes
            engine.when_backward_ends(partial(self._complete, finished))

    def _complete(self, finished: Pass) -> None:
        if self.averages is not None:
            self.averages.read(finished)
        if finished.joined:
            finished.switch(asked=False)
        self.watcher.collect(finished)
        finished.settle()
        if finished.wanted and not (finished.arrived or finished.marked or finished.withheld):
            # A layer ran inside the backward of something else. What is not wanted takes nothing in, and is counted.
            return
        if finished.joined:
            finished.judge_parts()
        finished.judge_replays()
        if not self._keep_gradients:
            finished.drop_gradients()
        finished.scale = self._loss_scale()
        finished.unwatched = finished.wanted and not self.round.wanted
        rounds = list(map(_round_of, finished.arrived))
        finished.rounds = self._reached({*rounds, *map(_round_of, finished.withheld)})
        finished.outputs = list(chain.from_iterable([each.outputs for each in finished.rounds]))
        if any(each.leaves for each in finished.rounds if each is not self.round):
            # What arrives at a leaf goes to the latest forward that returned it.
            leaves = chain(self.round.leaves, *(each.leaves for each in finished.rounds))
            finished.withheld |= dict.fromkeys(leaves, LEAF)
        if rounds.count(None) < len(finished.parameters):
            self._explain_absent(finished)
        if not finished.inner and self.round in finished.rounds:
            self.round.closed = self.between_rounds = True
        if finished.inner:
            self._inner.append(finished)
        else:
            self._settle_inner(finished)
            if finished.wanted:
                self._passes.append(finished)
        if finished.wanted and not finished.unwatched:
            self._warn_about_unseen(finished)
        if self.when_finished is not None:
            self.when_finished(finished)

    def _explain_absent(self, finished: Pass) -> None:
        """Say of the parameters that no gradient arrived at, whether they could have had one."""
        finished.untracked = {p for p in finished.parameters if (leaf := p.current) is None or not leaf.requires_grad}
        arrived = set(map(id, finished.arrived))
        for parameter in finished.late:
            if id(parameter) not in arrived:
                finished.withheld.setdefault(parameter, LATE)
        absent = [p for p in finished.parameters if id(p) not in arrived]
        if absent == self._absent or self.closed:
            return
        self._absent = absent
        gone = self.parameters.not_held(absent)
        for parameter in gone:
            finished.withheld[parameter] = REPLACED
            if self.new_modules is not None:
                self.new_modules.look()
        if gone:
            self.parameters.survey_again()
            self.parameters.refresh()

    def _reached(self, rounds: set[Round | None]) -> list[Round]:
        """These rounds in order, whose outputs a pass reached; the one at hand where it reached parameters only."""
        reached = sorted((each for each in rounds if each is not None), key=lambda each: each.number)
        return reached if reached or self.round.closed else [self.round]

    def _settle_inner(self, finished: Pass) -> None:
        """Drop the gradients that `finished` differentiated again: only the outer backward is a pass."""
        if self._inner:
            self._passes.extend(p for p in self._inner if p.wanted and not set(p.rounds) & set(finished.rounds))
            self._inner.clear()

    @property
    def passes(self) -> list[Pass]:
        """The latest passes in order."""
        passes = [*self._passes, *(p for p in self._inner if p.wanted)]
        return passes if self._passes.maxlen is None else passes[-self._passes.maxlen :]

    def _warn_about_unseen(self, finished: Pass) -> None:
        if self.new_modules is not None:
            self.new_modules.count_pass()
        self._warn_about_new_modules()
        if any(len(each.called) == len(self.layers) for each in finished.rounds):
            return
        called: set[int] = set().union(*(each.called for each in finished.rounds))
        unseen = {layer.name: layer for layer in self.layers if layer.place not in called}
        if called != self._called:  # or all that follows has been looked for
            self._called = called
            if self.new_modules is not None and not all(map(self.new_modules.holds, unseen.values())):
                self.new_modules.look()
                self._warn_about_new_modules()
        for parameter in finished.arrived:
            if isinstance(parameter, Parameter):
                for name, owner, _ in parameter.names:
                    if owner in unseen:
                        reason = unseen[owner].hidden or PASSED_BY
                        self.warn_once(
                            owner,
                            f"layer {owner!r}: {name} received a gradient, but the layer's forward was not seen, so it has no"
                            f" output gradient: {reason}",
                        )

    def _warn_about_new_modules(self) -> None:
        if self.new_modules is not None:
            for name, message in self.new_modules.unwatched(self.layers).items():
                self.warn_once(name, message)

    def news(self) -> dict[str, str]:
        """What is still to be said of modules that came into the model, by the layer it is about."""
        if self.new_modules is None:
            return {}
        self.new_modules.count()
        return self.new_modules.unwatched(self.layers)

    def warn_once(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(message, CaptureWarning, stacklevel=2)

    # --- end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave nothing behind on the model or on graphs that are still alive.

        Nor do layers and parameters point back at the recorder any more: a capture of one step leaves its memory as the
        step does, and no work to the garbage collector, which took a tenth of its time.
        """
        self.closed = True
        self._absent = []
        for layer in self.layers:
            layer.recorder = None
        self.parameters.close()
        if self.new_modules is not None:
            self.new_modules.close()
        for each in (*self._earlier_rounds, self.round):
            each.remove_hooks()
            each.forget_outputs()
        self._earlier_rounds = []
        for interrupted in self._unfinished.values():
            interrupted.stop_waiting()
        self._unfinished.clear()
        self._checkpoints.clear()
        self.averages = None
        if hasattr(self, "watcher"):  # building it may have failed
            self.watcher.close()
