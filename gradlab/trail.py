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


def backward_trail(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> pandas.DataFrame:
    """One row per layer, the first arrival first: `step` (from 1), `layer`, `reading`, `ratio`, `mark`, `status`.

    `reading` is the mean absolute gradient, `ratio` the reading over the one before it, both NaN where there is none.
    `mark` is "" for a reading above zero, else zero, missing or non-finite.
    """
    of_weights = quantity is Quantity.WEIGHTS
    records: list[OutputGradient | ParameterGradient] = [*(result.linear_weights if of_weights else result.linear_outputs)]
    # Where nothing arrived there is no order of arrival: such a layer keeps its place in the printed list, turned round.
    records = list(reversed(records))
    records.sort(key=lambda record: math.inf if record.backward_index is None else record.backward_index)
    values = [_reading(record) for record in records]
    before = [math.nan, *values[:-1]]
    return pandas.DataFrame(
        {
            "step": range(1, len(records) + 1),
            "layer": [".".join(record.layer.split(".")[:2]) for record in records],
            "name": [record.parameter if isinstance(record, ParameterGradient) else record.layer for record in records],
            "reading": values,
            "ratio": [now / last if now > 0 and last > 0 else math.nan for now, last in zip(values, before, strict=True)],
            "mark": [
                "" if value > 0 else MARKS.get(record.status, "missing") for value, record in zip(values, records, strict=True)
            ],
            "status": [str(record.status) for record in records],
        }
    )


def _reading(record: OutputGradient | ParameterGradient) -> float:
    statistics = record.statistics
    return math.nan if statistics is None or statistics.nonfinite_count else statistics.mean_abs
