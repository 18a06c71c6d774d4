"""The weight gradient and the output gradient of the same layers as two lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas

from gradlab.capture import OutputGradient, ParameterGradient
from gradlab.charts.base import Figure
from gradlab.charts.lines import Line, lines
from gradlab.lessons.both_kinds import Both, norm_of
from gradlab.trail import MARKS

NORM = "L2 norm of the gradient"


def both_kinds(rows: Sequence[Both], *, hue: int = 0, dark: bool = False) -> Figure:
    """One point per layer and kind of gradient on a logarithmic axis, the output end left; the rows come first layer first."""
    rows = list(reversed(rows))
    layers = [row.layer for row in rows]
    return lines(
        {
            "weight gradient": Line(frame=_frame(layers, [row.weight for row in rows]), hue=hue),
            "output gradient": Line(frame=_frame(layers, [row.output for row in rows]), hue=hue),
        },
        layers=layers,
        x_title="from the output end to the input end",
        y_title=NORM,
        dark=dark,
        said=f"{NORM} from the output end to the input end",
    )


def _frame(layers: Sequence[str], records: Sequence[ParameterGradient | OutputGradient]) -> pandas.DataFrame:
    norms = [norm_of(record) for record in records]
    readings = [math.nan if norm is None else norm for norm in norms]
    marks = ["" if norm else MARKS.get(record.status, "missing") for norm, record in zip(norms, records, strict=True)]
    statuses = [str(record.status) for record in records]
    return pandas.DataFrame({"layer": layers, "reading": readings, "mark": marks, "status": statuses})
