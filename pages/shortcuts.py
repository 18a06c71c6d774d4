"""Shortcuts: two networks that differ in one thing, or a pinned run and another, with a guard on the word comparison."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/shortcuts.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import controls, frame, pair, state

frame.begin("shortcuts")
picture, question = st.container(), st.container()
pinning = st.container()
spec, quantity = controls.experiment()

with pinning:
    pair.pin(spec)
two = pair.of(spec)
with picture:
    pair.show(two, quantity)
with question:
    pair.ask(two, quantity)
if not two.is_pinned and state.controls() == "open":
    st.markdown("Both networks are measured, whatever the switch *Shortcuts* says; it counts once you pin a run.")
if pair.says_what_differs(two):
    pair.guard(two, quantity)
if not pair.is_open(two):
    st.header("Layer by layer")
    pair.table(two, quantity)
pair.take_along(two, quantity)
frame.end("shortcuts")
