"""Tables whose numbers read alike: in the digits asked for, to the right, and a dash where there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pyarrow
import streamlit as st

from gradlab.text import short_number

NONE = "–"
SIZE, FACTOR = "%.2e", "%.3g"
"""The digits of a reading, and of a ratio of two."""
_EXACT = 2**53
"""Streamlit flags a whole number from here on as a fault, and every float from here on is whole."""


def table(
    rows: pyarrow.Table,
    digits: Mapping[str, str],
    *,
    titles: Mapping[str, str] | None = None,
    hints: Mapping[str, str] | None = None,
    key: str | None = None,
) -> None:
    """A table whose columns in `digits` hold numbers, each written as its format says.

    `titles` are what columns are called in place of their names, `hints` what a column's title explains.
    """
    columns: dict[str, Any] = {name: title for name, title in (titles or {}).items() if name not in digits}
    for name, format in digits.items():
        label, hint = (titles or {}).get(name), (hints or {}).get(name)
        values = rows.column(name).to_pylist()
        if any(value is not None and abs(value) >= _EXACT for value in values):
            text = pyarrow.array([_written(value, format) for value in values])
            rows = rows.set_column(rows.column_names.index(name), name, text)
            columns[name] = st.column_config.TextColumn(label, help=hint, alignment="right")
        else:
            columns[name] = st.column_config.NumberColumn(label, help=hint, format=format, alignment="right")
    st.dataframe(rows, hide_index=True, column_config=columns, placeholder=NONE, key=key)


def _written(value: float | None, format: str) -> str | None:
    """The number in this format, with an exponent as the browser writes it: `2.00e+7`, not `2.00e+07`."""
    if value is None:
        return None
    return re.sub(r"e([+-])0+(?=\d)", r"e\1", format % value) if math.isfinite(value) else short_number(value)
