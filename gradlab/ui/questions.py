"""A question to the learner: commit to an answer and to how sure you are, then see what was measured.

An answer is kept in the session as it was first given. Nothing that a browser sends can change it: a second commit to the
same question about the same experiment changes nothing.
"""

from __future__ import annotations

import hashlib

import streamlit as st

from gradlab.errors import GradlabError
from gradlab.lessons import progress as record
from gradlab.lessons.progress import CONFIDENCE_TITLES, Answer, Confidence, Guess, Progress
from gradlab.lessons.question import Posed
from gradlab.ui.links import text_of

_PROGRESS = "progress"


def progress() -> Progress:
    """What this visitor has answered so far."""
    kept = st.session_state.get(_PROGRESS)
    return kept if isinstance(kept, Progress) else Progress()


def commit(entry: Answer | Guess) -> None:
    """Add an answer to the record of this session; an earlier one to the same question stays."""
    st.session_state[_PROGRESS] = record.commit(progress(), entry)


def answered(posed: Posed) -> Answer | None:
    """The answer this visitor has committed to, if any."""
    return record.answered(progress(), posed.question.key, *posed.specs)


def ask(posed: Posed, page: str) -> bool:
    """Draw the question, or once it is answered what was said and what was measured; whether it is answered."""
    with st.container(border=True):
        if not posed.can_be_asked:
            st.markdown(posed.why_not)
            return False
        st.markdown(f"**{posed.text}**")
        answer = answered(posed)
        if answer is None:
            _form(posed, page)
        else:
            _reveal(posed, answer)
    return answer is not None


def _form(posed: Posed, page: str) -> None:
    key = f"{posed.question.key}_{identity(posed)}"
    texts = {option.key: option.text for option in posed.options}
    with st.form(f"form_{key}", border=False):
        st.radio("Your answer", list(texts), index=None, format_func=texts.__getitem__, key=f"option_{key}")
        st.segmented_control(
            "How sure are you?", list(Confidence), format_func=CONFIDENCE_TITLES.__getitem__, key=f"sure_{key}"
        )
        st.form_submit_button("Commit", on_click=_commit, args=(posed, key, page))
    if missing := st.session_state.pop(f"missing_{key}", ""):
        st.markdown(missing)


def _commit(posed: Posed, key: str, page: str) -> None:
    option, sure = st.session_state.get(f"option_{key}"), st.session_state.get(f"sure_{key}")
    if option is None or sure is None:
        what = " and ".join(words for words, value in (("an answer", option), ("how sure you are", sure)) if value is None)
        st.session_state[f"missing_{key}"] = f"Choose {what} before you commit."
        return
    try:
        commit(record.answer(posed, option, Confidence(sure), page=page))
    except (GradlabError, ValueError):
        st.session_state[f"missing_{key}"] = "Choose one of the answers."


def _reveal(posed: Posed, answer: Answer) -> None:
    sure = CONFIDENCE_TITLES[answer.confidence].lower()
    st.markdown(f"You said: *{posed.option(answer.option).text}* ({sure}).")
    st.markdown("**✓ That is what was measured.**" if answer.is_right else "**✗ That is not what was measured.**")
    st.markdown(posed.reply(answer.option))


def identity(posed: Posed) -> str:
    """A short name for the experiments a question is about, so that every experiment has a form of its own."""
    return hashlib.sha256("|".join(map(text_of, posed.specs)).encode()).hexdigest()[:12]
