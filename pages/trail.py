"""Trail: the backward order, arrival by arrival; a printed list in four steps; what a small gradient does to learning."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/trail.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, frame, learning, stepper, take_home, trail_parts, worked_example

frame.begin("trail")
picture, steps, lesson = st.container(), st.container(), st.container()
part = trail_parts.part()
spec, quantity = controls.experiment(ask_quantity=part == trail_parts.FOLLOW)
locked = trail_parts.is_locked(spec)
if not locked:
    with lesson:
        trail_parts.switch()

if part == trail_parts.READ and not locked:
    with picture:
        worked_example.picture(spec)
    with lesson:
        worked_example.steps(spec)
elif part == trail_parts.LEARN and not locked:
    with lesson:
        learning.lesson()
    with picture:
        learning.picture(spec)
else:
    if locked:
        with picture:
            trail_parts.printed(spec, quantity)
    else:
        with steps:
            arrived = stepper.arrival(cache.trail(spec, quantity))
        with picture:
            trail_parts.river(spec, quantity, arrived)
        with steps:
            trail_parts.verdict(spec, quantity)
    with lesson:
        trail_parts.ask(spec, quantity)
    trail_parts.table(spec, quantity)
take_home.take_home("trail", cache.measured(spec))
frame.end("trail")
