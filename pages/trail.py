"""Trail: the backward order, arrival by arrival."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/trail.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, frame, panels, stepper, take_home

frame.begin("trail")
picture, steps, readings = st.container(), st.container(), st.container()
spec, quantity = controls.experiment()
trail = cache.trail(spec, quantity)

with steps:
    arrived = stepper.arrival(trail)
with picture:
    river = cache.river({"This network": spec}, quantity, arrived, panels.dark())
    panels.show(river, "trail_river", *panels.verdict(spec, quantity))
with readings:
    panels.trail_table(trail, controls.order_switch())
take_home.take_home("trail", cache.measured(spec))
frame.end("trail")
