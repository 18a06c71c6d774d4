"""A claim as a line along the layers, with what was measured at a few seeds and what theory expects beside it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import altair as alt
import pandas

from gradlab.charts.base import (
    CHART_HEIGHT,
    HUES,
    TEMPLATES_KEPT,
    Figure,
    axis,
    figure,
    ink,
    layer_axis,
    legend,
    muted,
    named,
    written,
)
from gradlab.lessons.myth_trails import CLAIM, THEORY, Kind
from gradlab.text import short_number

SHAPES = ("circle", "diamond", "triangle-down", "triangle-right")
"""Hollow squares, crosses and upright triangles stand for readings without a number elsewhere."""


def against_claim(frame: pandas.DataFrame, *, reading: str, dark: bool = False) -> Figure:
    """Lines of `MythResult.frame` on a logarithmic axis, the output end left; of measured ones also the band of the seeds.

    `reading` says what is relative to the output end, such as `output gradient`.
    """
    kinds = frame.drop_duplicates("series").set_index("series")
    measured = [name for name, kind in kinds["kind"].items() if kind == Kind.MEASURED]
    others = {THEORY: muted(dark), CLAIM: ink(dark)}
    shown = [*measured, *(name for name in others if name in kinds.index)]
    hues = [HUES[kinds.loc[name, "hue"] % len(HUES)].of(dark)[0] for name in measured]
    frame = frame.assign(place=frame.groupby("series").cumcount())
    return figure(
        _template(dark, measured=bool(measured)),
        {
            "layers": list(dict.fromkeys(frame["layer"])),
            "names": shown,
            "colors": [*hues, *(others[name] for name in shown[len(measured) :])],
            "shapes": [SHAPES[place % len(SHAPES)] if name in measured else "stroke" for place, name in enumerate(shown)],
            "y_title": f"{reading}, relative to the output end",
        },
        {str(kind): frame[frame["kind"] == kind] for kind in (Kind if measured else [Kind.CLAIM])},
        alt_text=". ".join(f"{name}: {_ends(frame[frame['series'] == name])}" for name in shown),
        how_to_read=(
            "Each symbol is one layer, on a logarithmic axis: a straight line is one factor per layer. The band is the range"
            " over the seeds."
            if measured
            else "The dotted line is what the claim expects; the measurement is drawn beside it once you have answered."
        ),
    )  # fmt: skip


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool, measured: bool) -> dict[str, Any]:
    x = layer_axis("order of arrival: output end → input end", dark)
    scale = alt.Scale(type="log", nice=False, padding=14)
    shown = axis("$y_title", dark, format="~g", tickCount=6)
    y = alt.Y("reading", type="quantitative", scale=scale, axis=shown)
    along, one = alt.Order("place", type="quantitative"), alt.Detail("series", type="nominal")
    names = legend(dark, symbolSize=110, columns=1, symbolStrokeWidth=2)
    color, shape = _by_name(alt.Color, "$colors", None), _by_name(alt.Shape, "$shapes", names)
    with_legend = _by_name(alt.Color, "$colors", names)
    claim = named(str(Kind.CLAIM)).mark_line(strokeDash=[2, 4], strokeWidth=2.5)
    layers = [claim.encode(x=x, y=y, order=along, detail=one, color=color if measured else with_legend)]
    if measured:
        tooltip = [
            alt.Tooltip("series", type="nominal", title="which"),
            alt.Tooltip("layer", type="nominal"),
            alt.Tooltip("reading", type="quantitative", title="mean over the seeds", format=".17~g"),
            alt.Tooltip("low", type="quantitative", title="lowest seed", format=".17~g"),
            alt.Tooltip("high", type="quantitative", title="highest seed", format=".17~g"),
        ]
        low, high = alt.Y("low", type="quantitative", scale=scale, axis=shown), alt.Y2("high")
        data = str(Kind.MEASURED)
        layers = [
            named(data).mark_area(opacity=0.2).encode(x=x, y=low, y2=high, detail=one, color=color),
            *layers,
            named(str(Kind.THEORY)).mark_line(strokeDash=[8, 5], strokeWidth=2.5)
            .encode(x=x, y=y, order=along, detail=one, color=color),
            named(data).mark_line(strokeWidth=1.5).encode(x=x, y=y, order=along, detail=one, color=color),
            named(data).mark_point(filled=False, size=55, strokeWidth=2, opacity=1)
            .encode(x=x, y=y, color=with_legend, shape=shape, tooltip=tooltip),
        ]  # fmt: skip
    return written(
        alt.layer(*layers).resolve_scale(color="independent", shape="independent").properties(height=CHART_HEIGHT + 60)
    )


def _by_name(channel: Any, values: str, names: alt.Legend | None) -> Any:
    return channel("series", type="nominal", scale=alt.Scale(domain=["$names"], range=[values]), legend=names)


def _ends(line: pandas.DataFrame) -> str:
    first, last = line.iloc[0], line.iloc[-1]
    return f"{short_number(first['reading'])} at {first['layer']}, {short_number(last['reading'])} at {last['layer']}"
