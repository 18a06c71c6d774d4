"""Results and pictures, computed once for everybody: the key is the specification, the value plain data."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas
import streamlit as st
from streamlit.dataframe_util import convert_pandas_df_to_arrow_bytes

from gradlab import charts
from gradlab.diagnosis import Diagnosis, diagnose
from gradlab.experiment import ExperimentResult, run_experiment
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity, backward_trail


class Picture(NamedTuple):
    """A chart ready to be sent: its Vega-Lite specification with the data as Arrow bytes, its alt text, how to read it."""

    vega_lite: dict[str, Any]
    alt_text: str
    how_to_read: str


@st.cache_data(max_entries=200, show_spinner=False)
def measured(spec: ExperimentSpec) -> ExperimentResult:
    return run_experiment(spec)


@st.cache_data(max_entries=500, show_spinner=False)
def diagnosed(spec: ExperimentSpec) -> Diagnosis:
    return diagnose(measured(spec))


@st.cache_data(max_entries=300, show_spinner=False)
def trail(spec: ExperimentSpec, quantity: str) -> pandas.DataFrame:
    return backward_trail(measured(spec), Quantity(quantity))


@st.cache_data(max_entries=300, show_spinner=False)
def river(specs: dict[str, ExperimentSpec], quantity: str, arrived: int | None, dark: bool) -> Picture:
    trails = {name: trail(spec, quantity) for name, spec in specs.items()}
    return _picture(charts.river(trails, arrived=arrived, dark=dark))


@st.cache_data(max_entries=300, show_spinner=False)
def readings(spec: ExperimentSpec, quantity: str, printed_order: bool, dark: bool) -> Picture:
    title = "mean |weight gradient|" if quantity == Quantity.WEIGHTS else "mean |output gradient|"
    return _picture(charts.readings(trail(spec, quantity), title=title, printed_order=printed_order, dark=dark))


def _picture(figure: charts.Figure) -> Picture:
    # Streamlit would turn the frames into Arrow on every run of a page; here it is done once.
    data = {name: convert_pandas_df_to_arrow_bytes(frame) for name, frame in figure.data.items()}
    return Picture({**figure.vega_lite, "datasets": data}, figure.alt_text, figure.how_to_read)
