"""Reading a printed list in four steps, each checked on the list at hand."""

from __future__ import annotations

import streamlit as st

from gradlab.lessons.questions import WORKED_EXAMPLE
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity, layer_of
from gradlab.ui import cache, in_turn, panels
from gradlab.ui.printed_list import FOLLOWED, START, printed_list

KEYS = tuple(step.question for step in WORKED_EXAMPLE)
HEADINGS = {
    step.question: f"**Step {place} of {len(WORKED_EXAMPLE)}. {step.instruction}**"
    for place, step in enumerate(WORKED_EXAMPLE, 1)
}
_TURNED, _STARTED, _FOLLOWED = 1, 2, 3


def done(spec: ExperimentSpec) -> int:
    """How many of the steps are answered."""
    return in_turn.answered(in_turn.posed(KEYS, spec))


def picture(spec: ExperimentSpec) -> None:
    """The readings in the order of the list; what they say as a whole only after the last step."""
    steps = done(spec)
    readings = cache.readings(spec, Quantity.WEIGHTS, printed_order=steps < _TURNED, dark=panels.dark())
    headlines = panels.verdict(spec, Quantity.WEIGHTS) if steps == len(KEYS) else []
    panels.show(readings, "trail_list", *headlines)


def steps(spec: ExperimentSpec) -> None:
    """The list as far as it has been read, and the step that comes next."""
    trail, answered = cache.trail(spec, Quantity.WEIGHTS), done(spec)
    hidden = {layer_of(name) for name in cache.diagnosed(spec, Quantity.WEIGHTS).fitted_layers}
    follows = answered >= _STARTED and bool(hidden)
    title = "Turned round, the output end first:" if answered >= _TURNED else "The list as it is printed, first layer first:"
    st.markdown(f"**The mean absolute weight gradients.** {title}")
    st.code(
        printed_list(
            trail,
            turned=answered >= _TURNED,
            start=trail["layer"][0] if answered >= _STARTED else "",
            followed=hidden if follows else (),
            ratios=answered >= _FOLLOWED,
        ),
        language=None,
    )
    marks = {
        f"`{START}` is where you start.": answered >= _STARTED,
        f"`{FOLLOWED}` marks the hidden layers that the trend runs through.": follows,
        "`×` is each reading over the one before it.": answered >= _FOLLOWED,
    }
    st.markdown(" ".join(words for words, shown in marks.items() if shown))
    in_turn.ask(in_turn.posed(KEYS, spec), "trail", HEADINGS)
