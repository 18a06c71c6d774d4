"""`watch`: the gradients of a training run, step by step, as one table."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self, SupportsFloat

import pandas
import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradlab.capture import engine
from gradlab.capture.capture import GradientCapture
from gradlab.capture.layers import Selection
from gradlab.capture.passes import Pass
from gradlab.capture.records import OutputGradient, ParameterGradient, Status, status_of
from gradlab.errors import CaptureError, shorten
from gradlab.spec import CaptureMethod
from gradlab.statistics import GradientStatistics, combined, measure, scaled
from gradlab.tables import STATISTICS, as_read


def watch(
    model: nn.Module,
    every: int = 1,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    layers: Selection = None,
    loss_scale: SupportsFloat | Callable[[], SupportsFloat] = 1.0,
    keep_rows: int = 200_000,
) -> GradientHistory:
    """A context manager that keeps the gradients of every `every`-th training step of `model`.

        with gradlab.watch(model, every=10, optimizer=optimizer) as history:
            train(model, optimizer)
        history.table()

    A step is one call of `optimizer.step()`, with as many backward passes as it accumulates or its closure makes; without
    an optimiser it is one backward pass. A step without a backward pass of its own has no rows.

    With an optimiser the table also holds the ratio of each parameter's update to the parameter before it (L2 norms), in
    the rows of the step's last backward pass. It is NaN in those before, and where there is none: the parameter had no
    gradient or is not the optimiser's, was all zero before, or not finite before or after.

    `layers` and `loss_scale` are as in `capture_gradients`. The latest `keep_rows` rows are kept. Steps in between cost
    little more than a Python call per layer.
    """
    for name, value in (("every", every), ("keep_rows", keep_rows)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CaptureError(f"{name} = {shorten(value)} is not possible; a whole number from 1")
    return GradientHistory(model, every, optimizer, layers, loss_scale, keep_rows)


class Row(NamedTuple):
    """One reading of one backward pass of one step."""

    step: int
    backward: int
    role: str
    layer: str
    parameter: str | None
    module_type: str | None
    call: int | None
    output: str | None
    shape: tuple[int, ...] | None
    status: Status
    note: str
    statistics: GradientStatistics | None
    update_ratio: float | None = None


class GradientHistory:
    """The readings so far; `watch` says how it is used."""

    def __init__(
        self,
        model: nn.Module,
        every: int,
        optimizer: torch.optim.Optimizer | None,
        layers: Selection,
        loss_scale: SupportsFloat | Callable[[], SupportsFloat],
        keep_rows: int,
    ) -> None:
        self.step = 0
        """The number of training steps seen."""
        self._every = every
        self._optimizer = optimizer
        self._keep_rows = keep_rows
        self._backward = 0
        self._blocks: deque[list[Row]] = deque()
        self._rows = 0
        self._before: dict[nn.Parameter, Tensor] = {}
        self._inside: list[dict[str, float]] = []
        """The updates of steps that were made inside the backward pass that is running."""
        self._open = ExitStack()
        self._parallel = isinstance(model, nn.parallel.DistributedDataParallel)
        self._capture = GradientCapture(
            model,
            CaptureMethod.TENSOR_HOOKS,
            layers,
            keep_passes=1,
            keep_gradients=False,
            loss_scale=loss_scale,
            wanted=self._wanted,
            when_finished=self._take,
        )

    def __enter__(self) -> Self:
        with ExitStack() as opened:  # closes again what is open when the next fails to
            opened.enter_context(self._capture)
            if self._optimizer is not None:
                try:
                    opened.callback(self._optimizer.register_step_pre_hook(self._before_update).remove)
                    opened.callback(self._optimizer.register_step_post_hook(self._after_update).remove)
                except AttributeError as error:
                    raise CaptureError(
                        f"optimizer: a {type(self._optimizer).__name__} takes no step hooks; a torch.optim.Optimizer is needed,"
                        " of a wrapper the one inside"
                    ) from error
            self._open = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._optimizer = None
        self._before.clear()
        self._open.__exit__(kind, error, trace)

    def table(self) -> pandas.DataFrame:
        """One row per reading: step, backward pass within the step, what was read, statistics, update ratio.

        For a model in DistributedDataParallel every process must call it together; it is then the table of the whole
        batch, the same in all of them.
        """
        rows = [row for block in self._blocks for row in block]
        if self._parallel:
            parts: list[list[Row]] = [[] for _ in range(distributed.get_world_size())]
            distributed.all_gather_object(parts, rows)
            rows = _whole_batch(parts)
        columns = [name for name in Row._fields if name != "statistics"]
        missing = [None] * len(STATISTICS)
        cells = [[*(getattr(row, name) for name in columns), *(row.statistics or missing)] for row in rows]
        table = pandas.DataFrame(cells, columns=[*columns, *STATISTICS])
        table["shape"] = table["shape"].map(str, na_action="ignore")
        table["status"] = table["status"].map(str)
        table["note"] = table["note"].where(table["note"] != "")
        table.insert(len(table.columns) - 1, "update_ratio", table.pop("update_ratio"))
        return as_read(table)

    # --- while the model trains ---------------------------------------------------------------------------------------

    def _wanted(self) -> bool:
        return self.step % self._every == 0

    def _take(self, finished: Pass) -> None:
        if finished.wanted and not finished.inner:
            last = self._capture.passes[-1]
            block = [*map(self._output_row, last.outputs), *map(self._parameter_row, last.parameters)]
            self._blocks.append(block)
            self._rows += len(block)
            while self._rows > self._keep_rows and len(self._blocks) > 1:
                self._rows -= len(self._blocks.popleft())
        if finished.inner:  # part of the pass that differentiates it again
            return
        self._backward += 1
        if self._optimizer is None:
            self._end_step({})
        for ratios in self._inside:
            self._end_step(ratios)
        self._inside.clear()

    def _output_row(self, record: OutputGradient) -> Row:
        return Row(
            self.step, self._backward, "output", record.layer, None, record.module_type, record.call, record.output,
            record.shape, record.status, record.note, record.statistics,
        )  # fmt: skip

    def _parameter_row(self, record: ParameterGradient) -> Row:
        return Row(
            self.step, self._backward, record.role, record.layer, record.parameter, None, None, None,
            record.shape, record.status, record.note, record.statistics,
        )  # fmt: skip

    def _before_update(self, _: object, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._before.clear()  # of a step that an error ended
        if self._wanted():
            has_closure = len(arguments) > 1 or "closure" in keywords  # then the gradients are not there yet
            self._before = {
                parameter: parameter.detach().clone()
                for group in self._optimizer_groups()
                for parameter in group["params"]
                if (has_closure or parameter.grad is not None) and not is_lazy(parameter) and not engine.is_foreign(parameter)
            }

    def _after_update(self, *_: object) -> None:
        ratios = {}
        if self._before:
            for name, parameter in self._capture.current_parameters():
                before = self._before.get(parameter)
                if before is not None and parameter.grad is not None:
                    ratios[name] = _update_ratio(before, parameter.detach())
            self._before.clear()
        if engine.current_task() == engine.NO_TASK:
            self._end_step(ratios)
        else:  # inside the backward, which is not taken yet
            self._inside.append(ratios)

    def _end_step(self, ratios: dict[str, float]) -> None:
        if ratios and self._blocks and self._blocks[-1][0].step == self.step:
            self._blocks[-1] = [
                row._replace(update_ratio=ratios.get(row.parameter)) if row.parameter else row for row in self._blocks[-1]
            ]
        self.step += 1
        self._backward = 0
        self._capture.begin_step()

    def _optimizer_groups(self) -> list[dict[str, Any]]:
        return [] if self._optimizer is None else self._optimizer.param_groups


def _update_ratio(before: Tensor, after: Tensor) -> float:
    size, update = measure(before), measure(after - before)
    if not size.norm or size.nonfinite_count or update.nonfinite_count:
        return math.nan
    return update.norm / size.norm


def _whole_batch(parts: Iterable[list[Row]]) -> list[Row]:
    """The rows of all processes as those of one that had the whole batch.

    A process differentiates the mean over its own share of the batch, the whole is the mean over all of them: an output
    gradient is divided by the number of processes, and its entries are those of all processes together. (All shares are
    taken to be of one size, as DistributedDataParallel does.) Parameter gradients are averaged already.
    """
    gathered: dict[tuple[Any, ...], list[Row]] = {}
    parts = list(parts)
    for rows in parts:
        for row in rows:
            key = (row.step, row.backward, row.role, row.layer, row.parameter, row.call, row.output)
            gathered.setdefault(key, []).append(row)
    return [_measured(rows) if rows[0].role != "output" else _joined(rows, len(parts)) for rows in gathered.values()]


def _measured(rows: list[Row]) -> Row:
    """One that has the average: a process that does not use the parameter has none, though its `.grad` receives it."""
    return next((row for row in rows if row.statistics is not None), rows[0])


def _joined(rows: list[Row], processes: int) -> Row:
    arrived = [row for row in rows if row.statistics is not None]
    if not arrived:
        return rows[0]
    statistics = combined([scaled(row.statistics, 1 / processes) for row in arrived if row.statistics is not None])
    shapes = [row.shape for row in arrived if row.shape]
    alike = len({shape[1:] for shape in shapes}) == 1 and len(shapes) == len(arrived)
    shape = (sum(shape[0] for shape in shapes), *shapes[0][1:]) if alike else None
    return arrived[0]._replace(statistics=statistics, status=status_of(statistics), shape=shape)
