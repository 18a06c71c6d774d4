"""Start: a measured trail at once, and the ways in."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/start.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.presets import PRESETS
from gradlab.trail import Quantity
from gradlab.ui import cache, frame, pages, panels, take_home

# With shortcuts, so that nobody has seen the plain network before predicting it.
SPEC = PRESETS["reference_shortcut"].spec

frame.begin("start")
panels.show(
    cache.river({"With shortcuts": SPEC}, Quantity.WEIGHTS, None, panels.dark()),
    "start_river",
    panels.headline(cache.diagnosed(SPEC, Quantity.WEIGHTS)),
)
st.markdown(
    "One backward pass through five layers, measured here. The band shows the mean absolute **weight gradient** of each layer,"
    " from the output end to the input end. Each layer's input is added to its output. What happens without that?"
)
with st.container(horizontal=True):
    pages.link("predict", "Predict it, then measure: the course →")
    pages.link("measure", "Measure a network of your own →")
    pages.link("seeds", "See many seeds at once →")
take_home.download(cache.measured(SPEC), key="start_csv")
frame.end("start")
