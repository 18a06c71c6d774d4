"""The frame around every page: page settings and the menu."""

import streamlit as st

from gradlab.ui import pages

# An emoji, not a material icon: Streamlit would fetch that one from another host as the favicon.
st.set_page_config(page_title="gradlab", page_icon="🌊", layout="centered")

st.navigation([pages.page(name) for name in pages.TITLES]).run()
