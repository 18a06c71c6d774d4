"""What is watched, and what is noted of it: layers and their calls, outputs, parameters.

Layers, outputs and parameters are themselves the hooks that PyTorch calls.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradlab.capture.engine import current_task, in_transform
from gradlab.capture.layers import NamedParameter, is_held, makes_its_output

if TYPE_CHECKING:
    from gradlab.capture.forward import ForwardRecorder
    from gradlab.capture.passes import Round

IN_TRANSFORM = "it ran inside a torch.func transform, where no single gradient arrives; run the model itself"


class Inert:
    """A hook that a copy or a pickle of the model does not take along.

    In its place stands a function of the standard library that takes whatever a hook is given, does nothing and returns
    None, so that a pickle can be read where there is no gradlab.
    """

    __slots__ = ()
    __torch_unserializable__ = True  # or torch warns that a leaf tensor's hook is not saved with it

    @property
    def __name__(self) -> str:
        """None, as any instance; torch.jit.script asks for it, as it would compile the hooks with their module."""
        raise AttributeError(
            "gradlab is capturing the model's gradients with hooks that torch.jit.script cannot compile: script the model"
            " before or after the with block"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class Layer(Inert):
    """One watched layer; as a forward hook it reports its calls."""

    def __init__(self, recorder: ForwardRecorder, name: str, module: nn.Module, place: int) -> None:
        self.recorder: ForwardRecorder | None = recorder
        """None once the capture has ended."""
        self.name = name
        self.place = place
        self.module_type = type(module).__name__
        self.round: Round | None = None
        self.calls = 0
        """Forward calls so far in this round."""
        self.hidden = ""
        """Why its calls may go unseen, if they may."""
        self._module = ref(module)

    def __call__(self, module: nn.Module, inputs: object, returned: object) -> None:
        recorder = self.recorder
        if recorder is None:  # another thread was about to call it when the capture ended
            return
        if current_task() != recorder.home:
            recorder.recomputed(self, returned)
            return
        if recorder.between_rounds:
            recorder.open_round()
        current = recorder.round
        if not current.wanted:
            return
        if self.round is not current:  # its first call in this round
            current.called.add(self.place)  # before another thread can find it there
            self.calls = 0
            self.module_type = type(module).__name__  # a lazy module becomes another in its first forward
            self.round = current
        if in_transform() is not None:
            recorder.note_unmeasurable(self, IN_TRANSFORM)
        elif isinstance(returned, Tensor):
            recorder.await_gradient(self, "0", returned)
        else:
            recorder.await_parts(self, returned)
        self.calls += 1

    def stands_for(self, module: nn.Module | None) -> bool:
        """Whether it is this module that is watched."""
        return self._module() is module

    @property
    def makes_its_output(self) -> bool:
        """Whether nobody else can have used what it returns, or what that is a view of."""
        module = self._module()
        return module is not None and makes_its_output(module)


class Untraced(Inert):
    """A hook that torch.compile calls from Python instead of tracing into it."""

    def __init__(self, hook: Callable[..., None], call: Callable[..., None]) -> None:
        self._hook, self._call = hook, call

    def __call__(self, *arguments: object) -> None:
        self._call(self._hook, *arguments)


def attach(owner: Callable[..., None], tensor: Tensor, hook: Callable[..., None] | None = None) -> ref[OrderedDict[Any, Any]]:
    """Put a hook on a tensor; the dict that holds it then, which is as alive as the tensor or its place in the graph.

    What `Tensor.register_hook` does, without the handle it makes: a third of the time, and the largest part of what a
    small network pays for being watched.
    """
    node = tensor.grad_fn  # first: a view whose base has changed gets a new place in the graph, without hooks, only now
    hooks: Any = tensor._backward_hooks
    if hooks is None:
        hooks = tensor._backward_hooks = OrderedDict()
        if node is not None:
            node._register_hook_dict(tensor)
    hooks[owner] = hook or owner
    return ref(hooks)


class Output(Inert):
    """One tensor that a layer returned and what is known of it; as a tensor hook it reports its gradient."""

    __slots__ = ("_hooks", "call", "dtype", "layer", "note", "path", "round", "shape", "tracked")

    def __init__(self, current: Round, layer: Layer, path: str, tensor: Tensor | None) -> None:
        self.round = current
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
        recorder = self.layer.recorder
        if gradient is not None and recorder is not None:
            task, running = recorder.running
            if task != current_task() or running is None:
                running = recorder.running_pass()
            running.add(self, gradient)

    def attach(self, tensor: Tensor) -> None:
        """Become a hook on the tensor."""
        self._hooks = attach(self, tensor)

    def detach(self) -> None:
        """Take the hook off again, if the graph that owns it exists."""
        if self._hooks is not None and (hooks := self._hooks()) is not None:
            hooks.pop(self, None)

    @property
    def alive(self) -> bool:
        """Whether a gradient can still arrive: the graph that owns the hook exists."""
        return self._hooks is not None and self._hooks() is not None


class SharedReading(Inert):
    """The hook of several outputs that are one tensor, with no other hook between theirs: one measurement serves them all.

    A layer that returns what it was given makes such outputs. The tensor holds it in the place of the first output's hook.
    """

    __slots__ = ("_outputs",)

    def __init__(self, *outputs: Output) -> None:
        self._outputs = outputs

    @staticmethod
    def attach(output: Output, tensor: Tensor) -> None:
        """Put the output's hook on the tensor, or join the hook that is the last on it."""
        # No view, which has a hook on its base, too. Nor on a leaf: it lives on, and its hooks are taken off one by one;
        # those of a round on a graph go together.
        if type(output) is Output and tensor._backward_hooks and tensor.grad_fn is not None:
            hooks: Any = tensor._backward_hooks
            place, last = next(reversed(hooks.items())) if hooks else (None, None)
            outputs = last._outputs if type(last) is SharedReading else (last,)
            if type(outputs[0]) is Output and outputs[0].round is output.round:
                hooks[place] = SharedReading(*outputs, output)
                output._hooks = ref(hooks)
                return
        output.attach(tensor)

    def __call__(self, gradient: Tensor | None) -> None:
        recorder = self._outputs[0].layer.recorder
        if gradient is not None and recorder is not None:
            recorder.running_pass().add_shared(self._outputs, gradient)


class MarkedOutput(Output):
    """An output whose gradient the method gets elsewhere: the tensor hook notes only that one has passed, and when."""

    __slots__ = ()

    def __call__(self, gradient: Tensor | None) -> None:
        recorder = self.layer.recorder
        if gradient is not None and recorder is not None:
            running = recorder.running_pass()
            running.marked.append(self)
            recorder.watcher.marked(self, gradient)


class Description(NamedTuple):
    """Shape and dtype of a parameter; None before a lazy one has values."""

    shape: Sequence[int] | None
    dtype: torch.dtype | None


UNKNOWN = Description(None, None)


class Parameter(Inert):
    """One watched parameter under all its names; as a tensor hook it reports its gradient, once a backward call."""

    round = None
    """It belongs to no round, unlike an `Output`."""
    note = ""
    """Why its gradients are withheld, if they are."""

    def __init__(self, recorder: ForwardRecorder, named: NamedParameter) -> None:
        self.recorder: ForwardRecorder | None = recorder
        """None once the capture has ended."""
        self.named, self.names = named, named.names
        self.holder, self.attribute = named.places[0]
        self.description = UNKNOWN
        self.known: nn.Parameter | None = None
        self.hooked = False
        self._inside = 0
        self._hooks: Callable[[], OrderedDict[Any, Any] | None] = _no_hooks

    def __call__(self, gradient: Tensor | None) -> None:
        recorder = self.recorder
        if gradient is None or recorder is None:
            return
        task, running = recorder.running
        if task != current_task() or running is None:
            known = self.known
            running = recorder.running_pass()
            if self.known is not known:  # the hook stood on a tensor that was under the name in the forward only
                return
        if running.wanted and (recorder.averages is None or not recorder.averages.await_average(self, running)):
            running.add(self, gradient)

    @property
    def current(self) -> nn.Parameter | None:
        """The tensor under the name now: while we watch it may be replaced, frozen, thawed or lazily made."""
        found: nn.Parameter | None = self.holder.get(self.attribute)
        return found

    @property
    def may_lose_its_names(self) -> bool:
        """Whether that has to be looked for: the tensor under its first name does not tell."""
        return len(self.names) > 1 or "parametrizations" in self.names[0][0]

    def has_lost_its_names(self, model: nn.Module) -> bool:
        """Whether they stand for different tensors now, or its parametrisation has been removed."""
        current = self.current
        return any(
            holder.get(attribute) is not current or not is_held(name, holder, model)
            for (name, _, _), (holder, attribute) in zip(self.names, self.named.places, strict=True)
        )

    def refresh(self) -> bool:
        """Put the hook on the tensor that is to be watched now; whether that, or anything about it, has changed."""
        parameter, before = self.holder.get(self.attribute), self.description
        if (
            parameter is self.known
            and parameter is not None
            and parameter.requires_grad is self.hooked
            and parameter.dtype is before.dtype
            and parameter.shape == before.shape  # .data may be set to anything
            and parameter._cdata == self._inside
        ):
            return False
        swapped = self.known if self.known is not None and self.known._cdata != self._inside else None
        if self.known is not None:
            self.release()
        if parameter is None or is_lazy(parameter):  # a lazy one gets its values in the first forward
            self.description = UNKNOWN
        else:
            self.description = Description(parameter.shape, parameter.dtype)
            if parameter is swapped:
                # torch.utils.swap_tensors has exchanged what is inside, and the hooks with it; Python goes on showing the dict
                # of before, whose hooks nobody calls.
                parameter._backward_hooks = None  # type: ignore[union-attr]
            self.known, self.hooked, self._inside = parameter, parameter.requires_grad, parameter._cdata
            if parameter.requires_grad:
                self._hooks = attach(self, parameter)
        return self.hooked or self.description != before

    def release(self) -> None:
        """Take the hook off again."""
        if (hooks := self._hooks()) is not None:
            hooks.pop(self, None)
        self._hooks, self.known = _no_hooks, None
        self.hooked = False

    def forget_model(self) -> None:
        self.release()
        self.recorder = None
        self.named, self.holder = NamedParameter(self.names, []), {}


def _no_hooks() -> None:
    return None
