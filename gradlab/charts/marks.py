"""Zero, missing and non-finite readings: what a logarithmic scale has no place for gets a mark of its own, always."""

from __future__ import annotations

from itertools import accumulate

import altair as alt

from gradlab.charts.base import Rows, named

MARK_SHAPES = {"zero": "square", "missing": "cross", "non-finite": "triangle-up"}
_WORDS = {"zero": "□ exactly zero", "missing": "+ no gradient arrived", "non-finite": "△ NaN or infinite"}

SHAPE = alt.Shape(
    "mark",
    type="nominal",
    scale=alt.Scale(domain=list(MARK_SHAPES), range=list(MARK_SHAPES.values())),
    legend=None,
)


def symbols(data: str) -> alt.Chart:
    """Hollow symbols for the readings in that data."""
    # Where there are none, Vega leaves an empty group that calls itself a picture; the chart's own text names the readings.
    return named(data).mark_point(filled=False, size=90, strokeWidth=2, aria=False)


def explained(trail: Rows) -> str:
    """What the symbols that occur mean, as a sentence; empty where none occurs."""
    occurring = {row["mark"] for row in trail}
    shown = [words for mark, words in _WORDS.items() if mark in occurring]
    return f" Where the scale has no place for a reading: {', '.join(shown)}." if shown else ""


def stretches(name: str, trail: Rows) -> list[str]:
    """Of every row, a name for its stretch: band and line break where a logarithmic scale has nothing to draw."""
    return [f"{name} {breaks}" for breaks in accumulate(int(row["mark"] != "") for row in trail)]
