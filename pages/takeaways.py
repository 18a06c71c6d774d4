"""Takeaways: each claim of the course beside a measurement, and what the visitor predicted, how sure they were."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/takeaways.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, challenge, controls, frame, report, take_home

frame.begin("takeaways")
picture, claims = st.container(), st.container()
spec, _ = controls.experiment(ask_quantity=False)

with picture:
    challenge.rivers(spec, "takeaways_rivers", challenge.verdict_words(spec))
with claims:
    report.takeaways(*challenge.pair(spec))
report.record()
take_home.take_home("takeaways", cache.measured(spec), take_home.shortcuts_of(spec))
frame.end("takeaways")
