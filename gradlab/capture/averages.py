"""Gradients that DistributedDataParallel averages over processes: read from `.grad`, where the average alone is in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from gradlab.capture.engine import accumulates_into
from gradlab.statistics import measure

if TYPE_CHECKING:
    from gradlab.capture.passes import Pass
    from gradlab.capture.watched import Parameter

NOT_EXCHANGED = "the processes have not exchanged this gradient, as under no_sync()"
ADDED = (
    "DistributedDataParallel averages the sum with what .grad held before; set .grad to None or zero before a backward"
    " pass to be measured"
)
GONE = ".grad was gone before it could be read: it holds the average over the processes"


class Averages:
    """Whose gradients are averaged, and what is known of those that are on their way.

    A tensor hook sees the gradient of this process. The average is in `.grad` when the backward ends, added to what was
    there: to subtract that again would lose digits, and where it was a process's own it has been averaged too.
    """

    def __init__(self, wrappers: Iterable[DistributedDataParallel]) -> None:
        self._wrappers = list(wrappers)
        self._wrapper_of: dict[int, tuple[Tensor, DistributedDataParallel]] = {}
        for wrapper in self._wrappers:
            self._wrapper_of.update({id(tensor): (tensor, wrapper) for tensor in wrapper._module_parameters})

    def joined_by(self, wrapper: DistributedDataParallel) -> Averages:
        """These and those of another wrapper, which runs the model from outside."""
        return self if wrapper in self._wrappers else Averages([*self._wrappers, wrapper])

    def await_average(self, parameter: Parameter, running: Pass) -> bool:
        """Whether the gradient that has just arrived at a parameter is to be averaged still; it is read when it is."""
        tensor = parameter.current
        if tensor is None or id(tensor) not in self._wrapper_of or not accumulates_into(tensor):
            return False
        if parameter not in running.averaged:
            running.averaged[parameter] = _is_zero(tensor.grad)
        return True

    def read(self, finished: Pass) -> None:
        """Take in the averages, now that they are there."""
        waiting = (self._waits_for(parameter, finished) for parameter in finished.parameters)
        incomplete = {wrapper for wrapper in waiting if wrapper is not None}
        for parameter, was_zero in finished.averaged.items():
            tensor, wrapper = self._wrapped(parameter)
            if tensor is None or wrapper is None or tensor.grad is None:
                finished.withheld[parameter] = GONE
            elif finished.again or wrapper in incomplete or not wrapper.require_forward_param_sync:
                finished.withheld[parameter] = NOT_EXCHANGED
            elif not was_zero:
                finished.withheld[parameter] = ADDED
            else:
                finished.add(parameter, tensor.grad)
        finished.averaged.clear()

    def _waits_for(self, parameter: Parameter, finished: Pass) -> DistributedDataParallel | None:
        """The wrapper that exchanges nothing, as the parameter has no gradient and it was not told of such."""
        tensor, wrapper = self._wrapped(parameter)
        if tensor is None or wrapper is None or not tensor.requires_grad or parameter in finished.averaged:
            return None
        return None if wrapper.find_unused_parameters or wrapper.static_graph else wrapper

    def _wrapped(self, parameter: Parameter) -> tuple[Tensor | None, DistributedDataParallel | None]:
        """The tensor that stands for the parameter now, and the wrapper that averages its gradient."""
        return self._wrapper_of.get(id(parameter.current), (None, None))


def _is_zero(gradient: Tensor | None) -> bool:
    if gradient is None:
        return True
    held = measure(gradient.detach())
    return not held.nonfinite_count and not held.max_abs > 0


def running_wrapper() -> DistributedDataParallel | None:
    """The DistributedDataParallel whose forward is running."""
    return DistributedDataParallel._active_ddp_module
