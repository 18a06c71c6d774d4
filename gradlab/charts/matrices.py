"""A matrix of gradients as cells: signs in two colours and a character, strengths in one, the numbers where they fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import altair as alt
import pandas

from gradlab.charts.base import TEMPLATES_KEPT, Figure, axis, figure, named, written
from gradlab.text import short_number

MATRIX_HEIGHT = 240
NUMBERS_UP_TO = 6
"""Rows and columns up to which a cell has room for its number; beyond it, a cell has room for its sign."""
SMALLEST_POWER = -307
"""The smallest power of ten that is a number as precise as any other."""

# Purple and green (after ColorBrewer's PRGn), told apart by everyone; neither is the colour of a network.
_NEGATIVE, _POSITIVE = ("#762A83", "#C9A2D6"), ("#0F5E2C", "#8FD39B")
_NOTHING = ("#F1F1F4", "#262933")
_STRENGTH = ("#3D3F49", "#D5D7DE")
Rows = Sequence[Sequence[float]]
Rgb = tuple[float, ...]


class Cells(StrEnum):
    """What the cells hold."""

    SIGNED = "signed"
    ABSOLUTE = "absolute"
    MEAN = "mean"
    """One cell, with its number in full: no unit, and nothing to count along its sides."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What numbers in cells are multiples of, so that they are short, and the largest entry, which has the full colour."""

    power: int
    largest: float

    @property
    def words(self) -> str:
        """The unit as it is read: `1e-4`; "" where it is 1."""
        return f"1e{self.power}" if self.power else ""

    def short(self, value: float) -> str:
        """The value in this unit in few characters: `2.02`, `3e-5`; NaN and infinity by name."""
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        if value == 0:
            return "0"
        share = value / 10.0**self.power
        text = f"{share:.2f}" if abs(share) >= 0.005 else f"{share:.0e}".replace("e-0", "e-")
        return text.replace("-", "−", 1) if share < 0 else text


def unit_of(values: Rows) -> Unit:
    """The power of ten of the largest finite entry."""
    largest = max((abs(value) for row in values for value in row if math.isfinite(value)), default=0.0)
    return Unit(power=max(math.floor(math.log10(largest)), SMALLEST_POWER) if largest else 0, largest=largest)


def cells(
    values: Rows,
    *,
    unit: Unit,
    kind: Cells,
    name: str,
    what: str,
    dark: bool = False,
) -> Figure:
    """One cell for each entry: its colour is its share of the unit's largest entry, its text the number or the sign.

    `name` is the layer the matrix belongs to, `what` what its entries are: a row for each output, a column for each input.
    """
    numbers = max(len(values), len(values[0])) <= NUMBERS_UP_TO
    rows = [
        {
            "row": row,
            "column": column,
            "share": value / unit.largest if unit.largest and math.isfinite(value) else 0.0,
            "text": _text(value, unit, kind, numbers),
            "value": repr(value),
        }
        for row, line in enumerate(values)
        for column, value in enumerate(line)
    ]
    frame = pandas.DataFrame(rows)
    frame["ink"] = [ink_on(_colour(share, kind, dark)) for share in frame["share"]]
    of_unit = f", in {unit.words}" if unit.words and numbers and kind is not Cells.MEAN else ""
    return figure(
        _template(dark, kind, numbers),
        {
            "rows": list(range(len(values))),
            "columns": list(range(len(values[0]))),
            "column_title": f"input{of_unit}",
        },
        {"cells": frame},
        alt_text=f"{what} of {name}, {len(values)} × {len(values[0])}{of_unit}: {_described(frame, len(values[0]))}",
        how_to_read=_how_to_read(kind, numbers),
    )


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool, kind: Cells, numbers: bool) -> dict[str, Any]:
    side = {"ticks": False, "domain": False, "labelOverlap": True, "labels": kind is not Cells.MEAN}
    along, down = ("all entries", "") if kind is Cells.MEAN else ("$column_title", "output")
    columns, rows = alt.Scale(domain=["$columns"], padding=0.04), alt.Scale(domain=["$rows"], padding=0.04)
    x = alt.X("column", type="ordinal", scale=columns, axis=axis(along, dark, labelAngle=0, **side))
    y = alt.Y("row", type="ordinal", scale=rows, axis=axis(down, dark, **side))
    ends, colours = _palette(kind, dark)
    scale = alt.Scale(domain=list(ends), range=list(colours), interpolate="rgb", clamp=True)
    colour = alt.Color("share", type="quantitative", scale=scale, legend=None)
    place = [alt.Tooltip("row", type="ordinal", title="output"), alt.Tooltip("column", type="ordinal", title="input")]
    tooltip = [*([] if kind is Cells.MEAN else place), alt.Tooltip("value", type="nominal", title=str(kind))]
    text = alt.Color("ink", type="nominal", scale=None)
    size = 16 if kind is Cells.MEAN else 12
    layers = [
        named("cells").mark_rect().encode(x=x, y=y, color=colour, tooltip=tooltip),
        named("cells")
        .mark_text(fontSize=size)
        .encode(x=x, y=y, text=alt.Text("text", type="nominal"), color=text, tooltip=tooltip),
    ]
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return written(chart.properties(height=MATRIX_HEIGHT))


def _palette(kind: Cells, dark: bool) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Shares and the colours that stand for them; between them the colour runs straight, in RGB."""
    if kind is Cells.SIGNED:
        return (-1.0, 0.0, 1.0), (_NEGATIVE[dark], _NOTHING[dark], _POSITIVE[dark])
    return (0.0, 1.0), (_NOTHING[dark], _STRENGTH[dark])


def _colour(share: float, kind: Cells, dark: bool) -> Rgb:
    _, colours = _palette(kind, dark)
    start, part = _rgb(_NOTHING[dark]), min(abs(share), 1.0)
    end = _rgb(colours[0] if share < 0 else colours[-1])
    return tuple(a + (b - a) * part for a, b in zip(start, end, strict=True))


def _rgb(colour: str) -> Rgb:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def ink_on(colour: Rgb) -> str:
    """Black or white, whichever is read better on this colour: the contrast is at least 4.58 : 1 on any (WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else "#FFFFFF"


def _text(value: float, unit: Unit, kind: Cells, numbers: bool) -> str:
    if kind is Cells.MEAN:
        return short_number(value)
    if numbers:
        sign = "+" if kind is Cells.SIGNED and value > 0 else ""
        return sign + unit.short(value)
    if not math.isfinite(value):
        return "△"
    if value == 0:
        return "0"
    return "" if kind is Cells.ABSOLUTE else "+" if value > 0 else "−"


def _how_to_read(kind: Cells, numbers: bool) -> str:
    if kind is Cells.SIGNED:
        words = "+ and green: the loss rises as this weight grows; − and purple: it falls. The fuller the colour, the more."
    else:
        words = "The more a cell stands out from the page, the larger its entry."
    return words + ("" if numbers else " 0 is exactly zero, △ NaN or infinite.")


def _described(frame: pandas.DataFrame, columns: int) -> str:
    """The texts of the cells row by row, of a large matrix the first few."""
    texts = [text or "above 0" for text in frame["text"]]
    rows = [texts[start : start + columns] for start in range(0, len(texts), columns)]
    more = " and so on" if max(len(rows), columns) > NUMBERS_UP_TO else ""
    return "; ".join(", ".join(row[:NUMBERS_UP_TO]) for row in rows[:NUMBERS_UP_TO]) + more
