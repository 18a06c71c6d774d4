"""Depth and initialisation: the factor per layer measured at many seeds beside theory's, and a map of theory."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/depth.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, depth, frame, take_home, theory_map

frame.begin("depth")
picture = st.container()
option = depth.sizes()
spec, _ = controls.experiment(ask_quantity=False)
at_hand = depth.at_sizes(spec, option)
reasons, chart, numbers = st.container(), st.container(), st.container()

with picture:
    found = depth.show(at_hand)
with reasons:
    depth.every_button(at_hand)
    depth.why(at_hand)
with chart:
    at_pick = theory_map.picked_spec(spec, *theory_map.pick(spec))
    theory_map.ask(at_pick)
    theory_map.show_pick(at_pick)
with numbers:
    depth.table(found)
take_home.take_home("depth", cache.measured(at_hand), f"one run at the sizes measured here, seed {spec.seed}")
frame.end("depth")
