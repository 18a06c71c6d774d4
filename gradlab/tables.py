"""Records as data frames: one row per reading, columns named as the record's fields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy
import pandas

from gradlab.capture.records import OutputGradient, ParameterGradient
from gradlab.statistics import GradientStatistics

if TYPE_CHECKING:
    from gradlab.experiment import ExperimentResult

STATISTICS = GradientStatistics._fields
COUNTS = ("call", "forward_index", "backward_index", "nonfinite_count", "numel")


def records_table(records: Iterable[Any], kind: type[OutputGradient] | type[ParameterGradient]) -> pandas.DataFrame:
    """One row per record: its fields, then one column per statistic. What is missing is NaN or <NA>, never 0."""
    names = [f.name for f in fields(kind) if f.name not in ("statistics", "gradient")]
    records, missing = list(records), [None] * len(STATISTICS)
    columns = {name: [getattr(record, name) for record in records] for name in names}
    columns["status"] = [str(record.status) for record in records]
    statistics = list(zip(*(record.statistics or missing for record in records), strict=True)) or [()] * len(STATISTICS)
    columns |= {name: list(values) for name, values in zip(STATISTICS, statistics, strict=True)}
    # Each column once, in the type it has: pandas takes ten times as long to change the types of a table afterwards.
    typed = {name: pandas.array(values, dtype="Int64") for name, values in columns.items() if name in COUNTS}
    typed |= {name: numpy.array(columns[name], dtype=numpy.float64) for name in STATISTICS if name not in COUNTS}
    return pandas.DataFrame(columns | typed)


def tidy_table(result: ExperimentResult) -> pandas.DataFrame:
    """One row per reading, outputs then parameters, the experiment's fields first: what `to_csv` writes.

    `role` is output, weight or bias. The reading's own dtype, call and output path are left out: in the lab's networks
    the first is the experiment's, and every layer is called once and returns one tensor. Columns have the types that
    `pandas.read_csv` finds, so that the CSV reads back to this very frame.
    """
    outputs = result.output_table().assign(role="output").drop(columns=["call", "output", "dtype"])
    parameters = result.parameter_table().drop(columns=["dtype"])
    readings = pandas.concat([outputs, parameters], ignore_index=True)
    first = ["role", "layer", "parameter", "module_type", "shape", "forward_index", "backward_index", "status", "note"]
    table = readings[[*first, *STATISTICS]]
    table["shape"] = table["shape"].map(str)
    table["note"] = table["note"].where(table["note"] != "")
    for place, (name, value) in enumerate((result.spec.to_dict() | {"measured_loss": result.loss}).items()):
        table.insert(place, name, value)
    return as_read(table)


def as_read(table: pandas.DataFrame) -> pandas.DataFrame:
    """The table with the column types that reading it back from CSV finds."""
    kinds = {}
    for name, column in table.items():
        if column.isna().all():
            kinds[name] = "float64"
        elif name in COUNTS:
            kinds[name] = "float64" if column.isna().any() else "int64"
    return table.astype(kinds)


STATISTIC_HELP = {
    "mean_abs": "the mean of the absolute values of the gradient's entries.",
    "rms": "the root of the mean of the squared entries.",
    "norm": "the length of the gradient taken as one vector (L2 norm).",
    "min": "the smallest entry.",
    "max": "the largest entry.",
    "max_abs": "the largest absolute value of an entry.",
    "mean": "the mean of the entries, where signs cancel: direction, not strength.",
    "zero_fraction": "the share of entries that are exactly zero.",
    "nonfinite_count": "how many entries are NaN or infinite; the other numbers leave these out.",
    "numel": "how many entries the gradient has.",
}
