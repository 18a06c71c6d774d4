"""Measure: controls, the three stages, the readings as chart, table and CSV."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/measure.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, panels, stages

st.title("What does one backward pass leave behind?")
picture = st.container()

spec, quantity = controls.experiment("measure")
result = cache.measured(spec)

with picture:
    panels.show(
        cache.readings(spec, quantity, printed_order=True, dark=panels.dark()),
        "measure_readings",
        ("", cache.diagnosed(spec)),
    )

st.header("Three stages")
stages.show(result)

st.header("The readings")
panels.table(result, quantity)
panels.download(result, key="measure_csv")
panels.what_is_this_number()
