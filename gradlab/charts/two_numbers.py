"""The number a mistake leads to and the right one, as two points on a logarithmic axis."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import altair as alt

from gradlab.charts import marks
from gradlab.charts.base import TEMPLATES_KEPT, Figure, axis, figure, halo, ink, log_ends, muted, named, written
from gradlab.lessons.demonstrations import Reading

TWO_NUMBERS_HEIGHT = 170
WAYS = ("mistaken", "right")
_ROOM = 0.15
"""The share of the axis that is left free on either side."""


def two_numbers(wrong: Reading, right: Reading, *, dark: bool = False) -> Figure:
    """Both readings with their numbers; one that is zero or missing gets a mark at the left edge.

    A negative reading is drawn at its size: which of the two is how large is what is compared.
    """
    rows = [_row(way, reading) for way, reading in zip(WAYS, (wrong, right), strict=True)]
    shown, unseen = [row for row in rows if not row["mark"]], [row for row in rows if row["mark"]]
    negative = any(reading.value is not None and reading.value < 0 for reading in (wrong, right))
    return figure(
        _template(dark),
        {"domain": log_ends([row["size"] for row in shown] or [1.0], _ROOM)},
        {"shown": shown, "unseen": unseen},
        alt_text=f"Two numbers. Mistaken: {wrong.label}: {wrong.text}. Right: {right.label}: {right.text}.",
        how_to_read="Two numbers on a logarithmic axis: equal distances are equal factors."
        + (" A negative number stands at its size." if negative else "")
        + marks.explained(rows),
    )


def _row(way: str, reading: Reading) -> dict[str, Any]:
    value = math.nan if reading.value is None else float(reading.value)
    return {
        "way": way,
        "size": abs(value),
        "mark": "missing" if reading.value is None else "" if value and math.isfinite(value) else _UNSEEN[value == 0],
        "number": reading.text,
        "label": reading.label,
        "value": repr(reading.value),
    }


_UNSEEN = {True: "zero", False: "non-finite"}


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool) -> dict[str, Any]:
    scale = alt.Scale(type="log", domain=["$domain"], nice=False)
    ticks = axis("", dark, format="~g", tickCount=4, labelOverlap=True, grid=False)
    x, y = alt.X("size", type="quantitative", scale=scale, axis=ticks), _rows(dark)
    tooltip = [
        alt.Tooltip("way", type="nominal"),
        alt.Tooltip("label", type="nominal", title="what"),
        alt.Tooltip("value", type="nominal"),
    ]
    shape = alt.Shape("way", type="nominal", scale=alt.Scale(domain=list(WAYS), range=["diamond", "circle"]), legend=None)
    edge = alt.value(14)
    text = alt.Text("number", type="nominal")
    number: dict[str, Any] = {"dy": -15, "fontSize": 15, "fontWeight": "bold"}
    layers = [
        named("shown").mark_line(strokeDash=[4, 4], strokeWidth=1.5, color=muted(dark)).encode(x=x, y=y),
        # The line leads past the numbers' places: none of them is to be crossed out.
        named("shown").mark_text(**number, **halo(dark)).encode(x=x, y=y, text=text),
        named("shown")
        .mark_point(filled=True, size=150, opacity=1, color=ink(dark))
        .encode(x=x, y=y, shape=shape, tooltip=tooltip),
        named("shown").mark_text(**number, color=ink(dark)).encode(x=x, y=y, text=text),
        marks.symbols("unseen").encode(x=edge, y=y, color=alt.value(ink(dark)), shape=marks.SHAPE, tooltip=tooltip),
        named("unseen")
        .mark_text(dx=14, fontSize=15, fontWeight="bold", align="left", color=ink(dark))
        .encode(x=edge, y=y, text=text),
    ]
    return written(alt.layer(*layers).resolve_scale(shape="independent").properties(height=TWO_NUMBERS_HEIGHT))


def _rows(dark: bool) -> alt.Y:
    """The mistaken way above, the right one below."""
    names = axis("", dark, labelFontSize=13, ticks=False, domain=False, grid=False)
    return alt.Y("way", type="ordinal", scale=alt.Scale(type="point", domain=list(WAYS), padding=0.7), axis=names)


def no_numbers_yet(*, dark: bool = False) -> Figure:
    """The place of both numbers before either is measured, as large as the picture will be."""
    rows = [{"way": way, "number": "?", "place": 0.5} for way in WAYS]
    return figure(
        _nothing_yet(dark),
        {},
        {"ways": rows},
        alt_text="Two rows, the mistaken way of reading and the right one, with a question mark each: nothing is measured yet",
        how_to_read="Each question mark stands for a number that is measured once you ask for it.",
    )


@lru_cache(TEMPLATES_KEPT)
def _nothing_yet(dark: bool) -> dict[str, Any]:
    # The scale is there to keep the rows where they will be; its words are not.
    ends = alt.Scale(domain=[0, 1])
    x = alt.X("place", type="quantitative", scale=ends, axis=axis("", dark, grid=False, ticks=False, labelOpacity=0))
    mark = named("ways").mark_text(fontSize=22, color=ink(dark))
    chart = mark.encode(x=x, y=_rows(dark), text=alt.Text("number", type="nominal"))
    return written(alt.layer(chart).properties(height=TWO_NUMBERS_HEIGHT))
