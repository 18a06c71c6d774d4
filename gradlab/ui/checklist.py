"""Common mistakes, one at a time: choose one, have it made live, and tick it off.

An item is ticked because its demonstration ran here. What ran is kept in the session under a key that no widget has, so that
nothing a browser sends can tick an item without running it.
"""

from __future__ import annotations

import pyarrow
import streamlit as st

from gradlab.lessons.demonstrations import Demonstration, Reading
from gradlab.lessons.mistakes import LESSON_TITLES, MISTAKES, Lesson, checklist_markdown
from gradlab.spec import ExperimentSpec
from gradlab.ui import cache, numbers, panels

SAVE_BUTTONS_HEIGHT = 40
_RAN, _ASKED_FOR, _CHOSEN = "mistakes_ran", "mistakes_asked_for", "mistakes_chosen"


def ran() -> dict[str, ExperimentSpec]:
    """The mistakes whose demonstration ran in this session, each with the experiment it was asked for."""
    return dict(st.session_state.get(_RAN, {}))


def run_what_was_asked_for(spec: ExperimentSpec) -> None:
    """Run the demonstration whose button was pressed, on this experiment; only then is it ticked."""
    key = st.session_state.pop(_ASKED_FOR, None)
    if key in MISTAKES:
        cache.demonstration(key, spec)
        st.session_state[_RAN] = ran() | {key: spec}


def choose() -> str:
    """Draw both lessons' lists with what is ticked; the chosen mistake."""
    before = st.session_state.get(_CHOSEN, next(iter(MISTAKES)))
    lesson = st.segmented_control(
        "Where the mistake is made", list(Lesson), default=MISTAKES[before].lesson, required=True,
        format_func=LESSON_TITLES.__getitem__, key="mistakes_group", label_visibility="collapsed",
    )  # fmt: skip
    keys = [key for key, mistake in MISTAKES.items() if mistake.lesson is Lesson(lesson or MISTAKES[before].lesson)]
    widget, ticked = f"mistakes_in_{lesson}", ran()
    # A browser knows an option by its words. These change with the tick, so it is told anew which one is chosen.
    st.session_state[widget] = st.session_state.get(widget) or (before if before in keys else keys[0])
    chosen = st.radio(
        "Mistake", keys, format_func=lambda key: f"{'☑' if key in ticked else '☐'} {MISTAKES[key].title}", key=widget,
        label_visibility="collapsed",
    )  # fmt: skip
    st.session_state[_CHOSEN] = chosen
    return chosen


def picture(key: str, spec: ExperimentSpec) -> None:
    """Both numbers and what lies between them; two question marks in their place until they are measured."""
    title = MISTAKES[key].title
    if ran().get(key) == spec:
        found = cache.demonstration(key, spec)
        headline = f"**{title}: {found.wrong.text} instead of {found.right.text}.**"
        panels.show(cache.demonstration_picture(key, spec, panels.dark()), "mistakes_numbers", headline)
        return
    empty = cache.nothing_demonstrated(panels.dark())
    st.vega_lite_chart(empty.vega_lite, key="mistakes_numbers", alt=empty.alt_text, width="stretch")
    st.markdown(f"**{title}: not shown yet.**")
    st.markdown(f"*How to read it.* {empty.how_to_read}")
    st.space(SAVE_BUTTONS_HEIGHT)  # so that nothing moves when the picture comes


def item(key: str, spec: ExperimentSpec) -> None:
    """Why it fails, the button that shows it, and once it ran both numbers and what to do instead."""
    mistake, asked_for = MISTAKES[key], ran().get(key)
    st.markdown(f"**Why it fails.** {mistake.why}")
    if asked_for == spec:
        _shown(cache.demonstration(key, spec))
        st.markdown(f"**Instead.** {mistake.instead}")
        return
    if asked_for is not None:
        st.markdown("You have seen it on other settings. Show it again on these.")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Show it live", on_click=_ask_for, args=(key,), key="mistakes_show")
        st.markdown("It runs on your experiment.")


def _ask_for(key: str) -> None:
    # It runs in the page's own run, which knows the experiment that the controls describe by then.
    st.session_state[_ASKED_FOR] = key


def _shown(found: Demonstration) -> None:
    left, right = st.columns(2)
    with left:
        _number("✗ Mistaken", found.wrong)
    with right:
        _number("✓ Right", found.right)
    if found.note:
        st.markdown(f"*{found.note}*")
    st.markdown(f"**{found.damage}**")


def _number(title: str, reading: Reading) -> None:
    st.metric(title, reading.text)
    st.markdown(reading.label)


def table(key: str, spec: ExperimentSpec) -> None:
    """The demonstration in detail, to three digits; nothing before it ran."""
    if ran().get(key) != spec:
        return
    frame = cache.demonstration(key, spec).table()
    with st.expander("The numbers behind it"):
        digits = {name: numbers.FACTOR for name in frame if frame[name].dtype == float}
        numbers.table(pyarrow.Table.from_pandas(frame, preserve_index=False), digits)


def progress() -> None:
    """How many of the demonstrations ran, and the checklist to take along."""
    done = ran()
    st.header("Your checklist")
    st.progress(len(done) / len(MISTAKES), text=f"**{len(done)} of {len(MISTAKES)} shown.** An item is ticked once you ran it.")
    st.download_button(
        "The checklist (Markdown)",
        data=lambda: checklist_markdown({key: cache.demonstration(key, spec) for key, spec in done.items()}).encode(),
        file_name="gradient_mistakes.md",
        mime="text/markdown",
        on_click="ignore",
        key="mistakes_checklist",
    )
