"""The parts pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from gradlab import charts
from gradlab.diagnosis import Diagnosis, Verdict, disagreement
from gradlab.flags import FLAG_TITLES
from gradlab.spec import ExperimentSpec
from gradlab.tables import STATISTIC_HELP
from gradlab.text import in_words
from gradlab.trail import Quantity
from gradlab.ui import cache, numbers
from gradlab.ui.cache import Picture
from gradlab.ui.images import image

FLAGS_SHOWN = 8
IMAGES: dict[Literal["svg", "png"], str] = {"svg": "image/svg+xml", "png": "image/png"}

SIGNS = {
    Verdict.VANISHING: "▼ vanishing",
    Verdict.WEAKENING: "↘ weakening",
    Verdict.STEADY: "◆ steady",
    Verdict.GROWING: "↗ growing",
    Verdict.EXPLODING: "▲ exploding",
    Verdict.TOO_SHALLOW: "○ too shallow to judge",
    Verdict.NOT_MEASURABLE: "∅ not measurable",
}


def dark() -> bool:
    """Whether the visitor sees the dark theme."""
    return st.context.theme.type == "dark"


def show(picture: Picture, key: str, *headlines: str) -> None:
    """A chart with its alt text, the sentences computed from what it shows, and one line on how to read it."""
    st.vega_lite_chart(picture.vega_lite, key=key, alt=picture.alt_text, width="stretch")
    for line in headlines:
        st.markdown(line)
    st.markdown(f"*How to read it.* {picture.how_to_read}")
    _save(picture, key)


def _save(picture: Picture, key: str) -> None:
    """Two buttons that save the picture, drawn when they are pressed."""
    in_the_dark = dark()  # a download is made outside the page's run, where the theme cannot be asked for
    with st.container(horizontal=True, gap="small"):
        for kind, mime in IMAGES.items():
            st.download_button(
                f"Save as {kind.upper()}",
                data=partial(image, picture, kind, in_the_dark),
                file_name=f"{key}.{kind}",
                mime=mime,
                on_click="ignore",
                key=f"{key}_{kind}",
                type="tertiary",
            )


def drawer(label: str, key: str) -> ExpanderContainer:
    """A part of the page to be drawn if it is open: a dozen widgets cost the server as much as the rest of a page."""
    return st.expander(label, key=key, on_change="rerun")


def headline(diagnosis: Diagnosis, name: str = "") -> str:
    """The verdict in a word and a shape, which gradient it is about, and the sentence that carries its numbers."""
    severe = ", severely" if diagnosis.severe else ""
    of = ", ".join(words for words in (name, f"{diagnosis.gradient.singular}s") if words)
    return f"**{of[0].upper()}{of[1:]}: {SIGNS[diagnosis.verdict]}{severe}.** {diagnosis.sentence}"


def verdict(spec: ExperimentSpec, quantity: Quantity) -> list[str]:
    """The headline on the gradients that are shown, and a remark where the other kind gets a different verdict."""
    outputs, weights = (cache.diagnosed(spec, kind) for kind in (Quantity.OUTPUTS, Quantity.WEIGHTS))
    remark = disagreement(outputs, weights)
    return [headline(weights if quantity is Quantity.WEIGHTS else outputs), *([remark] if remark else [])]


def flags(diagnosis: Diagnosis) -> None:
    """What is unusual about single layers, each with what to do about it; nothing where nothing is."""
    if diagnosis.flags:
        lines = [
            f"- ⚑ **{flag.layer}, {FLAG_TITLES[flag.kind]}.** {flag.sentence} {flag.what_to_do}" for flag in diagnosis.flags
        ]
        st.markdown("\n".join(lines[:FLAGS_SHOWN]))
        if len(lines) > FLAGS_SHOWN:
            st.markdown(f"… and {len(lines) - FLAGS_SHOWN} more layers.")


def table(spec: ExperimentSpec, quantity: Quantity) -> None:
    """The readings of every weight or every layer output, first layer first, to three digits."""
    digits = dict.fromkeys(("mean_abs", "norm", "min", "max"), numbers.SIZE) | {"zero_fraction": numbers.FACTOR}
    numbers.table(cache.table(spec, quantity), digits)


def trail_table(
    trail: charts.Rows, printed_order: bool, columns: Sequence[str] = ("step", "layer", "reading", "ratio", "status")
) -> None:
    """The trail's readings with the ratio of each to the one that arrived before it, or fewer or other columns of it."""
    rows = [{name: row[name] for name in columns} | {"status": in_words(row["status"])} for row in trail]
    digits = {name: format for name, format in (("reading", numbers.SIZE), ("ratio", numbers.FACTOR)) if name in columns}
    numbers.table(cache.arrow(rows[::-1] if printed_order else rows), digits)


def what_is_this_number() -> None:
    """One sentence for every statistic in a table."""
    with st.expander("What is this number?"):
        st.markdown("\n".join(f"- **{name}**: {sentence}" for name, sentence in STATISTIC_HELP.items()))
