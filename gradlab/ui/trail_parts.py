"""The parts of the trail page, and what of it stays hidden until the order of arrival was asked."""

from __future__ import annotations

import streamlit as st

from gradlab import charts
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity
from gradlab.ui import cache, controls, in_turn, panels, state, stepper

FOLLOW, READ, LEARN = PARTS = ("Follow", "Read a list", "What it does to learning")
ORDER = "visit_order"
_QUESTIONS = (ORDER, "last_layer", "steepest_step")
_ONCE = _QUESTIONS[:2]
_OF_ONE_PART = ("gradient", "order")
_KEY, _SHOWN = "trail_part", "trail_part_shown"


def part() -> str:
    """The chosen part, before its switch is drawn."""
    chosen = st.session_state.get(_KEY)
    part = chosen if chosen in PARTS else FOLLOW
    if part != st.session_state.get(_SHOWN):
        # What another part does not draw has lost its value, as on another page.
        st.session_state[_SHOWN] = part
        state.choose({name: state.chosen()[name] for name in _OF_ONE_PART})
    return str(part)


def switch() -> None:
    """Draw the switch between the parts."""
    st.segmented_control("Part", PARTS, default=FOLLOW, required=True, key=_KEY, label_visibility="collapsed")


def is_locked(spec: ExperimentSpec) -> bool:
    """Whether the order of arrival is still to be asked: until then nothing shows it."""
    return cache.posed(ORDER, spec).can_be_asked and not in_turn.answered_once(ORDER)


def river(spec: ExperimentSpec, quantity: Quantity, arrived: int) -> None:
    """The trail as far as it has arrived."""
    panels.show(cache.river({"This network": spec}, quantity, arrived, panels.dark()), "trail_river")


def verdict(spec: ExperimentSpec, quantity: Quantity) -> None:
    """What the whole trail is called, and a remark where the other gradient gets another name."""
    for line in panels.verdict(spec, quantity):
        st.markdown(line)


def printed(spec: ExperimentSpec, quantity: Quantity) -> None:
    """The readings in printed order, with nothing said about the way the gradient takes."""
    panels.show(cache.readings(spec, quantity, printed_order=True, dark=panels.dark()), "trail_printed")


def ask(spec: ExperimentSpec, quantity: Quantity) -> None:
    """The questions about the order and the steps; the last one is about the weight gradients."""
    shown = _QUESTIONS if quantity is Quantity.WEIGHTS else _ONCE
    in_turn.ask(in_turn.posed(shown, spec, once=_ONCE), "trail")


def table(spec: ExperimentSpec, quantity: Quantity) -> None:
    """The readings, with the ratio of each to the one before it as soon as the order is known."""
    trail = cache.trail(spec, quantity)
    rows = charts.rows_of(trail)
    if is_locked(spec):
        panels.trail_table(rows, printed_order=True, columns=("layer", "reading", "status"))
        return
    printed_order = controls.order_switch()
    panels.trail_table(stepper.with_going(rows), printed_order, ("step", "layer", "reading", "ratio", "going", "status"))
    st.markdown(stepper.summary(trail))
