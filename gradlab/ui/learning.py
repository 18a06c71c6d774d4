"""Why it matters: how far each layer's weights move in a few optimiser steps."""

from __future__ import annotations

import streamlit as st

from gradlab.errors import GradlabError
from gradlab.lessons.learning import LEARNING_RATES, OPTIMIZERS, Optimizer
from gradlab.lessons.moved import moved
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity, layer_of
from gradlab.ui import cache, panels

STEPS = ("1", "5", "20")
_KEY = "trail_steps"


def picture(spec: ExperimentSpec) -> None:
    """How far the weights moved and what that says; the readings with a reason where that takes too long."""
    steps = int(st.session_state.get(_KEY) or STEPS[1])
    try:
        movements = {optimizer: cache.movement(spec, steps, optimizer) for optimizer in Optimizer}
    except GradlabError as error:
        readings = cache.readings(spec, Quantity.WEIGHTS, printed_order=False, dark=panels.dark())
        panels.show(readings, "trail_movement", "You see the weight gradients instead of what they move.", f"{error}.")
        return
    fitted = [layer_of(name) for name in cache.diagnosed(spec, Quantity.WEIGHTS).fitted_layers]
    panels.show(cache.movement_picture(spec, steps, panels.dark()), "trail_movement", moved(movements, fitted, steps))


def lesson() -> None:
    """How many steps, and what each optimiser does with a gradient."""
    st.segmented_control("Optimiser steps", STEPS, default=STEPS[1], required=True, key=_KEY)
    rates = {optimizer: f"learning rate {LEARNING_RATES[optimizer]:g}" for optimizer in Optimizer}
    lines = [f"- **{entry.title}** ({rates[optimizer]}). {entry.help}" for optimizer, entry in OPTIMIZERS.items()]
    st.markdown("\n".join(lines))
    st.markdown(
        "Layers near the input learn from the gradient that reaches them last. A small gradient at one layer is not the point:"
        " look at where the line goes over several layers."
    )
