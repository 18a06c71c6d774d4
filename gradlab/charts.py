"""Data frames as Altair charts, each with alt text made from its data.

Channels are objects (`alt.X("step", type=...)`): a shorthand string costs 16 ms a chart, because Altair then builds a table
of all its classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt
import pandas

from gradlab.text import short_number

BAND_HEIGHT = 160
CHART_HEIGHT = 320
NUMBERS_SHOWN = 6
"""A number stands above every layer up to this many layers, beyond it above evenly spaced ones."""
MARK_SHAPES = {"zero": "square", "missing": "cross", "non-finite": "triangle-up"}


@dataclass(frozen=True)
class Hue:
    """One network's colour: for bands and lines, and for text, in the light and the dark theme."""

    band: str
    text: str
    band_dark: str
    text_dark: str

    def of(self, dark: bool) -> tuple[str, str]:
        return (self.band_dark, self.text_dark) if dark else (self.band, self.text)


# Okabe & Ito's vermillion and blue, told apart by everyone; text is darkened (lightened) to a contrast of 4.5 : 1.
HUES = (Hue("#D55E00", "#A34700", "#FF9354", "#FFB184"), Hue("#0072B2", "#00629B", "#5AB4F0", "#8CCBF5"))


@dataclass(frozen=True)
class Figure:
    """A chart, the text that stands for it, and how to read it."""

    chart: alt.LayerChart | alt.FacetChart
    alt_text: str
    how_to_read: str


def river(trails: Mapping[str, pandas.DataFrame], *, arrived: int | None = None, dark: bool = False) -> Figure:
    """Each trail as a band whose half-width is log10(reading / floor), output end left, one scale for all.

    `trails` maps a name to a frame of `trail.backward_trail`. Only the first `arrived` steps are filled.
    """
    floor = _floor(trails.values())
    bands = _bands(trails, floor)
    steps = int(bands["step"].max())
    arrived = steps if arrived is None else arrived
    here = bands[bands["step"] <= arrived]
    solid = here[here["mark"] == ""]
    color, text = _colors(trails, dark, "band"), _colors(trails, dark, "text")
    x = _layer_axis(list(dict.fromkeys(bands["layer"])), "backward step: output end → input end", dark)
    y, y2 = alt.Y("top", type="quantitative", axis=None, scale=_EDGES), alt.Y2("bottom")
    flow = {"x": x, "y": y, "y2": y2, "detail": _STRETCH, "color": color}
    rule = max(0.5, min(2.5, 100 / steps))  # many layers: thin, or the rules fill the band
    layers: list[alt.Chart] = [
        alt.Chart(bands[bands["mark"] == ""]).mark_area(opacity=0.12, interpolate="monotone").encode(**flow),
        alt.Chart(solid).mark_area(opacity=0.45, interpolate="monotone").encode(**flow),
        alt.Chart(solid).mark_rule(strokeWidth=rule).encode(x=x, y=y, y2=y2, color=color, tooltip=_TOOLTIP),
        alt.Chart(_numbered(solid, arrived, steps))
        .mark_text(dy=-10, fontSize=12, fontWeight="bold")
        .encode(x=x, y=y, color=text, text=alt.Text("number", type="nominal")),
    ]
    if len(trails) > 1:
        names = bands.drop_duplicates("trail").assign(top=lambda band: band["middle"] + 1.6)
        name = alt.Chart(names).mark_text(align="left", fontSize=13, fontWeight="bold", baseline="bottom")
        layers.append(name.encode(x=alt.value(4), y=y, color=text, text=alt.Text("trail", type="nominal")))
    unseen = here[here["mark"] != ""]
    if len(unseen):
        y_middle = alt.Y("middle", type="quantitative", axis=None, scale=_EDGES)
        layers.append(_symbols(unseen).encode(x=x, y=y_middle, color=text, shape=_SHAPE, tooltip=_TOOLTIP))
    return Figure(
        chart=alt.layer(*layers).resolve_scale(color="independent").properties(height=BAND_HEIGHT * len(trails) + 40),
        alt_text=". ".join(_described(name, trail, arrived) for name, trail in trails.items()),
        how_to_read=(
            "Read from left to right, the way the gradient travels: from the output end to the input end."
            + (f" The half-width is the number of powers of ten above {short_number(10**floor)}." if len(solid) else "")
            + _marks_explained(bands)
        ),
    )


def readings(trail: pandas.DataFrame, *, title: str, printed_order: bool = False, dark: bool = False) -> Figure:
    """One point per layer on a logarithmic axis; zero, missing and non-finite stand on a line of their own below it."""
    hue, text = HUES[0].of(dark)
    order = trail["layer"].to_list()[::-1] if printed_order else trail["layer"].to_list()
    trail = trail.assign(trail=title, stretch=_stretches(trail))
    shown, unseen = trail[trail["mark"] == ""], trail[trail["mark"] != ""]
    x = _layer_axis(order, "printed order, input end first" if printed_order else "order of arrival, output end first", dark)
    axis = alt.Axis(format="~e", tickCount=6, title=title, labelColor=_ink(dark), titleColor=_ink(dark))
    # With nothing to be shown the axis would have no ends, and the marks below it no place.
    domain = alt.Undefined if len(shown) else [0.1, 1.0]
    scale = alt.Scale(type="log", nice=False, padding=12, domain=domain)
    y = alt.Y("reading", type="quantitative", scale=scale, axis=axis)
    layers = [
        alt.Chart(shown).mark_line(color=hue, opacity=0.5).encode(x=x, y=y, order=_ALONG, detail=_STRETCH),
        alt.Chart(shown).mark_point(color=hue, filled=True, size=70, opacity=1).encode(x=x, y=y, tooltip=_TOOLTIP),
    ]
    if len(unseen):
        below = alt.value("height")
        layers.append(_symbols(unseen).encode(x=x, y=below, color=alt.value(text), shape=_SHAPE, tooltip=_TOOLTIP))
    return Figure(
        chart=alt.layer(*layers).properties(height=CHART_HEIGHT),
        alt_text=_described(title, trail, len(trail)),
        how_to_read="Each point is one layer, on a logarithmic axis: equal steps are equal factors." + _marks_explained(trail),
    )


# --- parts ------------------------------------------------------------------------------------------------------------

_EDGES = alt.Scale(nice=False, zero=False, padding=24)
_ALONG = alt.Order("step", type="quantitative")
_STRETCH = alt.Detail("stretch", type="nominal")
_SHAPE = alt.Shape(
    "mark",
    type="nominal",
    scale=alt.Scale(domain=list(MARK_SHAPES), range=list(MARK_SHAPES.values())),
    legend=None,
)
_TOOLTIP = [
    alt.Tooltip("trail", type="nominal"),
    alt.Tooltip("layer", type="nominal"),
    alt.Tooltip("step", type="quantitative", title="arrival"),
    alt.Tooltip("reading", type="quantitative", title="mean |gradient|", format=".17~g"),
    alt.Tooltip("ratio", type="quantitative", title="ratio to the one before", format=".6~g"),
    alt.Tooltip("status", type="nominal"),
]


def _floor(trails: Iterable[pandas.DataFrame]) -> float:
    """The log10 of half a power of ten below the smallest reading, so that the thinnest place still has a width."""
    return math.log10(min((r for trail in trails for r in trail["reading"] if r > 0), default=1.0)) - 0.5


def _bands(trails: Mapping[str, pandas.DataFrame], floor: float) -> pandas.DataFrame:
    """All trails in one frame with the edges of their bands; the widest place anywhere is 2 high."""
    frames = []
    for place, (name, trail) in enumerate(trails.items()):
        half = trail["reading"].map(lambda r: math.log10(r) - floor if r > 0 else math.nan)
        stretch = f"{name} " + _stretches(trail).astype(str)
        frames.append(trail.assign(trail=name, middle=-3.4 * place, half=half, stretch=stretch))
    bands = pandas.concat(frames, ignore_index=True)
    half = bands["half"] / (bands["half"].max() or 1.0)
    return bands.assign(top=bands["middle"] + half, bottom=bands["middle"] - half)


def _stretches(trail: pandas.DataFrame) -> pandas.Series:
    """A number for each stretch of readings: band and line break where a logarithmic scale has nothing to draw."""
    return (trail["mark"] != "").cumsum()


def _numbered(solid: pandas.DataFrame, arrived: int, steps: int) -> pandas.DataFrame:
    every = math.ceil(steps / NUMBERS_SHOWN)
    latest = (solid["step"] == arrived) & (arrived < steps)
    shown = solid[((solid["step"] - 1) % every == 0) | latest]
    return shown.assign(number=[short_number(reading) for reading in shown["reading"]])


def _colors(names: Iterable[str], dark: bool, part: Literal["band", "text"]) -> alt.Color:
    domain = list(names)
    hues = [HUES[place % len(HUES)].of(dark)[part == "text"] for place in range(len(domain))]
    return alt.Color("trail", type="nominal", scale=alt.Scale(domain=domain, range=hues), legend=None)


def _layer_axis(layers: Sequence[str], title: str, dark: bool) -> alt.X:
    axis = alt.Axis(title=title, labelOverlap=True, labelAngle=0, grid=False, labelColor=_ink(dark), titleColor=_ink(dark))
    return alt.X("layer", type="ordinal", sort=list(layers), scale=alt.Scale(type="point", padding=0.6), axis=axis)


def _ink(dark: bool) -> str:
    """The colour of an axis' words: Streamlit's own reaches a contrast of 3.7 : 1 on white."""
    return "#E6E6E6" if dark else "#3D3F49"


def _symbols(unseen: pandas.DataFrame) -> alt.Chart:
    return alt.Chart(unseen).mark_point(filled=False, size=90, strokeWidth=2)


# --- words ------------------------------------------------------------------------------------------------------------


def _marks_explained(trail: pandas.DataFrame) -> str:
    names = {"zero": "□ exactly zero", "missing": "+ no gradient arrived", "non-finite": "△ NaN or infinite"}
    shown = [words for mark, words in names.items() if mark in set(trail["mark"])]
    return f" Where the scale has no place for a reading: {', '.join(shown)}." if shown else ""


def _described(name: str, trail: pandas.DataFrame, arrived: int) -> str:
    """The trail as a sentence; of a long one, every so many layers."""
    here = trail[trail["step"] <= arrived]
    every = max(1, math.ceil(len(here) / 12))
    said = [f"{row.layer} {row.mark or short_number(row.reading)}" for row in here.iloc[::every].itertuples()]
    return f"{name}, mean absolute gradient from the output end to the input end: {', '.join(said)}"
