"""Trail: the backward order, arrival by arrival."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/trail.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, panels, stepper

st.title("In which order does the gradient visit the layers?")
picture, steps, readings = st.container(), st.container(), st.container()

spec, quantity = controls.experiment("trail")
trail = cache.trail(spec, quantity)

with steps:
    arrived = stepper.arrival(trail)
with picture:
    panels.show(
        cache.river({"This network": spec}, quantity, arrived, panels.dark()), "trail_river", ("", cache.diagnosed(spec))
    )
with readings:
    panels.trail_table(trail, controls.order_switch())
panels.download(cache.measured(spec), key="trail_csv")
