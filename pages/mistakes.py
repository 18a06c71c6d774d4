"""Mistakes: each common one made live, with the wrong and the right number, and a checklist to take along."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/mistakes.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, checklist, controls, frame, take_home

frame.begin("mistakes")
picture, lesson, listed = st.container(), st.container(), st.container()
spec, _ = controls.experiment(ask_quantity=False)
checklist.run_what_was_asked_for(spec)

with lesson:
    chosen = checklist.choose()
with picture:
    checklist.picture(chosen, spec)
with listed:
    checklist.item(chosen, spec)
    checklist.table(chosen, spec)
checklist.progress()
take_home.take_home("mistakes", cache.measured(spec))
frame.end("mistakes")
