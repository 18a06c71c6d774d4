"""Verdicts as a grid: a row for each detector, a column for each power of ten that the loss is multiplied by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import altair as alt
import pandas

from gradlab.charts.base import TEMPLATES_KEPT, Figure, axis, figure, ink, named, written

ROW_HEIGHT = 28


@dataclass(frozen=True)
class Word:
    """How a verdict is shown: a sign that differs from every other's, its name, and a colour in either theme."""

    sign: str
    title: str
    light: str
    dark: str


NOT_SHOWN = "not shown"
WORDS: dict[str, Word] = {
    "vanishing": Word("▼", "vanishing", "#D9B8E0", "#6B3F78"),
    "weakening": Word("↘", "weakening", "#EDDCF0", "#49354F"),
    "steady": Word("◆", "steady", "#DDE7DD", "#34453A"),
    "growing": Word("↗", "growing", "#FBEBCB", "#54462A"),
    "exploding": Word("▲", "exploding", "#F6C667", "#8A5C00"),
    "dead": Word("●", "dead units", "#C6CCD6", "#4A5160"),
    "saturated": Word("■", "saturated", "#C3DDE6", "#2F5563"),
    "non-finite": Word("×", "non-finite", "#F4B9B4", "#7D322D"),
    "none": Word("–", "nothing to report", "#F3F4F6", "#262932"),
    "too_shallow": Word("○", "too shallow to judge", "#F3F4F6", "#262932"),
    "not_measurable": Word("∅", "not measurable", "#F3F4F6", "#262932"),
    NOT_SHOWN: Word("?", "not shown yet", "#FFFFFF", "#14171F"),
}
"""Every word of the lab's verdicts and of the rule sets'."""


def verdict_grid(
    rows: Mapping[str, Sequence[str]], *, powers: Sequence[int], current: int, hidden: bool = False, dark: bool = False
) -> Figure:
    """One cell for each detector and power of ten, with the sign of its verdict; the column of the `current` power framed.

    `rows` maps a detector to one of `WORDS` for each of the powers, the lab's own first. `hidden` shows the current column
    only. A chart of nine rows is 330 pixels high.
    """
    shown = {
        name: [word if not hidden or power == current else NOT_SHOWN for power, word in zip(powers, words, strict=True)]
        for name, words in rows.items()
    }
    cells = pandas.DataFrame(
        [
            {"detector": name, "power": power, "times": f"10^{power}", "verdict": WORDS[word].title, "sign": WORDS[word].sign}
            for name, words in shown.items()
            for power, word in zip(powers, words, strict=True)
        ]
    )
    titles = [word.title for word in WORDS.values()]
    seen = [word for word in WORDS.values() if word.title in set(cells["verdict"])]
    return figure(
        _template(dark, len(rows)),
        {
            "detectors": list(rows),
            "powers": list(powers),
            "titles": titles,
            "fills": [word.dark if dark else word.light for word in WORDS.values()],
        },
        {"cells": cells, "now": pandas.DataFrame({"power": [current]})},
        alt_text=_described(shown, powers, current, hidden),
        how_to_read=(
            "One row is one detector, one column the power of ten the loss is multiplied by; the frame is where you are. "
            + ", ".join(f"{word.sign} {word.title}" for word in seen)
            + "."
        ),
    )


@lru_cache(TEMPLATES_KEPT)
def _template(dark: bool, rows: int) -> dict[str, Any]:
    powers = axis("loss × 10 to the power of", dark, labelAngle=0, labelOverlap=True, ticks=False)
    x = alt.X("power", type="ordinal", sort=["$powers"], scale=alt.Scale(paddingInner=0.06), axis=powers)
    detectors = alt.Axis(title=None, labelColor=ink(dark), labelLimit=150, ticks=False, domain=False)
    y = alt.Y("detector", type="nominal", sort=["$detectors"], scale=alt.Scale(paddingInner=0.12), axis=detectors)
    fill = alt.Color("verdict", type="nominal", scale=alt.Scale(domain=["$titles"], range=["$fills"]), legend=None)
    tooltip = [
        alt.Tooltip("detector", type="nominal"),
        alt.Tooltip("times", type="nominal", title="loss times"),
        alt.Tooltip("verdict", type="nominal"),
    ]
    layers = [
        named("cells").mark_rect().encode(x=x, y=y, color=fill, tooltip=tooltip),
        named("cells")
        .mark_text(fontSize=12, color=ink(dark), baseline="middle")
        .encode(x=x, y=y, text=alt.Text("sign", type="nominal"), tooltip=tooltip),
        named("now").mark_rect(fill=None, stroke=ink(dark), strokeWidth=2).encode(x=x, y=alt.value(-3), y2=alt.value("height")),
    ]
    return written(alt.layer(*layers).properties(height=ROW_HEIGHT * rows + 50))


def _described(rows: Mapping[str, Sequence[str]], powers: Sequence[int], current: int, hidden: bool) -> str:
    """Each row in words: which verdict from which power on."""
    lines = []
    for name, words in rows.items():
        if hidden:
            lines.append(f"{name}: {WORDS[words[list(powers).index(current)]].title}")
            continue
        runs = [(word, list(run)) for word, run in groupby(zip(powers, words, strict=True), key=lambda pair: pair[1])]
        lines.append(
            f"{name}: " + ", ".join(f"{WORDS[word].title} from 10^{run[0][0]} to 10^{run[-1][0]}" for word, run in runs)
        )
    when = f"with the loss times 10^{current}" if hidden else f"for the loss times 10^{powers[0]} to 10^{powers[-1]}"
    return f"Verdicts {when}. " + ". ".join(lines)
