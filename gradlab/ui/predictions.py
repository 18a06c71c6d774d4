"""Predict, then measure: what is asked about a network before its measurement is shown, and what is shown after.

Nothing measured is drawn before the prediction is committed. The first network of a session is looked at closely: what was
there to be seen, before any explanation. About every later one a number can be given too, before it is on the screen.
"""

from __future__ import annotations

import streamlit as st

from gradlab.lessons import progress as record
from gradlab.lessons.predictions import FactorQuestion, FactorScore, score_factor
from gradlab.lessons.progress import CONFIDENCE_TITLES, Answer
from gradlab.lessons.trend import Trend
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity
from gradlab.ui import cache, panels, questions

QUESTION = "trend"
SEEN = ("seen", "seen_largest")
DIRECTIONS = {Trend.SMALLER: -1, Trend.SAME: 0, Trend.GROWS: 1}
LOCKED = "The measurement of this network stays hidden until you commit to a prediction."
NO_TREND = "There is nothing to predict about this network. Choose another one; *Measure* shows the readings of any."
CHANGE_IT = (
    "Change something and predict again: the new measurement is hidden until you commit. From the second network on you are"
    " asked for a number too."
)
_WITHOUT_NUMBER = "predicted_without_number"
_COMPLAINT = "predict_factor_complaint"
KEY = "predict_river"


def revealed(spec: ExperimentSpec) -> Answer | None:
    """The prediction about this network where its measurement may be shown; None while something is to be said first."""
    posed = cache.posed(QUESTION, spec)
    answer = questions.answered(posed) if posed.can_be_asked else None
    return None if answer is None or _number_is_due(answer) else answer


def next_step(spec: ExperimentSpec) -> str:
    """What there is to do with the controls of the network."""
    if revealed(spec) is not None:
        return CHANGE_IT
    return LOCKED if cache.posed(QUESTION, spec).can_be_asked else NO_TREND


def show(spec: ExperimentSpec) -> None:
    """The layers with nothing measured; once a prediction is committed, the river with what was predicted on it."""
    answer = revealed(spec)
    if answer is None:
        locked = cache.unmeasured(spec.network.depth, panels.dark())
        st.vega_lite_chart(locked.vega_lite, key=KEY, alt=locked.alt_text, width="stretch")
        st.markdown(f"*How to read it.* {locked.how_to_read}")
        return
    guess = record.guessed(questions.progress(), Quantity.WEIGHTS, spec)
    name = "With shortcuts" if spec.network.use_shortcut else "Without shortcuts"
    direction, factor = DIRECTIONS[Trend(answer.option)], guess.guess if guess else None
    picture = cache.river_and_prediction(spec, name, direction, factor, panels.dark())
    lines = [_said(answer), panels.headline(cache.diagnosed(spec, Quantity.WEIGHTS), "measured")]
    if guess is not None:
        lines.append(_scored(guess.guess, cache.factor_asked(spec)).sentence)
    panels.show(picture, KEY, *lines)


def ask(spec: ExperimentSpec) -> None:
    """The one question that is next about this network, below those that are answered."""
    posed = cache.posed(QUESTION, spec)
    answer = questions.answered(posed) if posed.can_be_asked else None
    if answer is not None and _number_is_due(answer):
        _ask_for_the_number(answer)
    elif answer is None or not _is_first(answer):
        questions.ask(posed, page="predict")
    else:
        seen = [asked for asked in (cache.posed(key, spec) for key in SEEN) if asked.can_be_asked]
        if all(questions.ask(asked, page="predict") for asked in seen):
            questions.ask(posed, page="predict")


def track_record() -> str:
    """How many of this visitor's predictions were right, in one line, of those whose measurement was shown."""
    answers = [answer for answer in _predictions() if not _number_is_due(answer)]
    if not answers:
        return ""
    right, guesses = sum(answer.is_right for answer in answers), len(questions.progress().guesses)
    numbers = f" Numbers given: {guesses}." if guesses else ""
    return f"Your predictions so far: **{right} of {len(answers)}** right.{numbers}"


def _predictions() -> list[Answer]:
    return [answer for answer in questions.progress().answers if answer.question == QUESTION]


def _is_first(answer: Answer) -> bool:
    return _predictions()[0] == answer


def _said(answer: Answer) -> str:
    text = cache.posed(QUESTION, *answer.specs).option(answer.option).text
    sure = CONFIDENCE_TITLES[answer.confidence].lower()
    return f"**Predicted: {text.lower()}** ({sure})."


# --- the factor as a number -------------------------------------------------------------------------------------------


def _number_is_due(answer: Answer) -> bool:
    """Whether the factor is still to be asked for: of every network but the first, which is one question and no more."""
    (spec,) = answer.specs
    settled = record.guessed(questions.progress(), Quantity.WEIGHTS, spec) or spec in _without_number()
    return not (settled or _is_first(answer))


def _without_number() -> frozenset[ExperimentSpec]:
    return frozenset(st.session_state.get(_WITHOUT_NUMBER, ()))


def _ask_for_the_number(answer: Answer) -> None:
    (spec,) = answer.specs
    asked, name = cache.factor_asked(spec), questions.identity(cache.posed(QUESTION, spec))
    with st.container(border=True):
        st.markdown(_said(answer))
        st.markdown(f"**{asked.text}**")
        with st.form(f"predict_factor_form_{name}", border=False):
            st.text_input("Factor per layer", key=f"predict_factor_{name}", max_chars=40, width=220)
            st.form_submit_button("Commit the number", on_click=_commit, args=(asked, f"predict_factor_{name}"))
        if complaint := st.session_state.pop(_COMPLAINT, ""):
            st.text(complaint)  # it quotes what was typed
        st.button("Measure without a number", on_click=_go_without, args=(spec,), key=f"predict_without_{name}")


def _commit(asked: FactorQuestion, key: str) -> None:
    score = _scored(st.session_state.get(key), asked)
    guess = record.guess(asked, score)
    if guess is None:
        st.session_state[_COMPLAINT] = score.sentence
    else:
        questions.commit(guess)


def _go_without(spec: ExperimentSpec) -> None:
    st.session_state[_WITHOUT_NUMBER] = _without_number() | {spec}


def _scored(guess: object, asked: FactorQuestion) -> FactorScore:
    return score_factor(guess, asked.measured or 0.0, asked.layers)
