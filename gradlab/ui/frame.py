"""What stands around every page: its question as the title and what a link got wrong above, what comes next below."""

from __future__ import annotations

import streamlit as st

from gradlab.lessons import progress
from gradlab.lessons.questions import QUESTIONS
from gradlab.trail import Quantity
from gradlab.ui import cache, pages, panels, questions, state


def begin(name: str) -> None:
    """Take over the link, then draw the title and what of the link could not be used."""
    state.begin(name)
    st.title(pages.QUESTIONS[name])
    if state.notices():
        st.warning("Part of the link could not be used and was left out; the rest is kept.")
        st.text("\n".join(state.notices()))


def end(name: str) -> None:
    """A question that was missed before, once more with another seed; then the way on, and the URL brought up to date."""
    if name in pages.COURSE:
        _missed(name)
        pages.link_to_next(name)
    state.write_link()


def _missed(name: str) -> None:
    """The question this page has asked again, with its answer, or else the first one that is due here."""
    posed = None
    for given in questions.progress().answers:
        if given.page == name != QUESTIONS[given.question].page:
            posed = cache.posed(given.question, *given.specs)
    if posed is None:
        due = next(iter(progress.due(questions.progress(), name)), None)
        posed = progress.pose_due(due, cache.measured) if due else None
    if posed is None:
        return
    st.header("Once more, with another seed")
    if posed.question.reads_a_chart or questions.answered(posed):
        titles = ["Without shortcuts", "With shortcuts"] if posed.question.pair else ["This network"]
        specs = dict(zip(titles, posed.specs, strict=True))
        panels.show(cache.river(specs, Quantity.WEIGHTS, None, panels.dark()), f"{name}_missed")
    questions.ask(posed, page=name)
