"""Where autograd stands: which backward call is running, and on whose behalf a forward runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import FrameType

import torch

current_task: Callable[[], int] = torch._C._current_graph_task_id
"""Number of the backward call that is running on this thread, -1 outside; PyTorch counts up and reuses none."""

NO_TASK = -1


_queue_callback: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback


def when_backward_ends(function: Callable[[], None]) -> None:
    """Have the engine call `function` once the backward call that is running now has ended without an error."""
    _queue_callback(function)


Call = object
"""What stands for one backward call, or NO_FRAME."""

NO_FRAME: Call = None
"""A backward call that a thread of the engine's own runs, as on a GPU, with none of the caller's frames on its stack."""


def backward_calls() -> list[Call]:
    """The backward calls that are under way on this thread's Python stack, the innermost first.

    Re-entrant checkpointing runs a backward inside a backward; and a call that is not here any more is over, even where
    an exception kept the engine from saying so. After them NO_FRAME, as such a call may be around them; none at all
    where nothing is under way, or such a call alone.
    """
    calls: list[Call] = []
    frame = sys._getframe(1)  # written out: every pass asks
    while frame is not None:
        if frame.f_code.co_name == "_engine_run_backward":
            calls.append(_mark(frame))
        frame = frame.f_back  # type: ignore[assignment]
    return [*calls, NO_FRAME] if calls else []


def _mark(frame: FrameType) -> Call:
    # Left in the frame itself: to keep the frame would keep its tensors alive, and its id may be that of a later frame.
    return frame.f_locals.setdefault("__gradlab_call__", object())


def function_contexts() -> list[object]:
    """The `ctx` of every custom autograd function whose forward or backward is running, the innermost first.

    Forward and backward of one application see the same object: it tells which forward calls a re-entrant checkpoint
    runs again.
    """
    # Once each: one function's forward may call another's with its own context.
    return list(dict.fromkeys(context for frame in _stack() if (context := _context(frame)) is not None))


def replayed_context() -> tuple[object | None, list[object]]:
    """The `ctx` of the custom function whose backward runs a forward again, and those of functions whose forward is inside.

    None where it is a non-re-entrant checkpoint that runs its forward again, to find a tensor it did not save.
    """
    inside: list[object] = []
    for frame in _stack():
        if frame.f_code.co_name == "unpack_hook" and frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            break
        context = _context(frame)
        if context is not None and frame.f_code.co_name == "backward":
            return context, inside
        if context is not None and context not in inside:
            inside.append(context)
    return None, []


def function_around() -> tuple[torch.autograd.function.BackwardCFunction, Call] | None:
    """The outermost custom function in whose backward the backward call now running was made, and the call around it."""
    found, context, inside = None, None, False
    for frame in _stack():
        if frame.f_code.co_name == "_engine_run_backward":
            if context is not None:
                found, context = (context, _mark(frame)), None
            inside = True
        elif inside and frame.f_code.co_name == "backward":
            context = _context(frame) or context
    return found


def _context(frame: FrameType) -> torch.autograd.function.BackwardCFunction | None:
    code = frame.f_code
    # Most name it ctx, but nobody has to; a module's forward, which is no such function's, is not worth a look.
    if code.co_name not in ("forward", "backward") or not code.co_argcount:
        return None
    if frame.f_back is not None and frame.f_back.f_code.co_name == "_call_impl":
        return None
    context = frame.f_locals.get(code.co_varnames[0])
    return context if isinstance(context, torch.autograd.function.BackwardCFunction) else None


in_transform: Callable[[], object | None] = torch._C._functorch.peek_interpreter_stack
"""Anything but None inside a torch.func transform, where a tensor stands for many and takes no hook."""

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_is_batched = torch._C._functorch.is_legacy_batchedtensor


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor belongs to a transform, such as the batched gradients of `is_grads_batched=True`."""
    return bool(_is_wrapped(tensor) or _is_batched(tensor))


def has_tangent(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether one of them is differentiated forward, too (torch.autograd.forward_ad)."""
    forward = torch.autograd.forward_ad
    return forward._current_level >= 0 and any(forward.unpack_dual(tensor).tangent is not None for tensor in tensors)


def is_foreign(tensor: torch.Tensor) -> bool:
    """Whether the tensor is of a class of its own that stands for other values than PyTorch sees in it, if for any."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not tensor.is_nested


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor without its class, where that only adds to what PyTorch's functions do, or forbids them."""
    if type(tensor) is torch.Tensor or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether the tensor is spread over processes, so that to look at it is to talk to them."""
    return isinstance(tensor, getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ()))


FULLGRAPH = (
    "gradlab is capturing the model's gradients, with hooks that run outside compiled code: no fullgraph=True in the with"
    " block; without it, or with the model that is not compiled, the capture works"
)


def is_from_compiler(error: BaseException) -> bool:
    """Whether torch.compile refused to compile something."""
    return type(error).__module__ == "torch._dynamo.exc"


def untraced_call() -> Callable[..., None] | None:
    """A function that calls its first argument with the others, and that torch.compile calls instead of tracing into it.

    None where the compiler is not loaded, as loading it takes longer than most captures; and while another thread is
    loading it, when it lacks its parts. Made once: to make it takes longer than to watch a small network.
    """
    disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
    return None if disable is None else _disabled(disable)


@cache
def _disabled(disable: Callable[..., Callable[..., None]]) -> Callable[..., None]:
    return disable(_call, reason=FULLGRAPH)


def _call(hook: Callable[..., None], *arguments: object) -> None:
    hook(*arguments)


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def asked_by_grad() -> bool | None:
    """Whether torch.autograd.grad, not backward, started the call that is running now; None where the stack does not tell.

    On a GPU hooks run on a thread of the engine's own, with none of the caller's frames on it.
    """
    for frame in _stack():
        if frame.f_code.co_name == "_engine_run_backward" and frame.f_back is not None:
            return frame.f_back.f_code.co_name == "grad"
    return None


def accumulates_into(leaf: torch.Tensor) -> bool:
    """Whether the backward call that is running now will add to the leaf's `.grad` (torch.autograd.grad does not)."""
    try:
        return bool(torch._C._will_engine_execute_node(torch.autograd.graph.get_gradient_edge(leaf).node))
    except (RuntimeError, AttributeError):  # the leaf is one that torch.autograd.grad was asked for, or of a transform
        return False
