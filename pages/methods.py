"""Capture methods: three ways to look at an output gradient side by side, and the lines that do each by hand."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/methods.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, frame, methods, take_home

frame.begin("methods")
picture = st.container()
view = methods.controls()
methods.measure(view)
with picture:
    methods.show(view)
methods.cards(view)
methods.ask()
methods.lines()
take_home.download(cache.measured(methods.SPEC), key="methods_csv")
frame.end("methods")
