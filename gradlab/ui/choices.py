"""One answer out of a few, chosen and committed in a form: for the pages' own questions, which are no part of the course."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import streamlit as st


def form(
    name: str,
    key: str,
    options: Collection[Any],
    commit: Callable[[Any], None],
    *,
    label: str = "Your answer",
    title: Callable[[Any], str] = str,
    button: str = "Commit",
    horizontal: bool = False,
    missing: str = "Choose an answer before you commit.",
) -> None:
    """Draw the options, none of them chosen; `commit` is called with the chosen one, and without one `missing` is said."""
    with st.form(name, border=False):
        st.radio(label, list(options), index=None, format_func=title, key=key, horizontal=horizontal)
        st.form_submit_button(button, on_click=_commit, args=(key, options, commit, missing))
    if words := st.session_state.pop(_missing(key), ""):
        st.markdown(words)


def _commit(key: str, options: Collection[Any], commit: Callable[[Any], None], missing: str) -> None:
    option = st.session_state.get(key)
    if option in options:
        commit(option)
    else:
        st.session_state[_missing(key)] = missing


def _missing(key: str) -> str:
    return f"{key}_missing"
