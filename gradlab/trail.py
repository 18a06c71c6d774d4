"""A result read the way the gradient travelled: from the output end to the input end, in order of arrival."""

from __future__ import annotations

import math
from enum import StrEnum

import pandas

from gradlab.capture import OutputGradient, ParameterGradient, Status
from gradlab.experiment import ExperimentResult


class Quantity(StrEnum):
    """Which of the two gradients of a layer is read."""

    WEIGHTS = "weights"
    OUTPUTS = "outputs"

    @property
    def singular(self) -> str:
        """One of them in words: `weight gradient`."""
        return f"{self.rstrip('s')} gradient"


QUANTITY_HELP = {
    Quantity.WEIGHTS: "How the loss changes with each weight of the layer: what the optimiser uses.",
    Quantity.OUTPUTS: "How the loss changes with what the layer's linear map put out: what flows backward.",
}

MARKS = {Status.ALL_ZERO: "zero", Status.NON_FINITE: "non-finite"}
"""Readings that a logarithmic axis cannot show; every other status without statistics is "missing"."""


def layer_of(name: str) -> str:
    """The layer a module or parameter belongs to: `layers.2` for `layers.2.0` and `layers.2.0.weight`."""
    return ".".join(name.split(".")[:2])


def in_order_of_arrival(
    result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS
) -> list[OutputGradient | ParameterGradient]:
    """The record of every layer, the first arrival first.

    Where nothing arrived there is no such order: such a layer keeps its place in the printed list, turned round.
    """
    of_weights = quantity is Quantity.WEIGHTS
    records: list[OutputGradient | ParameterGradient] = [*(result.linear_weights if of_weights else result.linear_outputs)]
    records.reverse()
    records.sort(key=lambda record: math.inf if record.backward_index is None else record.backward_index)
    return records


def reading_and_mark(record: OutputGradient | ParameterGradient) -> tuple[float, str]:
    """The mean absolute gradient, NaN where there is none, and "" for one above zero, else zero, missing or non-finite."""
    statistics = record.statistics
    value = math.nan if statistics is None or statistics.nonfinite_count else statistics.mean_abs
    return value, "" if value > 0 else MARKS.get(record.status, "missing")


def backward_trail(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> pandas.DataFrame:
    """One row per layer, the first arrival first: `step` (from 1), `layer`, `reading`, `ratio`, `mark`, `status`.

    `ratio` is the reading over the one before it, NaN where there is none; `reading` and `mark` are those of
    `reading_and_mark`.
    """
    records = in_order_of_arrival(result, quantity)
    values, marks = zip(*map(reading_and_mark, records), strict=True)
    before = [math.nan, *values[:-1]]
    return pandas.DataFrame(
        {
            "step": range(1, len(records) + 1),
            "layer": [layer_of(record.layer) for record in records],
            "name": [record.parameter if isinstance(record, ParameterGradient) else record.layer for record in records],
            "reading": values,
            "ratio": [now / last if now > 0 and last > 0 else math.nan for now, last in zip(values, before, strict=True)],
            "mark": marks,
            "status": [str(record.status) for record in records],
        }
    )
