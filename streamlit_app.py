"""The server: `streamlit run streamlit_app.py`."""

import streamlit as st

from gradlab.ui.server import MIDDLEWARE, warm_up

app = st.App("gradlab/ui/entry.py", lifespan=warm_up, middleware=MIDDLEWARE)
