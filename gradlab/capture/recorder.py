"""The bookkeeping shared by every method: forward calls, backward passes, and which reading belongs to which.

A *round* is the forward calls between one backward pass and the next; calls are counted within it. Outputs remember
their round, so a later backward over an earlier graph finds its calls again. What is kept of an output is its place and
its shape, never the tensor: the graph owns the hook, and the two go together.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gradlab.capture import engine
from gradlab.capture.layers import ParameterName, tensors_in
from gradlab.capture.measurements import Pool
from gradlab.capture.watched import Description, Layer, Output, Parameter, Pass, Round
from gradlab.errors import CaptureError, CaptureWarning

IN_PARTS = "its gradient arrived in several parts that can no longer be added up"


class Watcher(Protocol):
    """What a capture method does; one class each, in the module of the method's name."""

    output_type: type[Output]
    """The tensor hook to put on outputs."""

    def check(self, layer: Layer, returned: object) -> None:
        """Raise CaptureError where the method cannot measure what the layer returned, other than a lone tensor."""

    def watch(self, output: Output, tensor: Tensor) -> None:
        """Arrange that the gradient of the tensor will be known."""

    def marked(self, output: Output, gradient: Tensor) -> None:
        """Take note that a gradient is passing the output of a `MarkedOutput`, before anything else is done with it."""

    def collect(self, finished: Pass) -> None:
        """Add to the pass what did not arrive by itself, and say what is withheld."""

    def explain(self, error: BaseException) -> CaptureError | None:
        """The error to raise instead of one that the method itself has caused in the user's code."""

    def close(self) -> None:
        """Remove everything the method has attached, beyond the hooks that outputs hold."""


class Recorder:
    """Everything one capture knows while it watches a model."""

    def __init__(
        self,
        layers: dict[str, nn.Module],
        parameters: Iterable[ParameterName],
        hidden: Mapping[str, str],
        *,
        keep_passes: int | None,
        keep_gradients: bool,
        loss_scale: Callable[[], float],
        wanted: Callable[[], bool],
        averages: Callable[[], bool] | None,
    ) -> None:
        self.layers = [Layer(self, name, module, place) for place, (name, module) in enumerate(layers.items())]
        for layer in self.layers:
            layer.hidden = hidden.get(layer.name, "")
        self.parameters = self._by_tensor(parameters)
        self._passes: deque[Pass] = deque(maxlen=keep_passes)
        self._pool: Pool = []
        self._inner: deque[Pass] = deque(maxlen=keep_passes)
        self.wanted = wanted
        self.averages = averages
        """Whether the processes exchange gradients in the pass at hand; None where there is one process."""
        self.when_finished: Callable[[Pass], None] | None = None
        self.round = Round(0, wanted=True)
        self.between_rounds = True
        self.closed = False
        self.closed = False
        self.watcher: Watcher
        self._keep_gradients = keep_gradients
        self._loss_scale = loss_scale
        self.running: tuple[int, Pass | None] = (engine.NO_TASK, None)
        self._unfinished: dict[int, Pass] = {}
        self._earlier_rounds: list[Round] = []
        self._checkpoints: WeakKeyDictionary[object, list[Output]] = WeakKeyDictionary()
        self.descriptions: dict[Parameter, Description] = {}
        self._warned: set[str] = set()
        self.refresh_parameters()

    def _by_tensor(self, names: Iterable[ParameterName]) -> list[Parameter]:
        shared: dict[int, list[ParameterName]] = {}
        for name in names:
            shared.setdefault(id(getattr(name.owner, name.attribute)), []).append(name)
        return [Parameter(self, group) for group in shared.values()]

    def refresh_parameters(self) -> None:
        """Watch the tensors that stand under the parameters' names now.

        Done when a backward begins: a hook put on a leaf then is still in time, as the layer's output comes first, and by
        then a lazy parameter has its values, a frozen one may have been thawed, and a swapped one is back in its place.
        """
        for parameter in self.parameters:
            if parameter.refresh():  # a new dict: finished passes keep theirs
                self.descriptions = {**self.descriptions, parameter: parameter.description}

    # --- forward ------------------------------------------------------------------------------------------------------

    def open_round(self) -> None:
        """Begin to count calls anew, unless the round before is still waiting for its backward."""
        self._drop_interrupted(depth=0)
        if self.round.closed:
            for output in self.round.leaves:  # a leaf outlives the round, and so would its hook
                output.detach()
            self._earlier_rounds = [r for r in (*self._earlier_rounds, self.round) if self._still_reachable(r)]
            self.round = Round(self.round.number + 1, wanted=True)
            for layer in self.layers:
                layer.calls = 0
        self.round.wanted = self.wanted()
        self.between_rounds = False

    @staticmethod
    def _still_reachable(earlier: Round) -> bool:
        if any(output.alive for output in earlier.outputs):
            return True
        earlier.outputs = []  # each points back at the round: without this only the garbage collector frees them
        return False

    def await_gradient(self, layer: Layer, path: str, tensor: Tensor) -> None:
        """Take note of a tensor that a layer has returned."""
        output = self.watcher.output_type(self, layer, path, tensor)
        outputs = self.round.outputs
        outputs.append(output)
        if output.tracked:
            self.watcher.watch(output, tensor)
            if tensor.is_leaf:
                self.round.leaves.append(output)
        elif not torch.is_grad_enabled():
            # A re-entrant checkpoint runs its forward without grad and again, with grad, inside backward.
            for context in engine.function_contexts():
                self._checkpoints.setdefault(context, []).append(output)
        if len(outputs) > self.round.limit:
            self.round.trim()

    def await_parts(self, layer: Layer, returned: object) -> None:
        """Take note of every tensor in what a layer has returned."""
        self.watcher.check(layer, returned)
        parts = list(tensors_in(returned))
        for path, tensor in parts:
            self.await_gradient(layer, path, tensor)
        if not parts:
            self.note_unmeasurable(layer, f"no tensor was found in the {type(returned).__name__} it returned")

    def note_unmeasurable(self, layer: Layer, note: str) -> None:
        """Take note of a call that no gradient can be measured of."""
        output = Output(self, layer, "0", None)
        output.note = note
        self.round.outputs.append(output)

    def recomputed(self, layer: Layer, returned: object) -> None:
        """A forward inside backward is a checkpoint's second run of a call that was counted already.

        A non-re-entrant checkpoint leaves the hooks of the first run in place, so nothing is to be done; a re-entrant
        one builds the graph only now.
        """
        source, inside = engine.replayed_context()
        if source not in self._checkpoints:
            return
        if not isinstance(returned, Tensor):
            self.watcher.check(layer, returned)
        waiting = self.running_pass().replays.setdefault(source, list(self._checkpoints[source]))
        for path, tensor in tensors_in(returned):
            output = next((o for o in waiting if o.layer is layer and o.path == path), None)
            if output is None:
                continue
            waiting.remove(output)
            if tensor.requires_grad:
                output.tracked = True
                self.watcher.watch(output, tensor)
            for context in inside:  # a checkpoint inside a checkpoint: it is run without grad once more
                self._checkpoints.setdefault(context, []).append(output)

    # --- backward -----------------------------------------------------------------------------------------------------

    def running_pass(self) -> Pass:
        """The pass that the backward call now running belongs to."""
        task = engine.current_task()
        known, running = self.running
        if task == known and running is not None:
            return running
        return self._enter(task)

    def _enter(self, task: int) -> Pass:
        entered = self._unfinished.get(task)
        if entered is None:
            depth = engine.backward_depth()
            self._drop_interrupted(depth)
            around = [p for p in self._unfinished.values() if p.thread == threading.get_ident() and p.depth < depth]
            if around:  # a backward inside a backward is part of the outer one
                entered = max(around, key=lambda p: p.depth)
            else:
                keep = self._keep_gradients or bool(self._checkpoints)
                entered = Pass(depth, self._is_inner(), self._now_wanted(), keep, self._pool)
                engine.when_backward_ends(partial(self._finish, entered))
                self.refresh_parameters()
                entered.descriptions = self.descriptions
            self._unfinished[task] = entered
        self.running = (task, entered)
        return entered

    def _now_wanted(self) -> bool:
        return self.wanted() if self.between_rounds else self.round.wanted

    def _is_inner(self) -> bool:
        """Whether this is a gradient taken to be differentiated again, as a gradient penalty does."""
        if not torch.is_grad_enabled():  # autograd runs hooks with grad enabled where create_graph=True
            return False
        asked_by_grad = engine.asked_by_grad()
        if asked_by_grad is not None:
            return asked_by_grad
        leaves = (parameter.current for parameter in self.parameters)
        return not any(engine.accumulates_into(leaf) for leaf in leaves if leaf is not None and leaf.requires_grad)

    def _drop_interrupted(self, depth: int) -> None:
        """Forget passes of this thread that an exception ended: one as deep as this call cannot be under way."""
        for task, entered in list(self._unfinished.items()):
            if entered.thread == threading.get_ident() and entered.depth >= depth:
                del self._unfinished[task]
        self.running = (engine.NO_TASK, None)

    def _finish(self, finished: Pass) -> None:
        self.running = (engine.NO_TASK, None)
        for task in [task for task, entered in self._unfinished.items() if entered is finished]:
            del self._unfinished[task]
        if self.averages is None:
            self._complete(finished)
        else:  # after the callback in which DistributedDataParallel waits for the other processes
            engine.when_backward_ends(partial(self._complete, finished))

    def _complete(self, finished: Pass) -> None:
        if self.averages is not None:
            finished.add_averages(exchanged=self.averages())
        self.watcher.collect(finished)
        finished.settle()
        for reading in finished.add_up_parts():
            finished.withheld[reading] = IN_PARTS
        if not self._keep_gradients:
            finished.drop_gradients()
        finished.scale = self._loss_scale()
        finished.replays.clear()
        finished.rounds = self._rounds_of(finished)
        finished.outputs = [output for each in finished.rounds for output in each.outputs]
        parameters = [reading for reading in finished.arrived if isinstance(reading, Parameter)]
        if len(parameters) < len(self.parameters):
            finished.untracked = {p for p in self.parameters if (leaf := p.current) is None or not leaf.requires_grad}
        if not finished.inner and self.round in finished.rounds:
            self.round.closed = self.between_rounds = True
        if finished.inner:
            self._inner.append(finished)
        else:
            self._settle_inner(finished)
            if finished.wanted:
                self._passes.append(finished)
        if finished.wanted:
            self._warn_about_unseen(finished)
        if self.when_finished is not None:
            self.when_finished(finished)

    def _rounds_of(self, finished: Pass) -> list[Round]:
        """The rounds whose outputs the pass reached; the one at hand where it reached parameters only."""
        reached = {reading.round for reading in (*finished.arrived, *finished.withheld) if isinstance(reading, Output)}
        if len(reached) < 2:
            return list(reached) if reached or self.round.closed else [self.round]
        return sorted(reached, key=lambda each: each.number)

    def _settle_inner(self, finished: Pass) -> None:
        """Drop the gradients that `finished` differentiated again: only the outer backward is a pass."""
        self._passes.extend(p for p in self._inner if p.wanted and not set(p.rounds) & set(finished.rounds))
        self._inner.clear()

    @property
    def passes(self) -> list[Pass]:
        """The latest passes in order."""
        passes = [*self._passes, *(p for p in self._inner if p.wanted)]
        return passes if self._passes.maxlen is None else passes[-self._passes.maxlen :]

    def _warn_about_unseen(self, finished: Pass) -> None:
        if any(len(each.called) == len(self.layers) for each in finished.rounds):
            return
        called: set[int] = set().union(*(each.called for each in finished.rounds))
        unseen = {layer.name: layer for layer in self.layers if layer.place not in called}
        for parameter in finished.arrived:
            if isinstance(parameter, Parameter):
                for name, owner, _ in parameter.names:
                    if owner in unseen:
                        reason = (
                            unseen[owner].hidden or "its weights are used without calling it, or inside a compiled function"
                        )
                        self.warn_once(
                            owner,
                            f"layer {owner!r}: {name} received a gradient, but the layer's forward was not seen, so it has no"
                            f" output gradient: {reason}",
                        )

    def warn_once(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(message, CaptureWarning, stacklevel=2)

    # --- end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave nothing behind on the model or on graphs that are still alive."""
        self.closed = True
        for parameter in self.parameters:
            parameter.forget_model()
        for each in (*self._earlier_rounds, self.round):
            each.remove_hooks()
            each.outputs = []
        self._earlier_rounds = []
        self._unfinished.clear()
        self._checkpoints.clear()
        if hasattr(self, "watcher"):  # building it may have failed
            self.watcher.close()
