"""Start: a measured trail at once, and the ways in."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/start.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.presets import PRESETS
from gradlab.trail import Quantity
from gradlab.ui import cache, pages, panels, state

SPECS = {"Plain": PRESETS["reference"].spec, "With shortcuts": PRESETS["reference_shortcut"].spec}

state.enter("start")
st.title("Where does the signal thin out?")
panels.show(
    cache.river(SPECS, Quantity.WEIGHTS, None, panels.dark()),
    "start_river",
    *((name, cache.diagnosed(spec)) for name, spec in SPECS.items()),
)

st.markdown(
    "One backward pass through two networks of five layers, measured here: same weights, same input, and in the second one"
    " each layer's input is added to its output. A band shows the mean absolute **weight gradient** of each layer."
)

with st.container(horizontal=True):
    pages.link("measure", "Measure a network of your own →")
    pages.link("trail", "Follow the gradient layer by layer →")
panels.download(cache.measured(SPECS["Plain"]), key="start_csv")
