"""Challenge: where the prediction that both networks shrink steadily breaks, on a pair of the visitor's choice."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/challenge.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, challenge, controls, frame, take_home

frame.begin("challenge")
picture, asked = st.container(), st.container()
spec, _ = controls.experiment(ask_quantity=False, tell=False)
posed = cache.challenge_on(*challenge.pair(spec))

with asked:
    challenge.ask(posed)
with picture:
    may_be_told = challenge.is_answered(posed) or not posed.can_be_posed
    challenge.rivers(spec, "challenge_rivers", *(challenge.verdicts(spec) if may_be_told else []))
st.header("Layer by layer")
both = controls.both_are_measured("Both networks are measured, with the same weights")
st.markdown(f"Mean absolute weight gradients in order of arrival, the output end first. {both}.")
challenge.table(spec)
take_home.take_home("challenge", cache.measured(spec), take_home.shortcuts_of(spec))
frame.end("challenge")
