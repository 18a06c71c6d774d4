"""The river: a trail as a band that starts at the output end and thins or holds, layer by layer, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import altair as alt
import pandas

from gradlab.charts import marks
from gradlab.charts.base import HUES, TEMPLATES_KEPT, Figure, figure, layer_axis, named, written
from gradlab.text import short_number

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
    floor = _floor(trails.values())
    bands = _bands(trails, floor)
    steps = int(bands["step"].max())
    arrived = steps if arrived is None else arrived
    drawn = bands["mark"] == ""
    here = bands[bands["step"] <= arrived]
    solid, unseen = here[here["mark"] == ""], here[here["mark"] != ""]
    colors = [HUES[hue % len(HUES)].of(dark) for hue in hues or range(len(trails))]
    # A layer that two networks of different depth reach at different steps stands where the deeper one has it.
    deepest = max(trails.values(), key=len)
    layers = list(dict.fromkeys([*deepest["layer"], *bands["layer"]]))
    return figure(
        _template(dark, len(trails), _rule_width(steps), unseen=len(unseen) > 0),
        {
            "layers": layers,
            "names": list(trails),
            "bands": [band for band, _ in colors],
            "texts": [text for _, text in colors],
        },
        {
            "all": bands[drawn],
            "solid": solid,
            "numbers": _numbered(solid, arrived, steps),
            **({"names": bands.drop_duplicates("trail").assign(top=_above)} if len(trails) > 1 else {}),
            **({"unseen": unseen} if len(unseen) else {}),
        },
        alt_text=". ".join(described(name, trail, arrived) for name, trail in trails.items()),
        how_to_read=(
            "Read from left to right, the way the gradient travels: from the output end to the input end."
            + (f" The half-width is the number of powers of ten above {short_number(10**floor)}." if len(solid) else "")
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


def _floor(trails: Iterable[pandas.DataFrame]) -> float:
    """The log10 of half a power of ten below the smallest reading, so that the thinnest place still has a width."""
    return math.log10(min((r for trail in trails for r in trail["reading"] if r > 0), default=1.0)) - 0.5


def _bands(trails: Mapping[str, pandas.DataFrame], floor: float) -> pandas.DataFrame:
    """All trails in one frame with the edges of their bands; the widest place anywhere is 2 high."""
    frames = []
    for place, (name, trail) in enumerate(trails.items()):
        half = trail["reading"].map(lambda r: math.log10(r) - floor if r > 0 else math.nan)
        stretch = f"{name} " + marks.stretches(trail).astype(str)
        frames.append(trail.assign(trail=name, middle=-3.4 * place, half=half, stretch=stretch))
    bands = pandas.concat(frames, ignore_index=True)
    half = bands["half"] / (bands["half"].max() or 1.0)
    return bands.assign(top=bands["middle"] + half, bottom=bands["middle"] - half)


def _rule_width(steps: int) -> float:
    """Many layers: thin, or the rules fill the band."""
    return 2.5 if steps <= 40 else 1.0 if steps <= 100 else 0.5


def _above(names: pandas.DataFrame) -> pandas.Series:
    return names["middle"] + 1.6


def _numbered(solid: pandas.DataFrame, arrived: int, steps: int) -> pandas.DataFrame:
    every = math.ceil(steps / NUMBERS_SHOWN)
    latest = (solid["step"] == arrived) & (arrived < steps)
    shown = solid[((solid["step"] - 1) % every == 0) | latest]
    return shown.assign(number=[short_number(reading) for reading in shown["reading"]])


def described(name: str, trail: pandas.DataFrame, arrived: int) -> str:
    """The trail as a sentence; of a long one, every so many layers."""
    here = trail[trail["step"] <= arrived]
    every = max(1, math.ceil(len(here) / 12))
    said = [f"{row.layer} {row.mark or short_number(row.reading)}" for row in here.iloc[::every].itertuples()]
    return f"{name}, mean absolute gradient from the output end to the input end: {', '.join(said)}"
