"""What a capture returns: one frozen record per reading, one `BackwardPass` per backward call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from gradlab.statistics import GradientStatistics

if TYPE_CHECKING:
    import pandas

SQUARE_UNDERFLOWS = 1.1e-19
"""Below it the square of a number is no longer a normal float32 (2^-126): an optimiser that squares, loses it."""
SQUARE_OVERFLOWS = 1.8e19
"""Above it the square of a number is infinite in float32 (2^128)."""


class Status(StrEnum):
    """What a reading is; a missing gradient is never a zero."""

    OK = "ok"
    TINY = "tiny"
    HUGE = "huge"
    ALL_ZERO = "all_zero"
    NON_FINITE = "non_finite"
    EMPTY = "empty"
    NO_GRADIENT = "no_gradient"
    NOT_TRACKED = "not_tracked"
    NEVER_CALLED = "never_called"
    UNSUPPORTED = "unsupported"


STATUS_HELP = {
    Status.OK: "A gradient arrived, all of it finite.",
    Status.TINY: f"The largest entry is below {SQUARE_UNDERFLOWS:g}: its square underflows in float32.",
    Status.HUGE: f"The largest entry is above {SQUARE_OVERFLOWS:g}: its square overflows in float32.",
    Status.ALL_ZERO: "A gradient arrived and every entry is exactly zero.",
    Status.NON_FINITE: "At least one entry is NaN or infinite; the statistics cover the finite entries.",
    Status.EMPTY: "The tensor has no entries.",
    Status.NO_GRADIENT: "Tracked by autograd, but no gradient arrived: the loss does not depend on it.",
    Status.NOT_TRACKED: "Not tracked by autograd when the layer returned it: frozen, or run under no_grad.",
    Status.NEVER_CALLED: "The layer's forward did not run.",
    Status.UNSUPPORTED: "This method cannot measure it; the note says why.",
}


def status_of(statistics: GradientStatistics) -> Status:
    """The status of a gradient that arrived."""
    if statistics.numel == 0:
        return Status.EMPTY
    if statistics.nonfinite_count:
        return Status.NON_FINITE
    if statistics.max_abs == 0:
        return Status.ALL_ZERO
    if statistics.max_abs < SQUARE_UNDERFLOWS:
        return Status.TINY
    return Status.HUGE if statistics.max_abs > SQUARE_OVERFLOWS else Status.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputGradient:
    """The gradient that arrived at one tensor of one call of a layer.

    `call` counts the layer's forward calls from 0. `output` is where the tensor stands in what the layer returned:
    `"0"` for a lone tensor, a path such as `"1.0"` or `"aux.value"` otherwise. `forward_index` is the place among all
    outputs in order of the forward run, `backward_index` the order in which the gradients arrived; both None where
    there is none. `statistics` and `gradient` are None where no gradient was measured.
    """

    layer: str
    call: int
    output: str
    module_type: str
    shape: tuple[int, ...] | None
    dtype: str | None
    forward_index: int | None
    backward_index: int | None
    status: Status
    note: str
    statistics: GradientStatistics | None
    gradient: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterGradient:
    """The gradient of one parameter from one backward pass alone, whatever `.grad` held before or holds later.

    `layer` is the module that owns the parameter, `role` is weight, bias or other. `backward_index` is the order in
    which the parameters' gradients arrived. A parameter with several names has a record under each.
    """

    parameter: str
    layer: str
    role: str
    shape: tuple[int, ...] | None
    dtype: str | None
    backward_index: int | None
    status: Status
    note: str
    statistics: GradientStatistics | None
    gradient: Tensor | None = None


class BackwardPass:
    """The readings of one backward call; records are made when they are first asked for."""

    def __init__(
        self,
        outputs: Callable[[], Sequence[OutputGradient]],
        parameters: Callable[[], Sequence[ParameterGradient]],
    ) -> None:
        self._make_outputs = outputs
        self._make_parameters = parameters

    @cached_property
    def outputs(self) -> tuple[OutputGradient, ...]:
        """One record per layer output in forward order, then the layers that were never called."""
        return tuple(self._make_outputs())

    @cached_property
    def parameters(self) -> tuple[ParameterGradient, ...]:
        """One record per parameter name, in the order of `named_parameters()`."""
        return tuple(self._make_parameters())

    def table(self) -> pandas.DataFrame:
        """One row per layer output; the columns carry the record's field names, statistics one column each."""
        from gradlab.tables import records_table

        return records_table(self.outputs, OutputGradient)

    def parameter_table(self) -> pandas.DataFrame:
        """One row per parameter name; columns as in `table`."""
        from gradlab.tables import records_table

        return records_table(self.parameters, ParameterGradient)
