"""The challenge: name the layer and the direction in which the network with shortcuts departs from steady shrinking.

What a visitor writes in their own words stays in this session: it is shown to them, as plain text, and goes nowhere else.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from gradlab import charts
from gradlab.capture import Status
from gradlab.errors import GradlabError, listed
from gradlab.lessons.challenge import HINTS, Challenge, check
from gradlab.lessons.progress import CONFIDENCE_TITLES, Confidence
from gradlab.lessons.progress import answer as answer_to
from gradlab.lessons.question import Posed
from gradlab.spec import ExperimentSpec
from gradlab.text import in_words
from gradlab.trail import Quantity
from gradlab.ui import cache, numbers, panels, questions

NAMES = ("Without shortcuts", "With shortcuts")
MAX_WORDS = 1000
RADIO_UP_TO = 7
"""Options that stand in a list of their own; more of them are chosen from a menu."""
WORDS_KEPT = 20
_WORDS, _HINTS, _MISSING = "challenge_words", "challenge_hints_open", "challenge_missing"


def pair(spec: ExperimentSpec) -> tuple[ExperimentSpec, ExperimentSpec]:
    """The experiment without and with shortcuts, everything else the same."""
    return spec.replace(use_shortcut=False), spec.replace(use_shortcut=True)


def is_answered(posed: Challenge) -> bool:
    """Whether this visitor has committed to both the layer and the direction."""
    return posed.can_be_posed and not _open(posed)


def _open(posed: Challenge) -> list[Posed]:
    return [each for each in (posed.layer, posed.direction) if questions.answered(each) is None]


def rivers(spec: ExperimentSpec, key: str, *headlines: str) -> None:
    """Both trails in one picture, and below it what is to be said about them."""
    two = dict(zip(NAMES, pair(spec), strict=True))
    panels.show(cache.river(two, Quantity.WEIGHTS, None, panels.dark()), key, *headlines)


def verdicts(spec: ExperimentSpec) -> list[str]:
    """What each of the two trails is called, with its numbers."""
    named = zip(NAMES, pair(spec), strict=True)
    return [panels.headline(cache.diagnosed(each, Quantity.WEIGHTS), name) for name, each in named]


def verdict_words(spec: ExperimentSpec) -> str:
    """What both trails are called, in a line."""
    named = zip(NAMES, pair(spec), strict=True)
    words = [f"{name}: {panels.SIGNS[cache.diagnosed(each, Quantity.WEIGHTS).verdict]}." for name, each in named]
    return f"**Weight gradients. {' '.join(words)}**"


def ask(posed: Challenge) -> None:
    """The prediction that is to break and what to name; after the commit, what the measurement says to it."""
    with st.container(border=True):
        if not posed.can_be_posed:
            st.markdown("**The challenge cannot be posed on this experiment.**")
            st.markdown(posed.layer.why_not)
            st.markdown("Choose other settings below: more layers of one width, or another seed.")
        elif is_answered(posed):
            _feedback(posed)
        else:
            _form(posed)
    if posed.can_be_posed:
        _hints(done=is_answered(posed))


# --- the answer -------------------------------------------------------------------------------------------------------


def _form(posed: Challenge) -> None:
    name = questions.identity(posed.layer)
    if questions.answered(cache.posed("where_they_part", *posed.layer.specs)):
        st.markdown("You were told where these two part on another page. Another seed or depth, set below, gives a fresh pair.")
    with st.form(f"challenge_{name}", border=False):
        for each in _open(posed):
            _options(each, f"{each.question.key}_{name}")
        st.segmented_control(
            "How sure are you?", list(Confidence), format_func=CONFIDENCE_TITLES.__getitem__, key=f"challenge_sure_{name}"
        )
        st.text_area(
            "Explain it in your own words, if you like",
            max_chars=MAX_WORDS,
            key=f"challenge_text_{name}",
            height=100,
            help="Nobody but you reads it: it is kept until you close this page, and sent nowhere else.",
        )
        st.form_submit_button("Commit", on_click=_commit, args=(posed, name))
    if missing := st.session_state.pop(_MISSING, ""):
        st.markdown(missing)


def _options(posed: Posed, key: str) -> None:
    texts = {option.key: option.text for option in posed.options}
    chosen: dict[str, Any] = {"index": None, "key": key}
    if len(texts) > RADIO_UP_TO:
        plain = {option: text.replace("`", "") for option, text in texts.items()}  # a menu shows the marks as they are
        st.markdown(posed.text)
        st.selectbox("The layer", list(plain), format_func=plain.__getitem__, placeholder="Choose a layer", **chosen)
    else:
        st.radio(posed.text, list(texts), format_func=texts.__getitem__, **chosen)


def _commit(posed: Challenge, name: str) -> None:
    """Both answers at once, or neither: the reply to one gives the other away."""
    asked = _open(posed)
    chosen = [st.session_state.get(f"{each.question.key}_{name}") for each in asked]
    sure = st.session_state.get(f"challenge_sure_{name}")
    wanted = [*(_TITLES[each.question.key] for each in asked), "how sure you are"]
    missing = [title for title, value in zip(wanted, (*chosen, sure), strict=True) if value is None]
    if missing:
        st.session_state[_MISSING] = f"Choose {listed(missing, 'and')} first."
        return
    try:
        answers = [answer_to(each, str(option), Confidence(str(sure))) for each, option in zip(asked, chosen, strict=True)]
    except (GradlabError, ValueError):
        st.session_state[_MISSING] = "Choose one of the answers."
        return
    for given in answers:
        questions.commit(given)
    words = str(st.session_state.get(f"challenge_text_{name}") or "")[:MAX_WORDS]
    kept = {**st.session_state.get(_WORDS, {}), name: words}
    st.session_state[_WORDS] = dict(list(kept.items())[-WORDS_KEPT:])


_TITLES = {"challenge_layer": "a layer", "challenge_direction": "a direction"}


# --- what the measurement says to it ----------------------------------------------------------------------------------


def _feedback(posed: Challenge) -> None:
    layer, direction = questions.answered(posed.layer), questions.answered(posed.direction)
    if layer is None or direction is None:
        return
    words = st.session_state.get(_WORDS, {}).get(questions.identity(posed.layer), "")
    found = check(posed, layer.option, direction.option, words)
    of_layer, of_direction, measured = found.sentences
    for given, each, right, sentence in (
        (layer, posed.layer, found.layer_right, of_layer),
        (direction, posed.direction, found.direction_right, of_direction),
    ):
        sure = CONFIDENCE_TITLES[given.confidence].lower()
        st.markdown(f"**{'✓' if right else '✗'}** {sentence} You were {sure}.")
        if not right:
            # The numbers it ends with stand below, once for both.
            st.markdown(each.refutation(given.option).removesuffix(each.explanation))
    st.markdown(f"**Measured.** {measured}")
    if len(posed.layer.right) > 1:
        both = " and ".join(f"`{name}`" for name in sorted(posed.layer.right, key=_depth, reverse=True))
        st.markdown(f"Both ends of the bend count as its layer: {both}.")
    if found.free_text:
        st.markdown("**Your own words**, for you to hold against it:")
        st.text(found.free_text)
    st.markdown("Another seed or another depth, set below, is a new challenge.")


def _depth(layer: str) -> int:
    return int(layer.split(".")[1])


# --- hints ------------------------------------------------------------------------------------------------------------


def _hints(done: bool) -> None:
    """The hints that were opened, and a button for the next one while it is still of use."""
    count = int(st.session_state.get(_HINTS, 0))
    for number, hint in enumerate(HINTS[:count], start=1):
        st.markdown(f"**Hint {number}.** {hint}")
    if count < len(HINTS) and not done:
        st.button(f"Open hint {count + 1} of {len(HINTS)}", on_click=_open_hint, args=(count + 1,), key="challenge_hint")


def _open_hint(number: int) -> None:
    st.session_state[_HINTS] = number


def table(spec: ExperimentSpec) -> None:
    """Both readings of every layer in order of arrival, as the picture shows them."""
    trails = [charts.rows_of(cache.trail(each, Quantity.WEIGHTS)) for each in pair(spec)]
    networks = dict(zip(("without", "with"), ({row["layer"]: row for row in trail} for trail in trails), strict=True))
    unusual = [name for name, rows in networks.items() if any(row["status"] != Status.OK for row in rows.values())]
    table = [
        {"layer": layer}
        | {f"{name} shortcuts": rows[layer]["reading"] for name, rows in networks.items()}
        | {f"status {name}": in_words(networks[name][layer]["status"]) for name in unusual}
        for layer in networks["without"]
    ]
    numbers.table(cache.arrow(table), dict.fromkeys(("without shortcuts", "with shortcuts"), numbers.SIZE))
