"""Verdicts: published detectors beside the lab's own, and which of them change when the loss is multiplied."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/verdicts.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, frame, take_home, verdicts

frame.begin("verdicts")
picture, slider, words, question = st.container(), st.container(), st.container(), st.container()
spec, _ = controls.experiment(ask_quantity=False)
table = st.container()
cut_offs = verdicts.cut_offs()
revealed = verdicts.said() is not None

with slider:
    power = verdicts.power(revealed)
with picture:
    verdicts.show(spec, cut_offs, power, revealed)
with words:
    verdicts.headlines(spec, cut_offs, power, revealed)
with question:
    verdicts.ask(spec)
with table:
    verdicts.table(spec, cut_offs, power)
take_home.take_home("verdicts", cache.measured(spec))
frame.end("verdicts")
