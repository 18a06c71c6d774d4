"""The myths page: a claim, what you think of it, and a measurement that decides."""

from __future__ import annotations

from functools import partial

import streamlit as st

from gradlab.export import to_csv
from gradlab.lessons.myth_trails import MythResult
from gradlab.lessons.myths import MYTHS, Myth
from gradlab.text import short_number
from gradlab.ui import cache, choices, panels, state

KEY = "myths_claim"
ROUNDS = 8
"""How many sets of seeds there are to look at: what everybody has measured stays in the cache."""
_SAID, _ROUND = "myths_said", "myths_round"


def choose() -> str:
    """Draw the choice of a claim, a sign before those that are answered; the chosen one."""
    st.segmented_control(
        "Which claim",
        list(MYTHS),
        required=True,
        format_func=lambda name: f"✓ {MYTHS[name].menu}" if name in said() else MYTHS[name].menu,
        key=state.widget("myth"),
    )
    return state.view("myth")


def said() -> dict[str, str]:
    """Claim -> what this visitor has answered; an answer stays as it was first given."""
    return dict(st.session_state.get(_SAID, {}))


def seed_of(name: str) -> int:
    """The first of the seeds that are looked at; every round has its own."""
    return int(st.session_state.get(_ROUND, {}).get(name, 0)) * MYTHS[name].seed_count


def show(name: str) -> None:
    """The claim as a line; once it is answered, with the measurement beside it and what that says."""
    myth = MYTHS[name]
    heading = f"**“{myth.title}”** {myth.setup}"
    if name not in said():
        panels.show(cache.myth_picture(name, None, panels.dark()), KEY, heading)
        return
    seed = seed_of(name)
    result = cache.myth(name, seed)
    panels.show(cache.myth_picture(name, seed, panels.dark()), KEY, heading, _verdict(result), result.sentence)


def ask(name: str) -> None:
    """What do you think of it? Or, once answered: the numbers, and why."""
    myth = MYTHS[name]
    with st.container(border=True):
        if name in said():
            _reveal(name, myth)
            return
        st.markdown("**Do you agree with the claim?** Then it is measured, here and now.")
        titles, commit = myth.options.__getitem__, partial(_commit, name)
        form, option = f"myths_form_{name}", f"myths_option_{name}"
        choices.form(form, option, myth.options, commit, title=titles, button="Commit and measure")


def _commit(name: str, option: str) -> None:
    if name not in said():
        st.session_state[_SAID] = said() | {name: option}


def _verdict(result: MythResult) -> str:
    word = "holds" if result.holds else "does not hold"
    return (
        f"**The claim {word} here: {short_number(result.number)} per layer toward the input was measured,"
        f" {short_number(result.claimed)} is what it expects.**"
    )


def _reveal(name: str, myth: Myth) -> None:
    result, option = cache.myth(name, seed_of(name)), said()[name]
    right = "✓ That is what was measured." if myth.is_right(option, result) else "✗ That is not what was measured."
    st.markdown(f"You said: *{myth.options[option]}*. **{right}**")
    st.markdown(_numbers(myth, result))
    st.markdown(f"**Why.** {myth.why}")
    st.markdown(f"Source: [{myth.source}]({myth.link})")
    with st.container(horizontal=True):
        st.button("Measure with other seeds", key="myths_again", on_click=_again, args=(name,))
        st.download_button(
            "What is drawn (CSV)",
            data=lambda: to_csv(result.frame).encode(),
            file_name=f"{name}_seed{result.seeds[0]}.csv",
            mime="text/csv",
            on_click="ignore",
            key="myths_csv",
        )


def _numbers(myth: Myth, result: MythResult) -> str:
    seeds, numbers = result.seeds, result.numbers
    spread = f"mean over seeds {seeds[0]} to {seeds[-1]}, from {short_number(min(numbers))} to {short_number(max(numbers))}"
    rows = {
        "measured now": (result.number, spread),
        "what the claim expects": (result.claimed, ""),
        "theory for this network": (result.predicted, ""),
        "published": (myth.published, myth.published_as),
    }
    lines = [f"| {name} | **{short_number(number)}** | {remark} |" for name, (number, remark) in rows.items()]
    return "\n".join(["| | factor per layer | |", "|:---|:---|:---|", *lines])


def _again(name: str) -> None:
    rounds = dict(st.session_state.get(_ROUND, {}))
    st.session_state[_ROUND] = rounds | {name: (rounds.get(name, 0) + 1) % ROUNDS}


def score() -> str:
    """How many answers are what was measured, in one line; empty before the first."""
    answers = said()
    right = sum(MYTHS[name].is_right(option, cache.myth(name, seed_of(name))) for name, option in answers.items())
    return f"Your answers so far: **{right} of {len(answers)}** are what was measured." if answers else ""
