"""What each capture method found in each situation: one cell with a sign and a word, the situation at hand outlined."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import altair as alt
import pandas

from gradlab.charts.base import CHART_HEIGHT, TEMPLATES_KEPT, Figure, axis, figure, ink, muted, named, written

_LINE = 13
"""Characters in one line of a label: on a phone the cells need the width more than the labels do."""

# What is right, what is openly no number, and what is wrong without a word; the sign and the word say the same.
_FILLS = {"right": ("#DCEFDF", "#1E4627"), "open": ("#ECECF1", "#31343F"), "silent": ("#E7D4EC", "#4E2A58")}
_NOTHING = ("#FFFFFF", "#14161C")


ASKED = "? asked"
"""What stands in a cell that is the answer to a question."""


class OutcomeCell(NamedTuple):
    """One cell: `group` is right, open (no number, and that is said), silent (nothing says so), or "" before it is tried."""

    situation: str
    method: str
    text: str
    group: str
    words: str
    """What is read on hovering."""


def outcomes(cells: Sequence[OutcomeCell], *, at_hand: str, dark: bool = False) -> Figure:
    """A row for each situation and a column for each method, in the order of the cells; `at_hand` is outlined."""
    frame = pandas.DataFrame(cells, columns=OutcomeCell._fields)
    frame["row"] = frame["situation"].map(_wrapped)
    frame["column"] = frame["method"].map(_wrapped)
    said = [
        f"{situation}: {', '.join(f'{cell.method} {cell.text}' for cell in cells if cell.situation == situation)}"
        for situation in frame["situation"].unique()
    ]
    return figure(
        _template(dark),
        {"rows": list(frame["row"].unique()), "columns": list(frame["column"].unique())},
        {"cells": frame, "at_hand": frame[frame["situation"] == at_hand]},
        alt_text=f"What each capture method gives. {'. '.join(said)}",
        how_to_read="A row is a situation, a column a method. The outlined row is the one in words here, ? is not measured"
        + (", ? asked is the answer to a question below." if any(cell.text == ASKED for cell in cells) else "."),
    )


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool) -> dict[str, Any]:
    shown = {"labelExpr": "split(datum.label, '|')", "domain": False, "ticks": False, "labelLimit": 0, "labelFontSize": 12}
    # A label of two lines hangs from its first one: half a line up, and it is centred; a whole line up, and it stands.
    two_lines = "indexof(datum.label, '|') > 0"
    half_up = {"condition": {"test": two_lines, "value": -7}, "value": 0}
    up = {"condition": {"test": two_lines, "value": 16}, "value": 4}
    x = alt.X(
        "column",
        type="nominal",
        sort=["$columns"],
        scale=alt.Scale(paddingInner=0.04),
        axis=axis("", dark, orient="top", labelAngle=0, labelPadding=up, **shown),
    )
    y = alt.Y(
        "row",
        type="nominal",
        sort=["$rows"],
        scale=alt.Scale(paddingInner=0.1),
        axis=axis("", dark, labelOffset=half_up, **shown),
    )
    text = alt.Text("text", type="nominal")
    tooltip = [alt.Tooltip(name, type="nominal") for name in ("situation", "method", "text", "words")]
    fills = [light_dark[dark] for light_dark in (*_FILLS.values(), _NOTHING)]
    fill = alt.Fill("group", type="nominal", scale=alt.Scale(domain=[*_FILLS, ""], range=fills), legend=None)
    chart = alt.layer(
        named("cells").mark_rect(stroke=muted(dark), strokeWidth=0.5).encode(x=x, y=y, fill=fill, tooltip=tooltip),
        named("at_hand").mark_rect(filled=False, stroke=ink(dark), strokeWidth=2.5).encode(x=x, y=y),
        named("cells").mark_text(fontSize=12, color=ink(dark)).encode(x=x, y=y, text=text, tooltip=tooltip),
    )
    return written(chart.properties(height=CHART_HEIGHT, view=alt.ViewBackground(stroke=None)))


def _wrapped(label: str) -> str:
    return "|".join(textwrap.wrap(label, _LINE))
