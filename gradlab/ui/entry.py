"""The frame around every page: page settings and the menu."""

import sys
from pathlib import Path

# Run as a script, it finds the package it belongs to only if told where that is.
if (root := str(Path(__file__).resolve().parents[2])) not in sys.path:
    sys.path.insert(0, root)

import streamlit as st

from gradlab.ui import pages, state
from gradlab.ui.turns import page_in_turn

with page_in_turn():
    # An emoji, not a material icon: Streamlit would fetch that one from another host as the favicon.
    st.set_page_config(page_title="gradlab", page_icon="🌊", layout="centered")
    st.navigation(pages.menu(state.pages_shown()), expanded=True).run()
