"""Myths: widespread claims about gradients, each with what you think of it and a measurement that decides."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/myths.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import frame, myths

frame.begin("myths")
picture, question = st.container(), st.container()
name = myths.choose()

with picture:
    myths.show(name)
with question:
    myths.ask(name)
if score := myths.score():
    st.markdown(score)
st.markdown("Each claim is measured when you commit, at a few seeds. Whether it holds is decided by that measurement.")
frame.end("myths")
