"""The readings as a printed list: first layer first, or turned round, with marks on the lines that are spoken of."""

from __future__ import annotations

from collections.abc import Collection

import pandas

from gradlab.text import short_number
from gradlab.ui.stepper import MARK_WORDS

LINES_SHOWN = 14
START, FOLLOWED = "▶", "│"


def printed_list(
    trail: pandas.DataFrame, *, turned: bool = False, start: str = "", followed: Collection[str] = (), ratios: bool = False
) -> str:
    """One line per layer with its reading; the list is printed first layer first unless it is turned round.

    `start` is the layer to start from and `followed` are the layers of the trend, each with its mark; with `ratios` each
    reading stands over the one that arrived before. Of a long list the middle is left out, and how much of it is said.
    """
    rows = trail.to_dict(orient="records")
    width = max(len(row["name"]) for row in rows)
    lines = []
    for row in rows:
        reading = MARK_WORDS.get(row["mark"]) or short_number(row["reading"])
        ratio = f"  × {short_number(row['ratio'])}" if ratios and row["ratio"] > 0 else ""
        mark = START if row["layer"] == start else FOLLOWED if row["layer"] in followed else " "
        lines.append(f"{mark} {row['name']:<{width}}  {reading:>8}{ratio}".rstrip())
    lines = lines if turned else lines[::-1]
    if len(lines) > LINES_SHOWN:
        half = LINES_SHOWN // 2
        lines = [*lines[:half], f"  … {len(lines) - 2 * half} more …", *lines[-half:]]
    return "\n".join(lines)
