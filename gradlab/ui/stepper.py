"""Walk along a trail, one arrival at a time."""

from __future__ import annotations

import math
from enum import StrEnum

import pandas
import streamlit as st

from gradlab import charts
from gradlab.text import short_number

MARK_WORDS = {"zero": "exactly zero", "missing": "no gradient arrived", "non-finite": "NaN or infinite"}
HOLDS_WITHIN = 1.25
"""A step holds where the ratio is no further than this from 1, up or down."""


class Going(StrEnum):
    """What a reading does compared with the one that arrived before it."""

    THINS_OUT = "↘ thins out"
    HOLDS = "→ holds"
    GROWS = "↗ grows"
    UNKNOWN = ""


def arrival(trail: pandas.DataFrame) -> int:
    """Draw the stepper and what has just arrived; the number of arrivals shown, all of them at first."""
    steps = len(trail)
    if steps < 2:
        st.markdown(arrived(trail, steps))
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
    st.markdown(arrived(trail, st.session_state["arrivals"]))
    return int(st.session_state["arrivals"])


def _go(step: int) -> None:
    st.session_state["arrivals"] = step


def arrived(trail: pandas.DataFrame, step: int) -> str:
    """What arrived at this step, and what it is compared with the reading before it."""
    row = trail.iloc[step - 1]
    reading = MARK_WORDS.get(row["mark"]) or short_number(row["reading"])
    ratio = "" if pandas.isna(row["ratio"]) else f", {short_number(row['ratio'])} times the one before: {going(row['ratio'])}"
    return f"**Arrival {step} of {len(trail)}: {row['layer']}**, {reading}{ratio}."


def going(ratio: float) -> Going:
    """Whether a step thins out, holds or grows."""
    if math.isnan(ratio):
        return Going.UNKNOWN
    if ratio < 1 / HOLDS_WITHIN:
        return Going.THINS_OUT
    return Going.GROWS if ratio > HOLDS_WITHIN else Going.HOLDS


def with_going(trail: charts.Rows) -> charts.Rows:
    """The trail with what each step does, in words, under `going`."""
    return [{**row, "going": str(going(row["ratio"]))} for row in trail]


def summary(trail: pandas.DataFrame) -> str:
    """How many steps thin out, hold and grow, and what that is worth; "" where no two readings can be compared."""
    steps = [step for step in map(going, trail["ratio"]) if step is not Going.UNKNOWN]
    if not steps:
        return ""
    return (
        f"Of {len(steps)} ratios, {steps.count(Going.THINS_OUT)} lie below {1 / HOLDS_WITHIN:g} (thins out),"
        f" {steps.count(Going.HOLDS)} from there to {HOLDS_WITHIN:g} (holds), {steps.count(Going.GROWS)} above (grows)."
        " One step is no trend: the verdict under the picture follows all hidden layers."
    )
