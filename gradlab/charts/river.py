"""The river: a trail as a band that starts at the output end and thins or holds, layer by layer, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import altair as alt
import pandas

from gradlab.charts import marks
from gradlab.charts.base import HUES, TEMPLATES_KEPT, Figure, Rows, figure, layer_axis, named, rows_of, written
from gradlab.text import in_words, short_number

BAND_HEIGHT = 160
NUMBERS_SHOWN = 6
"""A number stands above every layer up to this many layers, beyond it above evenly spaced ones."""

_EDGES = alt.Scale(nice=False, zero=False, padding=24)
_TOOLTIP = [
    alt.Tooltip("trail", type="nominal"),
    alt.Tooltip("layer", type="nominal"),
    alt.Tooltip("step", type="quantitative", title="arrival"),
    alt.Tooltip("reading", type="quantitative", title="mean |gradient|", format=".17~g"),
    alt.Tooltip("ratio", type="quantitative", title="ratio to the one before", format=".6~g"),
    alt.Tooltip("status", type="nominal"),
]


def river(
    trails: Mapping[str, pandas.DataFrame],
    *,
    hues: Sequence[int] | None = None,
    arrived: int | None = None,
    dark: bool = False,
) -> Figure:
    """Each trail as a band whose half-width is log10(reading / floor), output end left, one scale for all.

    `trails` maps a name to a frame of `trail.backward_trail`, `hues` are their places among `HUES`. Only the first
    `arrived` steps are filled.
    """
    rows = {name: rows_of(trail) for name, trail in trails.items()}
    floor = _floor(rows.values())
    bands = _bands(rows, floor)
    steps = max(map(len, rows.values()))
    arrived = steps if arrived is None else arrived
    here = [row for row in bands if row["step"] <= arrived]
    solid, unseen = [row for row in here if not row["mark"]], [row for row in here if row["mark"]]
    colors = [HUES[hue % len(HUES)].of(dark) for hue in hues or range(len(trails))]
    # A layer that two networks of different depth reach at different steps stands where the deeper one has it.
    deepest = max(rows.values(), key=len)
    layers = list(dict.fromkeys(row["layer"] for row in (*deepest, *bands)))
    return figure(
        _template(dark, len(trails), _rule_width(steps), unseen=bool(unseen)),
        {
            "layers": layers,
            "names": list(trails),
            "bands": [band for band, _ in colors],
            "texts": [text for _, text in colors],
        },
        {
            "all": [row for row in bands if not row["mark"]],
            "solid": solid,
            "numbers": _numbered(solid, arrived, steps),
            **(
                {"names": [{"trail": name, "top": _middle(place) + 1.6} for place, name in enumerate(rows)]}
                if len(rows) > 1
                else {}
            ),
            **({"unseen": unseen} if unseen else {}),
        },
        alt_text=". ".join(described(name, trail, arrived) for name, trail in rows.items()),
        how_to_read=(
            "Read from left to right, the way the gradient travels: from the output end to the input end."
            + (f" The half-width is the number of powers of ten above {short_number(10**floor)}." if solid else "")
            + marks.explained(bands)
        ),
    )


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool, networks: int, rule: float, unseen: bool) -> dict[str, Any]:
    color, text = _colors("$bands"), _colors("$texts")
    x = layer_axis("backward step: output end → input end", dark)
    y, y2 = alt.Y("top", type="quantitative", axis=None, scale=_EDGES), alt.Y2("bottom")
    flow = {"x": x, "y": y, "y2": y2, "detail": alt.Detail("stretch", type="nominal"), "color": color}
    layers = [
        named("all").mark_area(opacity=0.12, interpolate="monotone").encode(**flow),
        named("solid").mark_area(opacity=0.45, interpolate="monotone").encode(**flow),
        named("solid").mark_rule(strokeWidth=rule).encode(x=x, y=y, y2=y2, color=color, tooltip=_TOOLTIP),
        named("numbers")
        .mark_text(dy=-10, fontSize=12, fontWeight="bold")
        .encode(x=x, y=y, color=text, text=alt.Text("number", type="nominal")),
    ]
    if networks > 1:
        name = named("names").mark_text(align="left", fontSize=13, fontWeight="bold", baseline="bottom")
        layers.append(name.encode(x=alt.value(4), y=y, color=text, text=alt.Text("trail", type="nominal")))
    if unseen:
        middle = alt.Y("middle", type="quantitative", axis=None, scale=_EDGES)
        layers.append(marks.symbols("unseen").encode(x=x, y=middle, color=text, shape=marks.SHAPE, tooltip=_TOOLTIP))
    return written(alt.layer(*layers).resolve_scale(color="independent").properties(height=BAND_HEIGHT * networks + 40))


def _colors(hues: str) -> alt.Color:
    return alt.Color("trail", type="nominal", scale=alt.Scale(domain=["$names"], range=[hues]), legend=None)


def _floor(trails: Iterable[Rows]) -> float:
    """The log10 of half a power of ten below the smallest reading, so that the thinnest place still has a width."""
    return math.log10(min((row["reading"] for trail in trails for row in trail if row["reading"] > 0), default=1.0)) - 0.5


def _bands(trails: Mapping[str, Rows], floor: float) -> list[dict[str, Any]]:
    """The rows of all trails with the edges of their bands; the widest place anywhere is 2 high."""
    widths = [
        [math.log10(row["reading"]) - floor if row["reading"] > 0 else math.nan for row in trail] for trail in trails.values()
    ]
    widest = max((width for each in widths for width in each if width > 0), default=1.0)
    bands = []
    for place, (name, trail) in enumerate(trails.items()):
        middle = _middle(place)
        for row, half, stretch in zip(trail, widths[place], marks.stretches(name, trail), strict=True):
            edges = {"top": middle + half / widest, "bottom": middle - half / widest}
            bands.append(
                {
                    **row,
                    "status": in_words(row["status"]),
                    "trail": name,
                    "middle": middle,
                    "half": half,
                    "stretch": stretch,
                    **edges,
                }
            )
    return bands


def _middle(place: int) -> float:
    """The height of a band's middle line, the first band on top."""
    return -3.4 * place


def _rule_width(steps: int) -> float:
    """Many layers: thin, or the rules fill the band."""
    return 2.5 if steps <= 40 else 1.0 if steps <= 100 else 0.5


def _numbered(solid: Rows, arrived: int, steps: int) -> Rows:
    every = math.ceil(steps / NUMBERS_SHOWN)
    shown = [row for row in solid if (row["step"] - 1) % every == 0 or (row["step"] == arrived and arrived < steps)]
    return [{**row, "number": short_number(row["reading"])} for row in shown]


def described(name: str, trail: Rows, arrived: int) -> str:
    """The trail as a sentence; of a long one, every so many layers."""
    here = [row for row in trail if row["step"] <= arrived]
    every = max(1, math.ceil(len(here) / 12))
    said = [f"{row['layer']} {row['mark'] or short_number(row['reading'])}" for row in here[::every]]
    return f"{name}, mean absolute gradient from the output end to the input end: {', '.join(said)}"
