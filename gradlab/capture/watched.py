"""What is watched, and what is noted of it: layers and their calls, outputs, parameters, rounds and passes.

Layers, outputs and parameters are themselves the hooks that PyTorch calls.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn

from gradlab.capture import engine
from gradlab.capture.layers import ParameterName, initialized
from gradlab.capture.measurements import Measurements, Pool

if TYPE_CHECKING:
    from gradlab.capture.recorder import Recorder

DEAD_CALLS_KEPT = 1_000
"""Calls of one round that are still listed when no gradient can reach them any more: forwards without end are bounded."""


IN_TRANSFORM = "it ran inside a torch.func transform, where no single gradient arrives; run the model itself"


class Inert:
    """A hook that a copy or a pickle of the model does not take along.

    In its place stands a function of the standard library that takes whatever a hook is given, does nothing and returns
    None, so that a pickle can be read where there is no gradlab.
    """

    __slots__ = ()
    __torch_unserializable__ = True  # or torch warns that a leaf tensor's hook is not saved with it

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class Layer(Inert):
    """One watched layer; as a forward hook it reports its calls."""

    def __init__(self, recorder: Recorder, name: str, module: nn.Module, place: int) -> None:
        self.recorder = recorder
        self.name = name
        self.place = place
        self.module_type = type(module).__name__
        self.calls = 0
        self.hidden = ""
        """Why its calls may go unseen, if they may."""

    def __call__(self, module: nn.Module, inputs: object, returned: object) -> None:
        recorder = self.recorder
        if engine.current_task() != engine.NO_TASK:
            recorder.recomputed(self, returned)
            return
        if recorder.between_rounds:
            recorder.open_round()
        if not recorder.round.wanted:
            return
        if not self.calls:
            recorder.round.called.add(self.place)
            self.module_type = type(module).__name__  # a lazy module becomes another in its first forward
        if engine.in_transform() is not None:
            recorder.note_unmeasurable(self, IN_TRANSFORM)
        elif isinstance(returned, Tensor):
            recorder.await_gradient(self, "0", returned)
        else:
            recorder.await_parts(self, returned)
        self.calls += 1


class Untraced(Inert):
    """A hook that torch.compile calls from Python instead of tracing into it."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self._call = engine.untraced(hook)

    def __call__(self, *arguments: object) -> None:
        self._call(*arguments)


class Output(Inert):
    """One tensor that a layer returned and what is known of it; as a tensor hook it reports its gradient."""

    __slots__ = ("_hooks", "call", "dtype", "layer", "note", "path", "recorder", "round", "shape", "tracked")

    def __init__(self, recorder: Recorder, layer: Layer, path: str, tensor: Tensor | None) -> None:
        self.recorder = recorder
        self.round = recorder.round
        self.layer = layer
        self.call = layer.calls
        self.path = path
        self.note = ""
        self._hooks: ref[OrderedDict[Any, Any]] | None = None
        self.shape: Sequence[int] | None = None
        if tensor is None:
            self.dtype = None
            self.tracked = False
            return
        self.dtype, self.tracked = tensor.dtype, tensor.requires_grad
        if not tensor.is_nested:  # a nested tensor has no one shape
            self.shape = tensor.shape

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            task, running = self.recorder.running
            if task != engine.current_task() or running is None:
                running = self.recorder.running_pass()
            running.add(self, gradient)

    def attach(self, tensor: Tensor) -> None:
        """Become a hook on the tensor.

        What `Tensor.register_hook` does, without the handle it makes: a third of the time, and the largest part of what a
        small network pays for being watched.
        """
        hooks: Any = tensor._backward_hooks
        if hooks is None:
            hooks = tensor._backward_hooks = OrderedDict()
            if tensor.grad_fn is not None:
                tensor.grad_fn._register_hook_dict(tensor)
        hooks[self] = self
        self._hooks = ref(hooks)

    def detach(self) -> None:
        """Take the hook off again, if the graph that owns it exists."""
        if self._hooks is not None and (hooks := self._hooks()) is not None:
            hooks.pop(self, None)

    @property
    def alive(self) -> bool:
        """Whether a gradient can still arrive: the graph that owns the hook exists."""
        return self._hooks is not None and self._hooks() is not None


class MarkedOutput(Output):
    """An output whose gradient the method gets elsewhere: the tensor hook notes only that one has passed, and when."""

    __slots__ = ()

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            running = self.recorder.running_pass()
            running.marked.append(self)
            self.recorder.watcher.marked(self, gradient)


class Description(NamedTuple):
    """Shape and dtype of a parameter; None before a lazy one has values."""

    shape: Sequence[int] | None
    dtype: torch.dtype | None


UNKNOWN = Description(None, None)


class Parameter(Inert):
    """One watched parameter under all its names; as a tensor hook it reports its gradient, once a backward call."""

    def __init__(self, recorder: Recorder, names: list[ParameterName]) -> None:
        self.recorder = recorder
        self.names = [(name.parameter, name.layer, name.role) for name in names]
        owner = names[0].owner
        # A scripted module's parameters are in no dict.
        self._holder: Any = owner._parameters if isinstance(owner._parameters, dict) else owner
        self._attribute = names[0].attribute
        self.description = UNKNOWN
        self._known: nn.Parameter | None = None
        self._hooked = False
        self._handle: Any = None

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is None:
            return
        task, running = self.recorder.running
        if task != engine.current_task() or running is None:
            running = self.recorder.running_pass()
        if self.recorder.averages is not None:
            running.await_average(self)
        elif running.wanted:
            running.add(self, gradient)

    @property
    def current(self) -> nn.Parameter | None:
        """The tensor under the name now: while we watch it may be replaced, frozen, thawed or lazily made."""
        if isinstance(self._holder, dict):  # what getattr would find, without its detours
            return self._holder.get(self._attribute)
        return getattr(self._holder, self._attribute, None)

    def refresh(self) -> bool:
        """Put the hook on the tensor that is to be watched now; whether its description has changed."""
        parameter = self.current
        if parameter is not None and parameter is self._known:
            unchanged = parameter.requires_grad is self._hooked and parameter.dtype is self.description.dtype
            if unchanged:
                return False
        before = self.description
        self.release()
        if parameter is None or not initialized(parameter):
            self.description = UNKNOWN
        else:
            self.description = Description(parameter.shape, parameter.dtype)
            self._known, self._hooked = parameter, parameter.requires_grad
            if parameter.requires_grad:
                self._handle = parameter.register_hook(self)
        return self.description != before

    def release(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._handle = self._known = None
        self._hooked = False

    def forget_model(self) -> None:
        self.release()
        self._holder = {}


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

    def trim(self) -> None:
        """Forget the oldest calls that no gradient can reach any more."""
        old, recent = self.outputs[:-DEAD_CALLS_KEPT], self.outputs[-DEAD_CALLS_KEPT:]
        leaves = set(map(id, self.leaves))  # a leaf lives on whatever happens to the forward that returned it
        for output in self.leaves[:-DEAD_CALLS_KEPT]:
            output.detach()
        self.leaves = self.leaves[-DEAD_CALLS_KEPT:]
        self.outputs = [output for output in old if output.alive and id(output) not in leaves] + recent
        self.limit = max(3 * DEAD_CALLS_KEPT, 2 * len(self.outputs))

    def remove_hooks(self) -> None:
        for output in self.outputs:
            output.detach()


class Pass(Measurements["Output | Parameter"]):
    """One backward call: what arrived in it, in order, and the outputs it could have reached."""

    def __init__(self, depth: int, inner: bool, wanted: bool, keep_gradients: bool, pool: Pool) -> None:
        super().__init__(keep_gradients, pool)
        self.depth = depth
        self.wanted = wanted
        self.thread = threading.get_ident()
        self.inner = inner
        self.scale = 1.0
        self.marked: list[Output] = []
        self.reports: list[tuple[Layer, tuple[Tensor | None, ...]]] = []
        self.descriptions: dict[Parameter, Description] = {}
        self.accumulated: dict[Parameter, Tensor | None] = {}
        self.rounds: list[Round] = []
        self.outputs: list[Output] = []
        self.untracked: set[Parameter] = set()
        self.replays: dict[object, list[Output]] = {}

    def await_average(self, parameter: Parameter) -> None:
        """Note what `.grad` holds before this pass, when the gradient to be measured is the average over processes.

        It is there only once DistributedDataParallel has exchanged the gradients, after the last hook has run.
        """
        if self.wanted and parameter not in self.accumulated:
            before = None if (current := parameter.current) is None else current.grad
            self.accumulated[parameter] = None if before is None else before.detach().clone()

    def add_averages(self, exchanged: bool) -> None:
        """Take in the averages, now that they are there."""
        for parameter, before in self.accumulated.items():
            current = parameter.current
            after = None if current is None else current.grad
            if after is None:
                self.withheld[parameter] = ".grad was gone before it could be read: it holds the average over the processes"
            elif not exchanged:
                self.withheld[parameter] = "no_sync(): the processes have not exchanged this gradient yet"
            else:
                self.add(parameter, after if before is None else after - before)
        self.accumulated.clear()
