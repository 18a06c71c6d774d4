"""Walk along a trail, one arrival at a time."""

from __future__ import annotations

import pandas
import streamlit as st

from gradlab.text import short_number

MARK_WORDS = {"zero": "exactly zero", "missing": "no gradient arrived", "non-finite": "NaN or infinite"}


def arrival(trail: pandas.DataFrame) -> int:
    """Draw the stepper and what has just arrived; the number of arrivals shown, all of them at first."""
    steps = len(trail)
    if steps < 2:
        _say(trail, steps)
        return steps
    st.session_state.setdefault("arrivals", steps)
    if not 1 <= st.session_state["arrivals"] <= steps or st.session_state.get("arrivals_of") != steps:
        st.session_state["arrivals"] = steps
    st.session_state["arrivals_of"] = steps
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button("First", on_click=_go, args=(1,), key="arrivals_first")
        st.button("◀ Back", on_click=_go, args=(max(1, st.session_state["arrivals"] - 1),), key="arrivals_back")
        st.button("Next ▶", on_click=_go, args=(min(steps, st.session_state["arrivals"] + 1),), key="arrivals_next")
        st.slider("Arrivals", 1, steps, key="arrivals", help="The arrow keys move it too.", width=300)
    _say(trail, st.session_state["arrivals"])
    return int(st.session_state["arrivals"])


def _go(step: int) -> None:
    st.session_state["arrivals"] = step


def _say(trail: pandas.DataFrame, arrived: int) -> None:
    row = trail.iloc[arrived - 1]
    reading = MARK_WORDS.get(row["mark"]) or short_number(row["reading"])
    ratio = "" if pandas.isna(row["ratio"]) else f", {short_number(row['ratio'])} times the one before"
    st.markdown(f"**Arrival {arrived} of {len(trail)}: {row['layer']}**, {reading}{ratio}.")
