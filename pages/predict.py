"""Predict: commit to an answer and how sure you are, then hold it against the measurement."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/predict.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, frame, predictions, take_home

frame.begin("predict")
picture, question = st.container(), st.container()
st.header("Which network?")
words = st.container()
spec, _ = controls.experiment(ask_quantity=False, tell=False)
shown = predictions.revealed(spec) is not None

with picture:
    predictions.show(spec)
with question:
    predictions.ask(spec)
with words:
    st.markdown(predictions.next_step(spec))
    st.markdown(predictions.track_record())
if shown:
    take_home.take_home("predict", cache.measured(spec))
frame.end("predict")
