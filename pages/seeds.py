"""Seeds: the same experiment at hundreds of seeds, and where one seed lies among them."""

import sys
from pathlib import Path

# So that the page also runs alone: streamlit run pages/seeds.py
if (root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import cache, controls, frame, seeds, seeds_table, take_home

frame.begin("seeds")
picture, question = st.container(), st.container()
asked = seeds.count()
spec, quantity = controls.experiment()

with picture:
    found = seeds.show(spec, quantity, asked)
with question:
    seeds.ask(spec, found)
seeds_table.table(spec, quantity, found)
take_home.take_home("seeds", cache.measured(spec), f"your seed, {spec.seed}, {seeds.chosen(spec).lower()}")
frame.end("seeds")
