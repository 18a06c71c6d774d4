"""Output gradients: both kinds of gradient of the same layers, what ties them, their shapes, and what to look for."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/outputs.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import both_kinds, cache, controls, frame, take_home

frame.begin("outputs")
picture, question = st.container(), st.container()
spec, _ = controls.experiment(ask_quantity=False)

with picture:
    both_kinds.show(spec)
with question:
    both_kinds.ask(spec)
both_kinds.lesson(spec)
take_home.take_home("outputs", cache.measured(spec))
frame.end("outputs")
