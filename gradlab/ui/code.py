"""Lines of PyTorch with a note to each line that needs one."""

from __future__ import annotations

import streamlit as st

from gradlab.lessons.snippets import Snippet


def show(snippet: Snippet) -> None:
    """The code, and its notes under it in the order of the lines, each with the words it is about."""
    # No line numbers: with them long lines do not wrap, and on a phone the box scrolls where a keyboard cannot reach.
    # No colours: of those that Streamlit gives to Python, most are too pale to read on its background.
    st.code(snippet.code, language=None, wrap_lines=True)
    notes = sorted(snippet.notes, key=lambda note: snippet.code.index(note.fragment))
    lines = [(note.fragment, note.text.replace("_", r"\_")) for note in notes]
    st.markdown("\n".join(f"- `{fragment}`: {text}" for fragment, text in lines))
