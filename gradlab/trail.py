"""A result read the way the gradient travelled: from the output end to the input end, in order of arrival."""

from __future__ import annotations

from enum import StrEnum

import pandas

from gradlab.capture import Status
from gradlab.experiment import ExperimentResult


class Quantity(StrEnum):
    """Which of the two gradients of a layer is read."""

    WEIGHTS = "weights"
    OUTPUTS = "outputs"


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
    if quantity is Quantity.WEIGHTS:
        table = result.weight_table()
        table = table[table["shape"].map(len) == 2].rename(columns={"parameter": "name"})
    else:
        table = result.output_table()
        table = table[table["module_type"] == "Linear"].rename(columns={"layer": "name"})
    # Where nothing arrived there is no order of arrival: such a layer keeps its place in the printed list, turned round.
    table = table.iloc[::-1].sort_values("backward_index", kind="stable", na_position="last")
    reading = table["mean_abs"].where(table["nonfinite_count"].fillna(0) == 0).reset_index(drop=True)
    status = table["status"].reset_index(drop=True)
    present = reading > 0
    return pandas.DataFrame(
        {
            "step": range(1, len(table) + 1),
            "layer": [".".join(name.split(".")[:2]) for name in table["name"]],
            "name": table["name"].to_list(),
            "reading": reading,
            "ratio": (reading / reading.shift()).where(present & present.shift(fill_value=False)),
            "mark": [("" if ok else MARKS.get(Status(s), "missing")) for ok, s in zip(present, status, strict=True)],
            "status": status,
        }
    )
