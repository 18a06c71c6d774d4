"""A result as CSV, and back."""

from __future__ import annotations

import os
from typing import IO

import pandas

from gradlab.experiment import ExperimentResult
from gradlab.tables import tidy_table

NAMES = ("layer", "parameter", "output")
FORMULA_STARTS = r"^(?='*[=+\-@\t\r])"
"""Text that a spreadsheet would run as a formula, guarded before or not."""


def to_csv(result: ExperimentResult | pandas.DataFrame) -> str:
    """One tidy CSV table of a result, a row per reading, in full float precision (a data frame is written as it is).

    Text that a spreadsheet would take for a formula is preceded by an apostrophe; `read_csv` takes it off again.
    """
    table = result if isinstance(result, pandas.DataFrame) else tidy_table(result)
    guarded = table.copy()
    for name in _text_columns(guarded):
        guarded[name] = guarded[name].str.replace(FORMULA_STARTS, "'", regex=True)
    return str(guarded.to_csv(index=False, lineterminator="\n"))


def read_csv(source: str | os.PathLike[str] | IO[str]) -> pandas.DataFrame:
    """The data frame that `to_csv` wrote, to the last bit. `source` is a path or an open file."""
    # Layers may be named 0, 1, 2 and the model itself "": names are text all the same.
    table = pandas.read_csv(source, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(NAMES, "str"))
    if "layer" in table:
        table["layer"] = table["layer"].fillna("")
    for name in _text_columns(table):
        table[name] = table[name].str.replace(f"^'(?={FORMULA_STARTS[1:]})", "", regex=True)
    return table


def _text_columns(table: pandas.DataFrame) -> list[str]:
    return [name for name, column in table.items() if pandas.api.types.is_string_dtype(column)]
