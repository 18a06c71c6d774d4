"""A result as CSV, and back."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable
from typing import IO

import pandas

from gradlab.experiment import ExperimentResult
from gradlab.tables import as_read, tidy_table

NAMES = ("layer", "parameter", "output", "module_type")
FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""Text that a spreadsheet would run as a formula, guarded before or not."""


def to_csv(result: ExperimentResult | pandas.DataFrame) -> str:
    """One tidy CSV table of a result, a row per reading, in full float precision (a data frame is written as it is).

    Text that a spreadsheet would take for a formula is preceded by an apostrophe; `read_csv` takes it off again.
    """
    table = result if isinstance(result, pandas.DataFrame) else tidy_table(result)
    guarded = _each_text(table, _guarded)
    text = str(guarded.to_csv(index=False, lineterminator="\n"))
    if "\r" in text:  # not every Python quotes a lone one, and unquoted it ends the line
        text = str(guarded.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC))
    return text


def read_csv(source: str | os.PathLike[str] | IO[str]) -> pandas.DataFrame:
    """The data frame that `to_csv` wrote, to the last bit. `source` is a path or an open file."""
    # Layers may be named 0, 1, 2, the model itself "", a class True or Inf: names are text all the same.
    table = pandas.read_csv(source, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(NAMES, "str"))
    if "layer" in table:
        table["layer"] = table["layer"].fillna("")
    return as_read(_each_text(table, _unguarded))


def _each_text(table: pandas.DataFrame, change: Callable[[object], object]) -> pandas.DataFrame:
    """The table with every piece of text changed, headers too."""
    changed = table.rename(columns=change)
    for name, column in changed.items():
        if not pandas.api.types.is_numeric_dtype(column):
            changed[name] = column.map(change, na_action="ignore")
    return changed


def _guarded(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def _unguarded(value: object) -> object:
    return value[1:] if isinstance(value, str) and value.startswith("'") and FORMULA.match(value[1:]) else value
