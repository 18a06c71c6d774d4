"""How far each layer's weights moved, one line per optimiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas

from gradlab.charts.base import Figure
from gradlab.charts.lines import Line, lines
from gradlab.lessons.learning import Movement

RELATIVE = "movement, relative to the weights' size"
_MARKS = {
    "zero": "□ moved by exactly nothing",
    "missing": "+ no relative movement, because the weights were all zero or are no longer finite",
}


def movement(series: Mapping[str, Sequence[Movement]], *, hue: int = 0, dark: bool = False) -> Figure:
    """One point per layer and optimiser on a logarithmic axis, the output end left; the rows come first layer first."""
    frames = {name: _frame(rows) for name, rows in series.items()}
    layers = next(iter(frames.values()))["layer"].to_list()
    figure = lines(
        {name: Line(frame=frame, hue=hue) for name, frame in frames.items()},
        layers=layers,
        x_title="order of arrival, output end first",
        y_title=RELATIVE,
        dark=dark,
        said=f"{RELATIVE}, from the output end to the input end",
    )
    seen = {mark for frame in frames.values() for mark in frame["mark"]}
    marks = [words for mark, words in _MARKS.items() if mark in seen]
    return replace(
        figure,
        how_to_read="Each point is one layer: the length of the way its weights went over the length of the weights, on a"
        " logarithmic axis." + (f" Where the scale has no place for it: {'; '.join(marks)}." if marks else ""),
    )


def _frame(rows: Sequence[Movement]) -> pandas.DataFrame:
    rows = list(reversed(rows))
    sizes = [row.relative_movement for row in rows]
    return pandas.DataFrame(
        {
            "layer": [row.layer for row in rows],
            "reading": [float("nan") if size is None else size for size in sizes],
            "mark": ["missing" if size is None else "" if size > 0 else "zero" for size in sizes],
            "status": [f"{100 * row.moved_share:.3g} % of the weights changed" for row in rows],
        }
    )
