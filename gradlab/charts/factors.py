"""The factor per layer: measured intervals beside what theory expects, and theory as a map over weight scale and depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import altair as alt
import pandas

from gradlab.charts.base import HUES, TEMPLATES_KEPT, Figure, Rows, axis, figure, ink, muted, named, written
from gradlab.text import short_number
from gradlab.theory import FactorMap

ROW_HEIGHT = 30
_PADDING = 20
"""Pixels between the ends of the scale and what is nearest to them: room for the signs at the left one."""
WAITS, NO_FACTOR = "?", "○"
"""The sign in a row that has not been measured yet, and in one that was and has no factor."""
MAP_HEIGHT = 350
LEVELS = (0.5, 0.8, 1.25, 2.0)
"""Factors along which the map has a line."""
WEAKENS, HOLDS, GROWS = ("#8E5AA3", "#6B3F78"), ("#F3F4F6", "#262932"), ("#F0A92E", "#A86E00")
"""The colours of a factor of a third, of 1 and of three, in the light and the dark theme."""
PICK = "pick"
"""The name of the selection: clicking a cell gives its `sigma_w` and `layers`."""


@dataclass(frozen=True, kw_only=True)
class FactorRow:
    """A network, its factor measured at many seeds, and the one expected; None where there is none.

    A network without a factor was measured and has none, unless `waits` says that it has not been measured yet.
    """

    name: str
    measured: tuple[float, float, float] | None
    """At the 10 %, 50 % and 90 % quantile of the seeds."""
    predicted: float | None
    predicted_at_most: float | None = None
    is_chosen: bool = False
    waits: bool = False


def factors(rows: Sequence[FactorRow], *, hue: int = 0, dark: bool = False) -> Figure:
    """One row for each network: the interval over the seeds with its median, a grey line where theory stands."""
    names = [f"▸ {row.name}" if row.is_chosen else row.name for row in rows]
    measured = [
        {"network": name, "low": row.measured[0], "median": row.measured[1], "high": row.measured[2]}
        for name, row in zip(names, rows, strict=True)
        if row.measured and row.measured[0] > 0
    ]
    expected = [
        {"network": name, "factor": row.predicted, "most": max(row.predicted, row.predicted_at_most or 0.0)}
        for name, row in zip(names, rows, strict=True)
        if row.predicted
    ]
    without = [
        {"network": name, "sign": WAITS if row.waits else NO_FACTOR}
        for name, row in zip(names, rows, strict=True)
        if not row.measured or row.measured[0] <= 0
    ]
    drawn: dict[str, Rows] = {"measured": measured, "expected": expected, "without": without}
    data = {"one": [{"factor": 1.0}], **{name: rows for name, rows in drawn.items() if rows}}
    return figure(
        _rows_template(dark, len(rows), bool(measured), bool(expected), bool(without)),
        {"networks": names, "hue": HUES[hue % len(HUES)].of(dark)[0]},
        data,
        alt_text="Factor per layer toward the input. " + ". ".join(map(_row_in_words, rows)),
        how_to_read=(
            "One row is one activation. The bar holds 8 of 10 seeds, the dot is their median; the grey dashes are where theory"
            " stands. Left of 1 the gradient weakens toward the input, right of 1 it grows." + _signs_in_words(without)
        ),
    )


@lru_cache(TEMPLATES_KEPT)
def _rows_template(dark: bool, rows: int, measured: bool, expected: bool, without: bool) -> dict[str, Any]:
    names = alt.Axis(title=None, labelColor=ink(dark), labelLimit=150, ticks=False, domain=False, grid=True, gridDash=[1, 3])
    y = alt.Y("network", type="nominal", sort=["$networks"], scale=alt.Scale(type="point", padding=0.7), axis=names)
    scale = alt.Scale(type="log", nice=False, padding=_PADDING)
    shown = axis("factor γ per layer toward the input", dark, format="~g", tickCount=6)

    def at(field: str) -> alt.X:
        return alt.X(field, type="quantitative", scale=scale, axis=shown)

    def number(field: str, title: str) -> alt.Tooltip:
        return alt.Tooltip(field, type="quantitative", title=title, format=".17~g")

    which = alt.Tooltip("network", type="nominal")
    layers = [named("one").mark_rule(strokeWidth=1.5, color=ink(dark), opacity=0.6).encode(x=at("factor"))]
    if expected:
        tooltip = [which, number("factor", "theory"), number("most", "theory, at most")]
        grey = muted(dark)
        layers += [
            named("expected").mark_rule(strokeWidth=3, strokeDash=[4, 3], color=grey).encode(x=at("factor"), x2="most", y=y),
            *(
                named("expected")
                .mark_point(shape="stroke", angle=90, size=480, strokeWidth=2.5, strokeDash=[5, 3], color=grey, opacity=1)
                .encode(x=at(field), y=y, tooltip=tooltip)
                for field in ("factor", "most")
            ),
        ]
    if measured:
        tooltip = [
            which,
            number("median", "median of the seeds"),
            number("low", "1 of 10 lies below"),
            number("high", "1 of 10 lies above"),
        ]
        color = alt.value("$hue")
        layers += [
            named("measured")
            .mark_rule(strokeWidth=9, opacity=0.45)
            .encode(x=at("low"), x2="high", y=y, color=color, tooltip=tooltip),
            named("measured")
            .mark_point(filled=True, size=70, opacity=1)
            .encode(x=at("median"), y=y, color=color, tooltip=tooltip),
        ]
    if without:
        sign = named("without").mark_text(fontSize=13, color=ink(dark))
        layers.append(sign.encode(x=alt.value(_PADDING / 2), y=y, text=alt.Text("sign", type="nominal")))
    return written(alt.layer(*layers).properties(height=ROW_HEIGHT * max(rows, 3) + 20))


def _signs_in_words(without: Rows) -> str:
    words = {NO_FACTOR: "no factor", WAITS: "not measured yet"}
    shown = [f"{sign} {said}" for sign, said in words.items() if any(row["sign"] == sign for row in without)]
    return f" A sign stands in a row without a bar: {', '.join(shown)}." if shown else ""


def _row_in_words(row: FactorRow) -> str:
    measured = "not measured yet" if row.waits else "no factor measured"
    if row.measured:
        low, median, high = map(short_number, row.measured)
        measured = f"measured {median}, 8 of 10 seeds from {low} to {high}"
    theory = "theory has none" if row.predicted is None else f"theory {short_number(row.predicted)}"
    if row.predicted and row.predicted_at_most and row.predicted_at_most > row.predicted:
        theory += f" to {short_number(row.predicted_at_most)}"
    return f"{row.name}: {measured}; {theory}"


# --- the map ------------------------------------------------------------------------------------------------------------


def factor_map(found: FactorMap, *, picked: tuple[float, int], name: str, dark: bool = False) -> Figure:
    """The expected factor over σ_w and number of layers: colour, lines at some factors, the critical σ_w, a picked cell.

    The σ_w and the depths of the map have to be evenly spaced.
    """
    half = (found.sigma_w[1] - found.sigma_w[0]) / 2, (found.depths[1] - found.depths[0]) / 2
    cells = pandas.DataFrame(
        [
            (sigma_w, *_around(sigma_w, half[0]), depth, *_around(depth, half[1]), factor, _log10(factor))
            for depth, row in zip(found.depths, found.factors, strict=True)
            for sigma_w, factor in zip(found.sigma_w, row, strict=True)
        ],
        columns=["sigma_w", "left", "right", "layers", "bottom", "top", "factor", "power"],
    )
    contours = _contours(found)
    labels = contours[contours["layers"] == found.depths[-1]]
    here = pandas.DataFrame({"sigma_w": [picked[0]], "layers": [picked[1]]})
    data = {"cells": cells, "contours": contours, "labels": labels, "picked": here}
    critical = found.critical if found.critical and found.critical.sigma_w <= found.sigma_w[-1] + half[0] else None
    if critical:
        data["critical"] = pandas.DataFrame(
            {
                "sigma_w": [critical.sigma_w],
                "layers": [found.depths[1]],
                "words": [f"critical {short_number(critical.sigma_w)}"],
            }
        )
    return figure(
        _map_template(dark, critical is not None),
        {
            "sigma_w_from": max(found.sigma_w[0] - half[0], 0.0),
            "sigma_w_to": found.sigma_w[-1] + half[0],
            "layers_from": found.depths[0] - half[1],
            "layers_to": found.depths[-1] + half[1],
        },
        data,
        alt_text=_map_in_words(found, picked, name),
        how_to_read=(
            "Colour is the factor γ that theory expects: purple weakens toward the input, orange grows, grey holds."
            " The thin lines follow one factor each. The cross is what you picked."
            + (" The dashed line is the critical σ_w, where γ is 1 in the limit of many layers." if critical else "")
        ),
    )


@lru_cache(TEMPLATES_KEPT)
def _map_template(dark: bool, critical: bool) -> dict[str, Any]:
    x_axis = axis("σ_w: weights have variance σ_w²/fan_in", dark, grid=False, tickCount=8)
    y_axis = axis("layers", dark, grid=False, tickCount=6)
    x_scale = alt.Scale(domain=["$sigma_w_from", "$sigma_w_to"], nice=False, zero=False)
    y_scale = alt.Scale(domain=["$layers_from", "$layers_to"], nice=False, zero=False)

    def across(field: str) -> alt.X:
        return alt.X(field, type="quantitative", scale=x_scale, axis=x_axis)

    def up(field: str) -> alt.Y:
        return alt.Y(field, type="quantitative", scale=y_scale, axis=y_axis)

    ends = math.log10(3)
    colors = [shade[dark] for shade in (WEAKENS, HOLDS, GROWS)]
    legend = alt.Legend(
        orient="top",
        title="γ",
        values=[-ends, -math.log10(1.5), 0.0, math.log10(1.5), ends],
        gradientLength=220,
        labelExpr="format(pow(10, datum.value), '.2~r')",
        labelColor=ink(dark),
        titleColor=ink(dark),
    )
    shades = alt.Scale(domain=[-ends, 0.0, ends], range=colors, clamp=True, interpolate="rgb")
    color = alt.Color("power", type="quantitative", scale=shades, legend=legend)
    tooltip = [
        alt.Tooltip("sigma_w", type="quantitative", title="σ_w", format=".3~g"),
        alt.Tooltip("layers", type="quantitative"),
        alt.Tooltip("factor", type="quantitative", title="γ, theory", format=".17~g"),
    ]
    click = alt.selection_point(name=PICK, fields=["sigma_w", "layers"], on="click", clear=False, toggle=False, empty=False)
    line = ink(dark)
    layers = [
        named("cells")
        .mark_rect(cursor="pointer", clip=True)
        .encode(x=across("left"), x2="right", y=up("bottom"), y2="top", color=color, tooltip=tooltip)
        .properties(name="cells")
        .add_params(click),
        named("contours")
        .mark_line(strokeWidth=1, color=line, opacity=0.7)
        .encode(x=across("sigma_w"), y=up("layers"), detail=alt.Detail("line", type="nominal"),
                order=alt.Order("layers", type="quantitative")),
        named("labels").mark_text(dy=-9, color=line, fontSize=11)
        .encode(x=across("sigma_w"), y=up("layers"), text=alt.Text("line", type="nominal")),
    ]  # fmt: skip
    if critical:
        rule = named("critical").mark_rule(strokeDash=[6, 4], strokeWidth=2, color=line).encode(x=across("sigma_w"))
        text = named("critical").mark_text(align="left", dx=5, dy=4, fontWeight="bold", color=line, fontSize=11)
        layers += [rule, text.encode(x=across("sigma_w"), y=up("layers"), text=alt.Text("words", type="nominal"))]
    cross = named("picked").mark_point(shape="cross", size=160, filled=True, color=line, opacity=1, stroke=colors[1])
    layers.append(cross.encode(x=across("sigma_w"), y=up("layers")))
    return written(alt.layer(*layers).properties(height=MAP_HEIGHT))


def _around(middle: float, half: float) -> tuple[float, float]:
    """The edges of a cell, a little over its neighbour: or the seams between cells show."""
    return middle - half, middle + 1.1 * half


def _log10(factor: float) -> float:
    """Far below the darkest colour where nothing passes at all."""
    return math.log10(factor) if factor > 0 else -9.0


def _contours(found: FactorMap) -> pandas.DataFrame:
    """Where along σ_w the factor passes each of `LEVELS`, at each depth: between two cells in proportion of the logarithms."""
    rows = []
    for depth, row in zip(found.depths, found.factors, strict=True):
        for level in LEVELS:
            for (left, low), (right, high) in pairwise(zip(found.sigma_w, row, strict=True)):
                if 0 < low < level <= high:
                    share = math.log(level / low) / math.log(high / low)
                    rows.append((f"{level:g}", left + share * (right - left), depth))
                    break
    return pandas.DataFrame(rows, columns=["line", "sigma_w", "layers"])


def _map_in_words(found: FactorMap, picked: tuple[float, int], name: str) -> str:
    places = range(0, len(found.sigma_w), max(1, len(found.sigma_w) // 8))
    deepest = [f"{short_number(found.sigma_w[place])}: {short_number(found.factors[-1][place])}" for place in places]
    border = f"The critical σ_w is {short_number(found.critical.sigma_w)}" if found.critical else "There is no critical σ_w"
    return (
        f"Map of the factor per layer that theory expects of plain {name} networks, over σ_w and the number of layers."
        f" {border}."
        f" At {found.depths[-1]} layers, σ_w and factor: {', '.join(deepest)}."
        f" Picked: σ_w {short_number(picked[0])}, {picked[1]} layers"
    )
