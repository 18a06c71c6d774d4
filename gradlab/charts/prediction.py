"""A prediction drawn: the layers before anything is measured, and the predicted direction over the river that was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import altair as alt

from gradlab.charts.base import TEMPLATES_KEPT, Figure, figure, halo, ink, layer_axis, named, paper, written
from gradlab.charts.river import BAND_HEIGHT, NUMBERS_SHOWN
from gradlab.text import short_number

RULES_UP_TO = 40
"""Of more layers not every one has a rule before it is measured: they would fill the picture."""
_LEAST_WIDENING = 0.4
"""How much a band that is said to grow widens at least, as a share of the widest place."""


def unmeasured(layers: Sequence[str], *, dark: bool = False) -> Figure:
    """The layers of a network in backward order, as large as its river will be, with nothing that was measured.

    `layers` are named in order of arrival: the output end first.
    """
    every = math.ceil(len(layers) / NUMBERS_SHOWN)
    rows = [{"layer": layer, "reading": "?" if place % every == 0 else ""} for place, layer in enumerate(layers)]
    ruled = rows if len(layers) <= RULES_UP_TO else [row for row in rows if row["reading"]]
    return figure(
        _unmeasured(dark),
        {"layers": list(layers)},
        {"layers": rows, "ruled": ruled},
        alt_text=f"{len(layers)} layers from the output end, {layers[0]}, to the input end, {layers[-1]}; nothing measured yet",
        how_to_read=(
            "Each question mark is a layer whose reading you have not seen yet. The gradient travels from left to right,"
            " from the output end to the input end."
        ),
    )


@lru_cache(TEMPLATES_KEPT)
def _unmeasured(dark: bool) -> dict[str, Any]:
    x = layer_axis("backward step: output end → input end", dark)
    base = named("layers")
    layers = [
        named("ruled").mark_rule(strokeDash=[2, 4], strokeWidth=1, opacity=0.35, color=ink(dark)).encode(x=x),
        base.mark_text(fontSize=22, color=ink(dark)).encode(
            x=x, y=alt.value(BAND_HEIGHT / 2), text=alt.Text("reading", type="nominal")
        ),
    ]
    return written(alt.layer(*layers).properties(height=BAND_HEIGHT + 40))


def with_prediction(
    river: Figure, *, layers: Sequence[str], direction: int, factor: float | None = None, dark: bool = False
) -> Figure:
    """The river of one network with a dashed outline of the predicted band over the layers the trend is read from.

    `layers` are those layers in order of arrival. The outline starts as wide as the band. It follows `factor` per layer
    where one was guessed, and else only says in which `direction` (-1, 0 or 1) the width goes: to nothing, not at all, or
    as far as there is room.
    """
    start = next(row for row in river.data["all"] if row["layer"] == layers[0])
    middle = start["middle"]
    width = start["top"] - middle
    last = max(len(layers) - 1, 1)
    if factor is None:
        end = {-1: 0.0, 0: width, 1: max(1.0, width + _LEAST_WIDENING)}[direction]
        widths = [width + (end - width) * place / last for place in range(len(layers))]
        said = {-1: "becomes smaller", 0: "stays about the same", 1: "grows"}[direction]
        meant = "shows the direction you predicted, not an amount"
    else:
        per_decade = width / start["half"]
        limit = max(1.0, width + _LEAST_WIDENING)
        steps = [width + per_decade * math.log10(factor) * place for place in range(len(layers))]
        widths = [min(max(step, 0.0), limit) for step in steps]
        said = f"{short_number(factor)} per layer"
        meant = f"follows your {short_number(factor)} per layer, as far as the picture goes"
    outline = [
        {"layer": layer, "top": middle + width, "bottom": middle - width, "place": place}
        for place, (layer, width) in enumerate(zip(layers, widths, strict=True))
    ]
    edges = figure(_outline(dark), {"layers": _layers_along(river)}, {}, alt_text="", how_to_read="").vega_lite["layer"]
    numbers = next(layer for layer in river.vega_lite["layer"] if layer["data"]["name"] == "numbers")
    return replace(
        river,
        # Below the band, which stays as it is, and cleared away where a number stands, which it would cross out.
        vega_lite={**river.vega_lite, "layer": [*edges, _cleared(numbers, dark), *river.vega_lite["layer"]]},
        data={**river.data, "predicted": outline},
        alt_text=f"{river.alt_text}. Predicted from {layers[0]} to {layers[-1]}: it {said}",
        how_to_read=f"{river.how_to_read} The dashed outline, over the layers the trend is read from, {meant}.",
    )


def _cleared(numbers: Mapping[str, Any], dark: bool) -> dict[str, Any]:
    """The space of these numbers in the colour of the page."""
    color = {"color": {"value": paper(dark)}}
    return {**numbers, "mark": {**numbers["mark"], **halo(dark)}, "encoding": {**numbers["encoding"], **color}}


def _layers_along(river: Figure) -> list[str]:
    return list(river.vega_lite["layer"][0]["encoding"]["x"]["sort"])


@lru_cache(TEMPLATES_KEPT)
def _outline(dark: bool) -> dict[str, Any]:
    x = layer_axis("backward step: output end → input end", dark)
    line = named("predicted").mark_line(strokeDash=[7, 5], strokeWidth=2, color=ink(dark))
    along = alt.Order("place", type="quantitative")
    # Without a scale of their own they take that of the river.
    edges = [line.encode(x=x, y=alt.Y(edge, type="quantitative", axis=None), order=along) for edge in ("top", "bottom")]
    chart = written(alt.layer(*edges))
    # Altair names data that all layers share once, above them; among the river's layers each has to name its own.
    return {"layer": [{"data": chart["data"], **edge} for edge in chart["layer"]]}
