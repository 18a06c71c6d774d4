"""The pages of the lab in the order of the menu: a file in `pages/`, its title and its place in the URL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.navigation.page import StreamlitPage

from gradlab.lessons.course import PAGES

FOLDER = Path(__file__).resolve().parents[2] / "pages"

COURSE = {name: page.menu for name, page in PAGES.items()}
LAB = {
    "seeds": ("Seeds", "Would another seed have shown you the same?"),
    "depth": ("Depth and initialisation", "Does theory predict the factor you measure?"),
    "verdicts": ("Verdicts", "Which detector changes its mind when the loss is multiplied?"),
    "myths": ("Myths", "Which of these do you believe?"),
}
"""The pages beside the course: what the menu calls each, and the question it asks."""
TITLES = COURSE | {name: menu for name, (menu, _) in LAB.items()}
QUESTIONS = {name: page.title for name, page in PAGES.items()} | {name: question for name, (_, question) in LAB.items()}
"""The question each page asks, its title on the page."""


def page(name: str) -> StreamlitPage:
    """The page of that name at its address; the start page has the bare address."""
    return _page(name, at_bare_address=name == "start")


def in_menu(limited: Sequence[str]) -> list[str]:
    """The names of these pages in the order of the menu, or of all where none is named."""
    return [name for name in TITLES if name in limited] or list(TITLES)


def menu(limited: Sequence[str]) -> list[StreamlitPage]:
    """The menu of these pages; its first one is where the bare address leads.

    Without sections: Streamlit puts their headings into the list where a screen reader expects nothing but entries.
    """
    names = in_menu(limited)
    return [*map(page, names), _other_address(names[0])]


def _other_address(name: str) -> StreamlitPage:
    """The first page once more, not in the menu: at the bare address, or the start page at `/start`.

    Streamlit has its default page at the bare address alone: a lesson's link to the first page of its menu would lead to
    "Page not found".
    """
    return _page(name, at_bare_address=name != "start", visibility="hidden")


def _page(name: str, *, at_bare_address: bool, visibility: Literal["visible", "hidden"] = "visible") -> StreamlitPage:
    # The default page keeps the path it is given from all others, and is not found there.
    path = "home" if at_bare_address else name
    file = FOLDER / f"{name}.py"
    return st.Page(file, title=TITLES[name], url_path=path, default=at_bare_address, visibility=visibility)


def link(name: str, label: str) -> None:
    """A link to the page; nothing where that page is not in the menu, or the calling page runs alone."""
    try:
        st.page_link(page(name), label=label)
    except StreamlitAPIException:
        return


def link_to_next(name: str) -> None:
    """A link to the page of the course that follows this one."""
    names = list(COURSE)
    following = names.index(name) + 1
    if following < len(names):
        link(names[following], f"Next: {COURSE[names[following]]} →")
