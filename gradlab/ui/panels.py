"""The parts pages are made of."""

from __future__ import annotations

from collections.abc import Sequence

import pandas
import streamlit as st

from gradlab.diagnosis import Diagnosis, Verdict
from gradlab.experiment import ExperimentResult
from gradlab.export import to_csv
from gradlab.tables import STATISTIC_HELP
from gradlab.trail import Quantity
from gradlab.ui.cache import Picture

SIGNS = {
    Verdict.VANISHING: "▼ vanishing",
    Verdict.WEAKENING: "↘ weakening",
    Verdict.STEADY: "◆ steady",
    Verdict.GROWING: "↗ growing",
    Verdict.EXPLODING: "▲ exploding",
    Verdict.TOO_SHALLOW: "○ too shallow to judge",
    Verdict.NOT_MEASURABLE: "○ not measurable",
}


def dark() -> bool:
    """Whether the visitor sees the dark theme."""
    return st.context.theme.type == "dark"


def show(picture: Picture, key: str, *diagnoses: tuple[str, Diagnosis]) -> None:
    """A chart with its alt text, the verdicts on what it shows, and one line on how to read it."""
    st.vega_lite_chart(picture.vega_lite, key=key, alt=picture.alt_text, width="stretch")
    for name, diagnosis in diagnoses:
        headline(diagnosis, name)
    st.markdown(f"*How to read it.* {picture.how_to_read}")


def headline(diagnosis: Diagnosis, name: str = "") -> None:
    """The verdict in a word and a shape, and the sentence that carries its numbers."""
    severe = ", severely" if diagnosis.severe else ""
    of = f"{name}: " if name else ""
    st.markdown(f"**{of}{SIGNS[diagnosis.verdict]}{severe}.** {diagnosis.sentence}")


def table(result: ExperimentResult, quantity: Quantity) -> None:
    """The readings of every weight or every layer output, first layer first, to three digits."""
    frame = result.weight_table() if quantity is Quantity.WEIGHTS else result.output_table()
    first = ["parameter"] if quantity is Quantity.WEIGHTS else ["layer", "module_type"]
    frame = frame[[*first, "shape", "mean_abs", "norm", "min", "max", "zero_fraction", "backward_index", "status"]]
    frame = frame.assign(shape=[" × ".join(map(str, shape)) for shape in frame["shape"]])
    _frame(frame, ["mean_abs", "norm", "min", "max"])


def trail_table(trail: pandas.DataFrame, printed_order: bool) -> None:
    """The trail's readings with the ratio of each to the one that arrived before it."""
    frame = trail[["step", "layer", "reading", "ratio", "status"]]
    _frame(frame.iloc[::-1] if printed_order else frame, ["reading"], ["ratio"])


def _frame(frame: pandas.DataFrame, sizes: list[str], ratios: Sequence[str] = ()) -> None:
    formats = dict.fromkeys(sizes, "%.2e") | dict.fromkeys(ratios, "%.3g")
    configuration = {name: st.column_config.NumberColumn(format=format) for name, format in formats.items()}
    st.dataframe(frame, hide_index=True, column_config=configuration)


def download(result: ExperimentResult, key: str) -> None:
    """The whole result as CSV, made when it is asked for, without running the page again."""
    st.download_button(
        "Download the readings (CSV)",
        data=lambda: to_csv(result).encode(),
        file_name=f"gradients_seed{result.spec.seed}.csv",
        mime="text/csv",
        on_click="ignore",
        key=key,
    )


def what_is_this_number() -> None:
    """One sentence for every statistic in a table."""
    with st.expander("What is this number?"):
        st.markdown("\n".join(f"- **{name}**: {sentence}" for name, sentence in STATISTIC_HELP.items()))
