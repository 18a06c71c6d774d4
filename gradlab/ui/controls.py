"""The controls of an experiment, one for each field of the specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.capture import CAPTURE_METHODS
from gradlab.errors import SpecError
from gradlab.networks import ACTIVATIONS, INITIALIZERS, NORMALIZATIONS, PRECISIONS
from gradlab.presets import PRESETS
from gradlab.registry import Choice
from gradlab.spec import FIELDS, MAX_BATCH_SIZE, MAX_SCALE, MAX_SEED, ExperimentSpec
from gradlab.trail import QUANTITY_HELP, Quantity
from gradlab.ui import panels, state
from gradlab.ui.links import VIEWS

OWN = "own settings"
DRAWER = "settings_drawer"
IN_DRAWER = frozenset(FIELDS) - {"layer_sizes", "activation", "seed", "use_shortcut"}
QUANTITY_TITLES = {Quantity.WEIGHTS: "Weight gradients", Quantity.OUTPUTS: "Output gradients"}


def experiment(*, ask_quantity: bool = True, tell: bool = True) -> tuple[ExperimentSpec, Quantity]:
    """Draw the controls; the experiment they describe and which of its gradients is to be shown.

    A lesson link can lock them, which the server enforces, or leave them out. Without `tell`, nothing says what is to be
    seen in a preset: a visitor is to predict it.
    """
    locked = state.controls() == "locked"
    quantity = _quantity() if ask_quantity else Quantity(state.chosen()["gradient"])
    if state.controls() == "hidden":
        return state.chosen_spec(), quantity
    if locked:
        st.markdown("🔒 The link you came by has set this experiment.")
    if not st.session_state.get(DRAWER):
        state.forget(IN_DRAWER)  # what was being tried in it and could not be run
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _preset(locked, tell)
        st.text_input(
            "Layer sizes",
            key=state.widget("layer_sizes"),
            max_chars=1000,
            help="Input size first, joined by '-'. `64x21` is the size 64, 21 times: 20 layers.",
            width=220,
            disabled=locked,
        )
        _choice("Activation", "activation", ACTIVATIONS, locked, width=190)
        st.number_input(
            "Seed",
            0,
            MAX_SEED,
            key=state.widget("seed"),
            help="Where all random numbers come from.",
            width=150,
            disabled=locked,
        )
        _toggle("Shortcuts", "use_shortcut", "Add a layer's input to its output where both have the same size.", locked)
    more = panels.drawer("More settings", DRAWER)
    if more.open:
        with more:
            _more_settings(locked)
    spec, error = state.from_widgets()
    if error is not None:
        st.error("This experiment cannot be run. You still see the last one that could.")
        st.text(str(error))
    return spec, quantity


def both_are_measured(remark: str) -> str:
    """What a page says that measures without and with shortcuts: of the switch only where there is one."""
    return remark if state.controls() == "hidden" else f"{remark}, whatever the switch *Shortcuts* says"


def order_switch() -> bool:
    """Draw the switch of the reading direction; whether the list is to be shown as it is printed."""
    titles = {"arrival": "Order of arrival", "printed": "Printed order"}
    options, key = VIEWS["order"], state.widget("order")
    st.segmented_control("List the layers in", options, required=True, format_func=titles.__getitem__, key=key)
    return state.view("order") == "printed"


def _quantity() -> Quantity:
    st.segmented_control(
        "Which gradient",
        VIEWS["gradient"],
        required=True,
        format_func=lambda quantity: QUANTITY_TITLES[Quantity(quantity)],
        key=state.widget("gradient"),
        label_visibility="collapsed",
    )
    quantity = Quantity(state.view("gradient"))
    st.markdown(QUANTITY_HELP[quantity])
    return quantity


def _more_settings(locked: bool) -> None:
    left, middle, right = st.columns(3)
    with left:
        _choice("Initialisation", "initializer", INITIALIZERS, locked)
        _number("Gain", "gain", "Multiplies the initial weights.", locked, low=-MAX_SCALE)
        _number("σ_w", "sigma_w", "Weights have variance σ_w²/fan_in; used by the normal initialisation.", locked)
        _number("σ_b", "sigma_b", "Biases have variance σ_b²; used by the normal initialisation.", locked)
    with middle:
        _choice("Normalisation", "normalization", NORMALIZATIONS, locked)
        _choice("Precision", "dtype", PRECISIONS, locked)
        _toggle("Biases", "use_bias", "Without them each layer is a matrix and its activation.", locked)
        _toggle("Activation on the last layer", "activate_last", "Off: the network ends in a linear map.", locked)
    with right:
        _choice("Input", "sample_input", SAMPLE_INPUTS, locked)
        st.number_input(
            "Batch size",
            1,
            MAX_BATCH_SIZE,
            key=state.widget("batch_size"),
            help="How many samples go in at once.",
            disabled=locked,
        )
        _choice("Loss", "loss", LOSSES, locked)
        _choice("Target", "target", TARGETS, locked)
        _choice("Capture method", "capture_method", CAPTURE_METHODS, locked)


def _choice(label: str, field: str, registry: Mapping[Any, Choice[Any]], locked: bool, width: Any = "stretch") -> None:
    titles = {str(option): entry.title for option, entry in registry.items()}
    explained = [f"**{entry.title}**: {entry.help}" for entry in registry.values()]
    st.selectbox(
        label,
        list(titles),
        format_func=titles.__getitem__,
        key=state.widget(field),
        help="\n\n".join(explained),
        width=width,
        disabled=locked,
    )


def _toggle(label: str, field: str, explanation: str, locked: bool) -> None:
    st.toggle(label, key=state.widget(field), help=explanation, disabled=locked)


def _number(label: str, field: str, explanation: str, locked: bool, low: float = 0.0) -> None:
    st.number_input(label, low, MAX_SCALE, step=0.1, format="%.4g", key=state.widget(field), help=explanation, disabled=locked)


def _preset(locked: bool, tell: bool) -> None:
    """A starting point. It always names what the controls say, so that a changed control shows as own settings."""
    try:
        current = ExperimentSpec.from_dict(state.described())
    except SpecError:
        current = None
    st.session_state["preset"] = next((name for name, preset in PRESETS.items() if preset.spec == current), OWN)
    st.selectbox(
        "Experiment",
        [*PRESETS, OWN],
        format_func=lambda name: PRESETS[name].title if name in PRESETS else "Your own settings",
        key="preset",
        on_change=_load_preset,
        help="\n\n".join(f"**{preset.title}**: {preset.look_for}" for preset in PRESETS.values()) if tell else None,
        width=290,
        disabled=locked,
    )


def _load_preset() -> None:
    preset = PRESETS.get(st.session_state["preset"])
    if preset is not None:
        state.choose(preset.spec.to_dict())
