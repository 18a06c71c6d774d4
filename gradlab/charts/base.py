"""What every picture is made of: a template that Altair writes once, filled with this measurement's data.

Altair takes 20 to 50 ms to write one specification, a hundred learners ask for thirty a second, and all of one kind differ in
nothing but their data. So each kind of chart is built once, with named data and with slots where a value depends on the data
(`"$title"` for a text, `["$layers"]` for a list, `{"expr": "$room"}` for a number: what Altair takes for valid); `figure`
puts the values in. Channels are objects (`alt.X("step", type=...)`): for a shorthand string Altair builds a table of all its
classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas

Rows = Sequence[Mapping[str, Any]]
"""The data of a chart, a mapping for each row, as Vega-Lite has them: of a dozen rows pandas takes longer than all the rest."""

CHART_HEIGHT = 320
TEMPLATES_KEPT = 64
"""Far more than there are kinds of charts."""
_END_ROOM, _ROOM_PER_LAYER = "$end_room", 0.08
"""The slot for the room at either end of a layer axis, in steps: enough for half a layer's name on a phone, where a step
of two hundred is narrower than a letter."""
_NARROWEST = 1.0
"""Powers of ten that a logarithmic axis spans at least: on less, what is rounding would look like a trend."""
_SMALLEST, _LARGEST_POWER = 5e-324, 308.25
"""The ends of what a number can be, so that room beyond them is neither nothing nor infinite."""


@dataclass(frozen=True)
class Hue:
    """One network's colour: for bands and lines, and for text, in the light and the dark theme."""

    band: str
    text: str
    band_dark: str
    text_dark: str

    def of(self, dark: bool) -> tuple[str, str]:
        """The colours for the band and for text."""
        return (self.band_dark, self.text_dark) if dark else (self.band, self.text)


# Okabe & Ito's vermillion and blue, told apart by everyone; text is darkened (lightened) to a contrast of 4.5 : 1.
HUES = (Hue("#D55E00", "#A34700", "#FF9354", "#FFB184"), Hue("#0072B2", "#00629B", "#5AB4F0", "#8CCBF5"))


@dataclass(frozen=True)
class Figure:
    """A Vega-Lite specification, the data it names, the text that stands for it, and how to read it."""

    vega_lite: dict[str, Any]
    data: Mapping[str, Rows]
    alt_text: str
    how_to_read: str

    @property
    def chart(self) -> alt.TopLevelMixin:
        """The figure as an Altair chart that carries its data, to be changed or saved."""
        return alt.Chart.from_dict({**self.vega_lite, "datasets": {name: list(rows) for name, rows in self.data.items()}})


def figure(
    template: Mapping[str, Any],
    slots: Mapping[str, Any],
    data: Mapping[str, pandas.DataFrame | Rows],
    *,
    alt_text: str,
    how_to_read: str,
) -> Figure:
    """The template with every `"$slot"` replaced by its value; a value is never searched for slots again."""
    values = {f"${name}": value for name, value in slots.items()}
    if "layers" in slots:
        values[_END_ROOM] = max(0.6, _ROOM_PER_LAYER * len(slots["layers"]))
    rows = {name: rows_of(part) if isinstance(part, pandas.DataFrame) else part for name, part in data.items()}
    return Figure(_filled(template, values), rows, alt_text, how_to_read)


def rows_of(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame; what is missing stays NaN."""
    rows: list[dict[str, Any]] = frame.to_dict(orient="records")
    return rows


def written(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The specification of a chart built on slots and named data. Not checked here: the tests check it filled."""
    return dict(chart.to_dict(validate=False))


def named(data: str) -> alt.Chart:
    """A chart on the data of that name, which the figure brings."""
    return alt.Chart(alt.NamedData(name=data))


def ink(dark: bool) -> str:
    """The colour of an axis' words: Streamlit's own reaches a contrast of 3.7 : 1 on white."""
    return "#E6E6E6" if dark else "#3D3F49"


def paper(dark: bool) -> str:
    """The page's own colour."""
    return "#171614" if dark else "#FFFFFF"


def halo(dark: bool) -> dict[str, Any]:
    """A mark's properties that make a text clear the space it will stand in: drawn over a line, below the text itself."""
    return {"color": paper(dark), "stroke": paper(dark), "strokeWidth": 5, "strokeJoin": "round", "aria": False}


def muted(dark: bool) -> str:
    """The grey of what is shown for orientation only: theory, a layer that is not fitted."""
    return "#A6A9B3" if dark else "#6B6E78"


def axis(title: str, dark: bool, **options: Any) -> alt.Axis:
    """An axis whose words are legible in either theme."""
    return alt.Axis(title=title, labelColor=ink(dark), titleColor=ink(dark), **options)


def log_ends(numbers: Sequence[float], room: float = 0.0) -> list[float]:
    """The ends of a logarithmic axis for these positive numbers, with a share of its length left free on either side."""
    powers = [math.log10(number) for number in numbers] or [-_NARROWEST, 0.0]
    low, high = min(powers), max(powers)
    spare = max(_NARROWEST - (high - low), 0.0) / 2 + room * max(high - low, _NARROWEST)
    return [max(10 ** (low - spare), _SMALLEST), max(10 ** min(high + spare, _LARGEST_POWER), *numbers, _SMALLEST)]


def legend(dark: bool, **options: Any) -> alt.Legend:
    """A legend above the chart whose words are legible in either theme and never cut."""
    return alt.Legend(orient="top", title=None, labelLimit=0, labelColor=ink(dark), **options)


def layer_axis(title: str, dark: bool) -> alt.X:
    """Layers side by side, evenly spaced, in the order of the slot `layers`."""
    shown = axis(title, dark, labelOverlap=True, labelAngle=0, grid=False)
    scale = alt.Scale(type="point", padding=alt.ExprRef(_END_ROOM))
    return alt.X("layer", type="ordinal", sort=["$layers"], scale=scale, axis=shown)


def _filled(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, dict):
        if len(node) == 1 and node.get("expr") in values:
            return values[node["expr"]]
        return {name: _filled(part, values) for name, part in node.items()}
    if isinstance(node, list):
        if len(node) == 1 and isinstance(node[0], str) and isinstance(whole := values.get(node[0]), list):
            return whole
        return [_filled(part, values) for part in node]
    return values.get(node, node) if isinstance(node, str) else node
