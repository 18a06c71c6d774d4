"""Questions one after the other: the next one appears once the one before it is answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile

import streamlit as st

from gradlab.lessons.question import Posed
from gradlab.spec import ExperimentSpec
from gradlab.ui import cache, questions


def answered_once(question: str) -> bool:
    """Whether the question was answered about any experiment."""
    return any(answer.question == question for answer in questions.progress().answers)


def posed(keys: Sequence[str], *specs: ExperimentSpec, once: Collection[str] = ()) -> list[Posed]:
    """The questions about these experiments, without those of `once` that were answered about others."""
    found = [cache.posed(key, *specs) for key in keys]
    return [each for each in found if is_answered(each) or not (each.question.key in once and answered_once(each.question.key))]


def is_answered(posed: Posed) -> bool:
    """Whether the question can be asked and was answered."""
    return posed.can_be_asked and questions.answered(posed) is not None


def answered(asked: Sequence[Posed]) -> int:
    """How many of the questions are answered, from the first on."""
    return len(list(takewhile(is_answered, asked)))


def ask(asked: Sequence[Posed], page: str, headings: Mapping[str, str] | None = None) -> None:
    """Draw the answer given last and the question after it; the answers before them can be opened."""
    done = answered(asked)
    if done > 1:
        with st.expander("Your answers before"):
            for each in asked[: done - 1]:
                _one(each, page, headings)
    for each in asked[max(0, done - 1) : done + 1]:
        _one(each, page, headings)


def _one(each: Posed, page: str, headings: Mapping[str, str] | None) -> None:
    if headings:
        st.markdown(headings[each.question.key])
    questions.ask(each, page=page)
