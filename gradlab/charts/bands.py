"""Readings along the layers over many seeds: a band with its median for each network, and one seed's own line in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
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
from gradlab.text import short_number

SHAPES = ("circle", "diamond")
DASHES = ([1, 0], [6, 3])
"""Networks differ in shape and dash, not in colour alone."""
FEW = 40
"""Layers up to which symbols have room."""
_SHARES = {"zero_share": "zero", "nonfinite_share": "non-finite"}
"""The share of the seeds at which a layer has a mark -> that mark."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """One network: the trail of one seed, and the band over many of them while there is one."""

    own: pandas.DataFrame
    """As of `backward_trail`."""
    over_seeds: pandas.DataFrame | None
    """As of `Ensemble.band`, the first layer first."""
    hue: int = 0


def bands(series: Mapping[str, Band], *, y_title: str, seed: int, dark: bool = False) -> Figure:
    """Each network as a band over the seeds on a logarithmic axis, the output end left, with this seed's readings in it."""
    layers = list(max((each.own for each in series.values()), key=len)["layer"])
    place = {layer: step for step, layer in enumerate(layers)}
    own = [row | {"place": place[row["layer"]]} for name, each in series.items() for row in _own(name, each.own)]
    seeds = {name: _over(name, each.over_seeds) for name, each in series.items() if each.over_seeds is not None}
    band = [row | {"place": place[row["layer"]]} for rows in seeds.values() for row in rows]
    shown = [row for row in own if not row["mark"]]
    data: dict[str, Rows] = {"shown": shown}
    if band:
        floor = min(_positive(band, shown), default=1.0)  # where a band that reaches down to zero ends
        data["band"] = [row | {"bottom": row["low"] if row["low"] > 0 else floor} for row in band if row["median"] > 0]
    unseen = [(row["network"], row["layer"], row["mark"]) for row in own if row["mark"]]
    unseen += [(row["network"], row["layer"], mark) for share, mark in _SHARES.items() for row in band if row[share] > 0]
    left_out = [{"network": name, "layer": layer, "mark": mark} for name, layer, mark in dict.fromkeys(unseen)]
    if left_out:
        data["unseen"] = left_out
    hues = [HUES[each.hue % len(HUES)].of(dark) for each in series.values()]
    return figure(
        _template(
            dark,
            len(series) > 1,
            bool(band),
            bool(left_out),
            len(layers) <= FEW,
        ),
        {
            "layers": layers,
            "ends": log_ends(_positive(data.get("band", []), shown)),
            "names": list(series),
            "hues": [hue for hue, _ in hues],
            "texts": [text for _, text in hues],
            "shapes": [SHAPES[step % len(SHAPES)] for step in range(len(series))],
            "dashes": [DASHES[step % len(DASHES)] for step in range(len(series))],
            "y_title": y_title,
        },
        data,
        alt_text=". ".join(
            _described(name, rows_of(each.own), seeds.get(name), y_title, seed) for name, each in series.items()
        ),
        how_to_read=(
            "Output end left, on a logarithmic axis. "
            + ("The line is the median of the seeds, 8 of 10 seeds lie in the band. " if band else "")
            + f"The symbols are seed {seed}."
            + marks.explained(left_out)
            + (
                " Such a symbol stands under a layer as soon as one seed has it; where most have it there is no band."
                if left_out and band
                else ""
            )
        ),
    )


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool, several: bool, band: bool, unseen: bool, few: bool) -> dict[str, Any]:
    x = layer_axis("order of arrival: output end → input end", dark)
    scale = alt.Scale(type="log", nice=False, padding=12, domain=["$ends"])
    shown = axis("$y_title", dark, format="~e", tickCount=6)

    def at(field: str) -> alt.Y:
        return alt.Y(field, type="quantitative", scale=scale, axis=shown)

    names = legend(dark, symbolSize=90) if several else None
    along, stretch = alt.Order("place", type="quantitative"), alt.Detail("stretch", type="nominal")
    color, quiet = _by_network(alt.Color, "$hues", names), _by_network(alt.Color, "$hues", None)
    which = alt.Tooltip("network", type="nominal", title="which")
    layer = alt.Tooltip("layer", type="nominal")
    layers = []
    if band:
        numbers = {"median": "median of the seeds", "low": "1 of 10 lies below", "high": "1 of 10 lies above"}
        over = [
            which,
            layer,
            *(alt.Tooltip(name, type="quantitative", title=title, format=".17~g") for name, title in numbers.items()),
            alt.Tooltip("seeds", type="quantitative", title="seeds with a finite gradient"),
            alt.Tooltip("zero_share", type="quantitative", title="share exactly zero", format=".3~%"),
            alt.Tooltip("nonfinite_share", type="quantitative", title="share NaN or infinite", format=".3~%"),
        ]
        ends = {"x": x, "y": at("bottom"), "y2": alt.Y2("high"), "color": quiet}
        dash = _by_network(alt.StrokeDash, "$dashes", None)
        layers = [
            # Not with `order`: an area would be drawn as one piece for each of its values.
            named("band").mark_area(opacity=0.2).encode(**ends, detail=stretch),
            # Seen where a band is one layer wide; everywhere it answers to the mouse.
            named("band").mark_rule(strokeWidth=8 if few else 2, opacity=0.12).encode(**ends, tooltip=over),
            named("band").mark_line(strokeWidth=3)
            .encode(x=x, y=at("median"), order=along, detail=stretch, color=quiet, strokeDash=dash),
        ]  # fmt: skip
    own = [which, layer, alt.Tooltip("reading", type="quantitative", title="$y_title", format=".17~g")]
    shape = _by_network(alt.Shape, "$shapes", names)
    layers += [
        named("shown")
        .mark_line(strokeWidth=1, opacity=0.8)
        .encode(x=x, y=at("reading"), order=along, detail=stretch, color=quiet),
        named("shown")
        .mark_point(filled=False, size=70 if few else 16, strokeWidth=2, opacity=1)
        .encode(x=x, y=at("reading"), color=color, shape=shape, tooltip=own),
    ]
    if unseen:
        text = _by_network(alt.Color, "$texts", None)
        below = marks.symbols("unseen").encode(
            x=x, y=alt.value("height"), color=text, shape=marks.SHAPE, tooltip=[which, layer]
        )
        layers.append(below)
    chart = alt.layer(*layers).resolve_scale(shape="independent", color="independent")
    return written(chart.properties(height=CHART_HEIGHT))


def _by_network(channel: Any, values: str, names: alt.Legend | None) -> Any:
    return channel("network", type="nominal", scale=alt.Scale(domain=["$names"], range=[values]), legend=names)


def _own(name: str, trail: pandas.DataFrame) -> list[dict[str, Any]]:
    rows = rows_of(trail[["layer", "reading", "mark"]])
    return [row | {"network": name, "stretch": each} for row, each in zip(rows, marks.stretches(name, rows), strict=True)]


def _over(name: str, band: pandas.DataFrame) -> list[dict[str, Any]]:
    """From the output end on; the band breaks where more than half of the seeds have nothing that could be drawn."""
    rows = rows_of(band)[::-1]
    breaks = accumulate(int(not row["median"] > 0) for row in rows)
    return [row | {"network": name, "stretch": f"{name} {each}"} for row, each in zip(rows, breaks, strict=True)]


def _positive(band: Rows, shown: Rows) -> list[float]:
    """What has a place on a logarithmic axis."""
    numbers = [row[name] for row in band for name in ("low", "median", "high")] + [row["reading"] for row in shown]
    return [number for number in numbers if number > 0]


def _described(name: str, own: Rows, band: Rows | None, what: str, seed: int) -> str:
    every = max(1, math.ceil(len(own) / 12))
    words = [f"{row['layer']} {row['mark'] or short_number(row['reading'])}" for row in own[::every]]
    said = f"{name}, {what} from the output end to the input end, seed {seed}: {', '.join(words)}"
    if band is None:
        return said
    words = [
        f"{row['layer']} {short_number(row['median'])} ({short_number(row['low'])} to {short_number(row['high'])})"
        for row in band[::every]
    ]
    return f"{said}; median of the seeds, and where 8 of 10 lie: {', '.join(words)}"
