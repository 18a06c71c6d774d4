"""Measure: the readings, the three stages behind them, and how a matrix becomes one number."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/measure.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, frame, panels, stages, take_home

frame.begin("measure")
picture = st.container()
spec, quantity = controls.experiment()
result = cache.measured(spec)

with picture:
    readings = cache.readings(spec, quantity, printed_order=True, dark=panels.dark())
    panels.show(readings, "measure_readings", *panels.verdict(spec, quantity))

stages.lesson(result)

st.header("The readings")
panels.table(spec, quantity)
panels.what_is_this_number()
take_home.take_home("measure", result)
frame.end("measure")
