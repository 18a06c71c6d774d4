"""Where autograd stands: which backward call is running, and on whose behalf a forward runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType

import torch

current_task: Callable[[], int] = torch._C._current_graph_task_id
"""Number of the backward call that is running on this thread, -1 outside; PyTorch counts up and reuses none."""

NO_TASK = -1


def when_backward_ends(function: Callable[[], None]) -> None:
    """Have the engine call `function` once the backward call that is running now has ended without an error."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def backward_depth() -> int:
    """How many backward calls are under way on this thread's Python stack.

    Re-entrant checkpointing runs a backward inside a backward; a new call at the same depth means that the earlier one
    is over, even where an exception kept the engine from saying so.
    """
    return sum(frame.f_code.co_name == "_engine_run_backward" for frame in _stack())


def function_contexts() -> list[object]:
    """The `ctx` of every custom autograd function whose forward or backward is running, the innermost first.

    Forward and backward of one application see the same object: it tells which forward calls a re-entrant checkpoint
    runs again.
    """
    return [frame.f_locals["ctx"] for frame in _stack() if frame.f_code.co_varnames[:1] == ("ctx",)]


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def accumulates_into(leaf: torch.Tensor) -> bool:
    """Whether the backward call that is running now will add to the leaf's `.grad` (torch.autograd.grad does not)."""
    try:
        return bool(torch._C._will_engine_execute_node(torch.autograd.graph.get_gradient_edge(leaf).node))
    except RuntimeError:  # the leaf is one that torch.autograd.grad was asked for
        return False
