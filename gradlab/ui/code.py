"""Lines of PyTorch with a note to each line that needs one."""

from __future__ import annotations

import streamlit as st

from gradlab.lessons.snippets import Snippet


def show(snippet: Snippet) -> None:
    """The code with numbered lines, and its notes under it."""
    st.code(snippet.code, language="python", line_numbers=True)
    notes = [(number, text.replace("_", r"\_")) for number, text in snippet.numbered_notes()]
    st.markdown("\n".join(f"- **Line {number}.** {text}" for number, text in notes))
