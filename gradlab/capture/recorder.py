"""The bookkeeping shared by every method: forward calls, backward passes, and which reading belongs to which.

A *round* is the forward calls between one backward pass and the next; calls are counted within it. Outputs remember
their round, so a later backward over an earlier graph finds its calls again. What is kept of an output is its place and
its shape, never the tensor: the graph owns the hook, and the two go together.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gradlab.capture import engine
from gradlab.capture.layers import ParameterName, initialized, tensors_in
from gradlab.capture.measurements import Measurements
from gradlab.errors import CaptureError, CaptureWarning

DEAD_CALLS_KEPT = 1_000
"""Calls of one round that are still listed when no gradient can reach them any more: forwards without end are bounded."""


class Layer:
    """One watched layer."""

    def __init__(self, name: str, module: nn.Module, place: int) -> None:
        self.name = name
        self.place = place
        self.module_type = type(module).__name__
        self.calls = 0


class Output:
    """One tensor that a layer returned and what is known of it; as a tensor hook it reports its gradient."""

    __slots__ = ("call", "dtype", "handle", "layer", "note", "path", "recorder", "round", "shape", "tracked")

    def __init__(self, recorder: Recorder, layer: Layer, call: int, path: str, tensor: Tensor | None) -> None:
        self.recorder = recorder
        self.round = recorder.round
        self.layer = layer
        self.call = call
        self.path = path
        self.shape = None if tensor is None else tensor.shape
        self.dtype = None if tensor is None else tensor.dtype
        self.tracked = tensor is not None and tensor.requires_grad
        self.note = ""
        self.handle: Any = None

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.recorder.running_pass().add(self, gradient)

    @property
    def alive(self) -> bool:
        """Whether a gradient can still arrive: the graph that owns the hook exists."""
        return self.handle is not None and self.handle.hooks_dict_ref() is not None


class Parameter:
    """One watched parameter under all its names; as a tensor hook it reports its gradient, once a backward call."""

    def __init__(self, recorder: Recorder, names: list[ParameterName]) -> None:
        self.recorder = recorder
        self.names = [(name.parameter, name.layer, name.role) for name in names]
        self.shape: tuple[int, ...] | None = None
        self.dtype: torch.dtype | None = None
        self._slot: tuple[dict[str, nn.Parameter | None], str] | None = (names[0].owner._parameters, names[0].attribute)
        self._known: nn.Parameter | None = None
        self._handle: Any = None

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.recorder.running_pass().add(self, gradient)

    @property
    def current(self) -> nn.Parameter | None:
        """The tensor under the name now: while we watch it may be replaced, frozen, thawed or lazily made."""
        return self._slot[0].get(self._slot[1]) if self._slot else None

    @property
    def lazy(self) -> bool:
        """Whether it still waits for its values, which the first forward brings."""
        parameter = self.current
        return parameter is not None and not initialized(parameter)

    def refresh(self) -> None:
        """Put the hook on the tensor that is to be watched now."""
        parameter = self.current
        if parameter is self._known and (parameter is None or parameter.requires_grad == (self._handle is not None)):
            return
        self.release()
        self._known = parameter
        if parameter is None or not initialized(parameter):
            self._known = None
            return
        self.shape, self.dtype = tuple(parameter.shape), parameter.dtype
        if parameter.requires_grad:
            self._handle = parameter.register_hook(self)

    def release(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._handle = self._known = None

    def forget_model(self) -> None:
        self.release()
        self._slot = None


class Round:
    """The forward calls between two backward passes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.outputs: list[Output] = []
        self.leaves: list[Output] = []
        self.called: set[int] = set()
        self.closed = False
        self.limit = 10 * DEAD_CALLS_KEPT

    def trim(self) -> None:
        """Forget the oldest calls that no gradient can reach any more."""
        recent = len(self.outputs) - DEAD_CALLS_KEPT
        self.outputs = [output for place, output in enumerate(self.outputs) if place >= recent or output.alive]
        self.limit = max(10 * DEAD_CALLS_KEPT, 2 * len(self.outputs))

    def remove_hooks(self) -> None:
        for output in self.outputs:
            if output.handle is not None:
                output.handle.remove()


class Pass:
    """One backward call: what arrived in it, in order, and the outputs it could have reached."""

    def __init__(self, depth: int, inner: bool, measurements: Measurements) -> None:
        self.depth = depth
        self.thread = threading.get_ident()
        self.inner = inner
        self.measurements = measurements
        self.scale = 1.0
        self.arrived: list[Output | Parameter] = []
        self.withheld: dict[Output, str] = {}
        self.rounds: list[Round] = []
        self.outputs: list[Output] = []
        self.untracked: set[Parameter] = set()
        self.replays: dict[object, list[Output]] = {}

    def add(self, reading: Output | Parameter, gradient: Tensor) -> None:
        """Take in a gradient."""
        self.arrived.append(reading)
        self.measurements.add(gradient)

    def reaches(self, other: Pass) -> bool:
        """Whether this pass ran through an output that the other one ran through."""
        mine = {id(reading) for reading in self.arrived if isinstance(reading, Output)}
        return any(id(reading) in mine for reading in other.arrived)


class Watcher(Protocol):
    """What a capture method does; one class each, in the module of the method's name."""

    def check(self, layer: Layer, returned: object) -> None:
        """Raise CaptureError where the method cannot measure what the layer returned, other than a lone tensor."""

    def watch(self, output: Output, tensor: Tensor) -> None:
        """Arrange that the gradient of the tensor will be known."""

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
        *,
        keep_passes: int | None,
        keep_gradients: bool,
        loss_scale: Callable[[], float],
    ) -> None:
        self.layers = [Layer(name, module, place) for place, (name, module) in enumerate(layers.items())]
        self.parameters = self._by_tensor(parameters)
        self.passes: deque[Pass] = deque(maxlen=keep_passes)
        self.round = Round(0)
        self.forwards = 0
        self.watcher: Watcher
        self._keep_gradients = keep_gradients
        self._loss_scale = loss_scale
        self._running: tuple[int, Pass | None] = (engine.NO_TASK, None)
        self._unfinished: dict[int, Pass] = {}
        self._earlier_rounds: list[Round] = []
        self._checkpoints: WeakKeyDictionary[object, list[Output]] = WeakKeyDictionary()
        self._lazy: list[Parameter] = []
        self._warned: set[str] = set()
        self._refresh_parameters()

    def _by_tensor(self, names: Iterable[ParameterName]) -> list[Parameter]:
        shared: dict[int, list[ParameterName]] = {}
        for name in names:
            shared.setdefault(id(name.owner._parameters[name.attribute]), []).append(name)
        return [Parameter(self, group) for group in shared.values()]

    def _refresh_parameters(self) -> None:
        for parameter in self.parameters:
            parameter.refresh()
        self._lazy = [parameter for parameter in self.parameters if parameter.lazy]

    # --- forward ------------------------------------------------------------------------------------------------------

    def called(self, layer: Layer, module: nn.Module, returned: object) -> None:
        """Take note of one forward call of a layer."""
        if engine.current_task() != engine.NO_TASK:
            self._recomputed(layer, returned)
            return
        if self.round.closed or not self.round.called:
            self._open_round()
        if not layer.calls:
            self.round.called.add(layer.place)
            layer.module_type = type(module).__name__  # a lazy module becomes another in its first forward
        if self._lazy:
            self._refresh_parameters()
        if isinstance(returned, Tensor):
            self._await(layer, "0", returned)
        else:
            self._await_parts(layer, returned)
        layer.calls += 1
        if len(self.round.outputs) > self.round.limit:
            self.round.trim()

    def _await(self, layer: Layer, path: str, tensor: Tensor) -> None:
        output = Output(self, layer, layer.calls, path, tensor)
        self.round.outputs.append(output)
        if output.tracked:
            self.watcher.watch(output, tensor)
            if tensor.is_leaf:
                self.round.leaves.append(output)
        elif not torch.is_grad_enabled():
            # A re-entrant checkpoint runs its forward without grad and again, with grad, inside backward.
            for context in engine.function_contexts():
                self._checkpoints.setdefault(context, []).append(output)

    def _await_parts(self, layer: Layer, returned: object) -> None:
        self.watcher.check(layer, returned)
        parts = list(tensors_in(returned))
        for path, tensor in parts:
            self._await(layer, path, tensor)
        if not parts:
            output = Output(self, layer, layer.calls, "0", None)
            output.note = f"it returned {type(returned).__name__}, without a tensor in it"
            self.round.outputs.append(output)

    def _recomputed(self, layer: Layer, returned: object) -> None:
        """A forward inside backward is a checkpoint's second run of a call that was counted already.

        A non-re-entrant checkpoint leaves the hooks of the first run in place, so nothing is to be done; a re-entrant
        one builds the graph only now.
        """
        contexts = engine.function_contexts()
        source = next((context for context in contexts if context in self._checkpoints), None)
        if source is None:
            return
        replays = self.running_pass().replays
        waiting = replays.setdefault(source, list(self._checkpoints[source]))
        for path, tensor in tensors_in(returned):
            output = next((o for o in waiting if o.layer is layer and o.path == path), None)
            if output is None:
                continue
            waiting.remove(output)
            if tensor.requires_grad:
                output.tracked = True
                self.watcher.watch(output, tensor)
            for context in contexts[: contexts.index(source)]:  # a checkpoint inside a checkpoint: again without grad
                self._checkpoints.setdefault(context, []).append(output)

    def _open_round(self) -> None:
        """Begin counting calls anew, unless the round before is still waiting for its backward."""
        self._drop_interrupted(depth=0)
        self.forwards += 1
        if self.round.closed:
            for output in self.round.leaves:  # a leaf outlives the round, and so would its hook
                if output.handle is not None:
                    output.handle.remove()
            self._earlier_rounds = [r for r in (*self._earlier_rounds, self.round) if self._still_reachable(r)]
            self.round = Round(self.round.number + 1)
            for layer in self.layers:
                layer.calls = 0
        self._refresh_parameters()

    @staticmethod
    def _still_reachable(earlier: Round) -> bool:
        if any(output.alive for output in earlier.outputs):
            return True
        earlier.outputs = []  # each points back at the round: without this only the garbage collector frees them
        return False

    # --- backward -----------------------------------------------------------------------------------------------------

    def running_pass(self) -> Pass:
        """The pass that the backward call now running belongs to."""
        task = engine.current_task()
        known, running = self._running
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
                entered = Pass(depth, self._is_inner(), Measurements(self._keep_gradients or bool(self._checkpoints)))
                engine.when_backward_ends(partial(self._finish, entered))
            self._unfinished[task] = entered
        self._running = (task, entered)
        return entered

    def _is_inner(self) -> bool:
        """Whether this is a gradient taken to be differentiated again, as a gradient penalty does."""
        if not torch.is_grad_enabled():  # autograd runs hooks with grad enabled where create_graph=True
            return False
        leaves = (parameter.current for parameter in self.parameters)
        return not any(engine.accumulates_into(leaf) for leaf in leaves if leaf is not None and leaf.requires_grad)

    def _drop_interrupted(self, depth: int) -> None:
        """Forget passes of this thread that an exception ended: one as deep as this call cannot be under way."""
        for task, entered in list(self._unfinished.items()):
            if entered.thread == threading.get_ident() and entered.depth >= depth:
                del self._unfinished[task]
        self._running = (engine.NO_TASK, None)

    def _finish(self, finished: Pass) -> None:
        self._running = (engine.NO_TASK, None)
        for task in [task for task, entered in self._unfinished.items() if entered is finished]:
            del self._unfinished[task]
        self.watcher.collect(finished)
        finished.measurements.settle()
        finished.scale = self._loss_scale()
        finished.replays.clear()
        reached = {reading.round for reading in finished.arrived if isinstance(reading, Output)}
        if not reached and not self.round.closed:
            reached = {self.round}
        finished.rounds = sorted(reached, key=lambda r: r.number)
        finished.outputs = [output for r in finished.rounds for output in r.outputs]
        finished.untracked = {p for p in self.parameters if (leaf := p.current) is None or not leaf.requires_grad}
        if not finished.inner and self.round in finished.rounds:
            self.round.closed = True
        self._settle_inner(finished)
        self.passes.append(finished)
        self._warn_about_unseen(finished)

    def _settle_inner(self, finished: Pass) -> None:
        """Drop the gradients that `finished` differentiated again: only the outer backward is a pass."""
        candidates = []
        while self.passes and self.passes[-1].inner:
            candidates.append(self.passes.pop())
        self.passes.extend(p for p in reversed(candidates) if not finished.reaches(p))

    def _warn_about_unseen(self, finished: Pass) -> None:
        called: set[int] = set().union(*(r.called for r in finished.rounds))
        if len(called) == len(self.layers):
            return
        unseen = {layer.name for layer in self.layers if layer.place not in called}
        for parameter in finished.arrived:
            if isinstance(parameter, Parameter):
                for name, layer, _ in parameter.names:
                    if layer in unseen:
                        self.warn_once(
                            layer,
                            f"layer {layer!r}: {name} received a gradient, but the layer's forward was not seen, so it"
                            " has no output gradient. Its weights are used without calling it, or it runs compiled or"
                            " scripted: then capture the original module, before it is compiled.",
                        )

    def warn_once(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(message, CaptureWarning, stacklevel=2)

    # --- end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave nothing behind on the model or on graphs that are still alive."""
        for parameter in self.parameters:
            parameter.forget_model()
        for each in self._rounds():
            each.remove_hooks()
            each.outputs = []
        self._earlier_rounds = []
        self._unfinished.clear()
        self._checkpoints.clear()
        if hasattr(self, "watcher"):  # building it may have failed
            self.watcher.close()

    def _rounds(self) -> Iterator[Round]:
        yield from self._earlier_rounds
        yield self.round
