"""Readings along the layers as points on a logarithmic axis, one line or several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt
import pandas

from gradlab.charts import marks
from gradlab.charts.base import (
    CHART_HEIGHT,
    HUES,
    TEMPLATES_KEPT,
    Figure,
    Rows,
    axis,
    figure,
    layer_axis,
    legend,
    log_ends,
    named,
    rows_of,
    written,
)
from gradlab.text import in_words, short_number

DASHES = ([1, 0], [6, 4], [2, 3], [8, 3, 2, 3])
SHAPES = ("circle", "diamond", "square", "triangle-up")
"""Lines that are not networks differ in shape and dash, not in colour alone."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart: a frame with `layer`, `reading` and `mark` as in a trail, and its place among `HUES`."""

    frame: pandas.DataFrame
    hue: int = 0


def readings(trail: pandas.DataFrame, *, title: str, printed_order: bool = False, hue: int = 0, dark: bool = False) -> Figure:
    """One point per layer of a trail, the first arrival left, or in the order in which the layers are printed."""
    order = trail["layer"].to_list()
    return lines(
        {title: Line(frame=trail, hue=hue)},
        layers=order[::-1] if printed_order else order,
        x_title="printed order, input end first" if printed_order else "order of arrival, output end first",
        y_title=title,
        dark=dark,
    )


def lines(
    series: Mapping[str, Line],
    *,
    layers: Sequence[str],
    x_title: str,
    y_title: str,
    dark: bool = False,
    said: str = "mean absolute gradient from the output end to the input end",
) -> Figure:
    """Each series as a line of its own shape and dash; zero, missing and non-finite stand below the axis.

    `said` is what the readings are, for the text that stands for the picture.
    """
    places = {layer: place for place, layer in enumerate(layers)}
    trails = {name: rows_of(line.frame) for name, line in series.items()}
    rows = [
        {**row, "status": in_words(row["status"]), "trail": name, "stretch": stretch, "place": places[row["layer"]]}
        for name, trail in trails.items()
        for row, stretch in zip(trail, marks.stretches(name, trail), strict=True)
    ]
    shown, unseen = [row for row in rows if not row["mark"]], [row for row in rows if row["mark"]]
    hues = [HUES[line.hue % len(HUES)].of(dark) for line in series.values()]
    return figure(
        _template(dark, several=len(series) > 1, unseen=bool(unseen), anything=bool(shown)),
        {
            "layers": list(layers),
            "ends": log_ends([row["reading"] for row in shown]),
            "names": list(series),
            "hues": [band for band, _ in hues],
            "texts": [text for _, text in hues],
            "dashes": [DASHES[place % len(DASHES)] for place in range(len(series))],
            "shapes": [SHAPES[place % len(SHAPES)] for place in range(len(series))],
            "x_title": x_title,
            "y_title": y_title,
        },
        {"shown": shown, **({"unseen": unseen} if unseen else {})},
        alt_text=". ".join(_described(name, trail, said) for name, trail in trails.items()),
        how_to_read="Each point is one layer, on a logarithmic axis: equal steps are equal factors." + marks.explained(rows),
    )


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool, several: bool, unseen: bool, anything: bool) -> dict[str, Any]:
    x = layer_axis("$x_title", dark)
    scale = alt.Scale(type="log", nice=False, padding=12, domain=["$ends"])
    # With nothing to be shown there is no number to be read off the axis.
    numbers = {"format": "~e", "tickCount": 6} if anything else {"labels": False, "ticks": False, "grid": False}
    y = alt.Y("reading", type="quantitative", scale=scale, axis=axis("$y_title", dark, **numbers))
    names = legend(dark, symbolSize=90) if several else None
    tooltip = [
        *([alt.Tooltip("trail", type="nominal", title="which")] if several else []),
        alt.Tooltip("layer", type="nominal"),
        alt.Tooltip("reading", type="quantitative", title="$y_title", format=".17~g"),
        alt.Tooltip("status", type="nominal"),
    ]
    along = alt.Order("place", type="quantitative")
    layers = [
        named("shown")
        .mark_line(opacity=0.5)
        .encode(
            x=x, y=y, order=along, detail=alt.Detail("stretch", type="nominal"), color=_by_name(alt.Color, "$hues", None),
            strokeDash=_by_name(alt.StrokeDash, "$dashes", None),
        ),
        named("shown")
        .mark_point(filled=True, size=80, opacity=1)
        .encode(
            x=x, y=y, color=_by_name(alt.Color, "$hues", names), shape=_by_name(alt.Shape, "$shapes", names), tooltip=tooltip,
        ),
    ]  # fmt: skip
    if unseen:
        text = _by_name(alt.Color, "$texts", None)
        below = marks.symbols("unseen").encode(x=x, y=alt.value("height"), color=text, shape=marks.SHAPE, tooltip=tooltip)
        layers.append(below)
    chart = alt.layer(*layers).resolve_scale(shape="independent", color="independent")
    return written(chart.properties(height=CHART_HEIGHT))


def _by_name(channel: Any, values: str, names: alt.Legend | None) -> Any:
    return channel("trail", type="nominal", scale=alt.Scale(domain=["$names"], range=[values]), legend=names)


def _described(name: str, trail: Rows, said: str) -> str:
    every = max(1, math.ceil(len(trail) / 12))
    words = [f"{row['layer']} {row['mark'] or short_number(row['reading'])}" for row in trail[::every]]
    return f"{name}, {said}: {', '.join(words)}"
