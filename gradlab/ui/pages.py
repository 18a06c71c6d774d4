"""The pages of the lab in the order of the menu: a file in `pages/`, its title and its place in the URL."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.navigation.page import StreamlitPage

FOLDER = Path(__file__).resolve().parents[2] / "pages"

TITLES = {"start": "Start", "measure": "Measure", "trail": "Trail"}


def page(name: str) -> StreamlitPage:
    """The page of that name."""
    return st.Page(FOLDER / f"{name}.py", title=TITLES[name], url_path=name, default=name == "start")


def link(name: str, label: str) -> None:
    """A link to the page; nothing where the calling page runs alone, without the others."""
    try:
        st.page_link(page(name), label=label)
    except StreamlitAPIException:
        return
