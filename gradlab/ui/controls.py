"""The controls of an experiment. Each is one field of the specification, in the URL under the field's own name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.capture import CAPTURE_METHODS
from gradlab.errors import SpecError
from gradlab.networks import ACTIVATIONS, INITIALIZERS, NORMALIZATIONS
from gradlab.presets import PRESETS
from gradlab.registry import Choice
from gradlab.spec import (
    FIELDS,
    MAX_BATCH_SIZE,
    MAX_SCALE,
    MAX_SEED,
    ExperimentSpec,
    Precision,
    sizes_to_text,
)

DEFAULTS: dict[str, Any] = ExperimentSpec().to_dict()
OWN = "own settings"
MAX_PRODUCTS = 500_000_000
"""Multiplications of one forward run (weights × batch size) that a shared server takes on: about a second of one core."""
_REMEMBERED = "experiment"
_LAST_POSSIBLE = "last_possible_experiment"


def experiment() -> ExperimentSpec:
    """Draw the controls and return the experiment they describe, or the last one that was possible.

    The choice is remembered for the session, so that a page without controls does not lose it, and it is in the URL.
    """
    _recall()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _preset()
        st.text_input(
            "Layer sizes",
            value=DEFAULTS["layer_sizes"],
            key="layer_sizes",
            max_chars=200,
            help="Input size first, joined by '-'. `64x21` is the size 64, 21 times: 20 layers.",
            bind="query-params",
            width=220,
        )
        _choice("Activation", "activation", ACTIVATIONS, width=180)
        st.number_input("Seed", 0, MAX_SEED, DEFAULTS["seed"], key="seed", bind="query-params", width=150)
        _toggle("Shortcuts", "use_shortcut", "Add a layer's input to its output where both have the same size.")
    with st.expander("More settings"):
        _more_settings()
    flat = {name: st.session_state[name] for name in FIELDS}
    st.session_state[_REMEMBERED] = flat
    try:
        spec = ExperimentSpec.from_dict(flat)
        check_affordable(spec)
    except SpecError as error:
        st.error("This experiment cannot be run, so you still see the last one that could.")
        st.text(str(error))
        return st.session_state.get(_LAST_POSSIBLE, ExperimentSpec())  # type: ignore[no-any-return]
    st.session_state[_LAST_POSSIBLE] = spec
    return spec


def remembered() -> ExperimentSpec:
    """The experiment chosen earlier in this session, for a page without controls."""
    return st.session_state.get(_LAST_POSSIBLE, ExperimentSpec())  # type: ignore[no-any-return]


def check_affordable(spec: ExperimentSpec) -> None:
    """Raise SpecError for an experiment that would keep everybody else on a shared server waiting."""
    products = spec.network.parameter_count * spec.batch.batch_size
    if products > MAX_PRODUCTS:
        raise SpecError(
            "layer_sizes",
            sizes_to_text(spec.network.layer_sizes),
            f"on a shared server, weights × batch size of at most {MAX_PRODUCTS:,}; this one has {products:,}."
            " The Python core runs it",
        )


def _more_settings() -> None:
    left, middle, right = st.columns(3)
    with left:
        _choice("Initialisation", "initializer", INITIALIZERS)
        _number("Gain", "gain", "Multiplies the initial weights.", low=-MAX_SCALE)
        _number("σ_w", "sigma_w", "Weights have variance σ_w²/fan_in; used by the normal initialisation.")
        _number("σ_b", "sigma_b", "Biases have variance σ_b²; used by the normal initialisation.")
    with middle:
        _choice("Normalisation", "normalization", NORMALIZATIONS)
        _choice("Precision", "dtype", {precision: precision.value for precision in Precision})
        _toggle("Biases", "use_bias", "Without them each layer is a matrix and its activation.")
        _toggle("Activation on the last layer", "activate_last", "Off: the network ends in a linear map.")
    with right:
        _choice("Input", "sample_input", SAMPLE_INPUTS)
        st.number_input("Batch size", 1, MAX_BATCH_SIZE, DEFAULTS["batch_size"], key="batch_size", bind="query-params")
        _choice("Loss", "loss", LOSSES)
        _choice("Target", "target", TARGETS)
        _choice("Capture method", "capture_method", CAPTURE_METHODS)


def _choice(label: str, field: str, registry: Mapping[Any, Choice[Any] | str], width: Any = "stretch") -> None:
    options = [str(option) for option in registry]
    titles = {str(option): entry if isinstance(entry, str) else entry.title for option, entry in registry.items()}
    explained = [f"**{entry.title}**: {entry.help}" for entry in registry.values() if not isinstance(entry, str)]
    st.selectbox(
        label,
        options,
        index=options.index(str(DEFAULTS[field])),
        format_func=titles.__getitem__,
        key=field,
        help="\n\n".join(explained) or None,
        bind="query-params",
        width=width,
    )


def _toggle(label: str, field: str, explanation: str) -> None:
    st.toggle(label, value=bool(DEFAULTS[field]), key=field, help=explanation, bind="query-params")


def _number(label: str, field: str, explanation: str, low: float = 0.0) -> None:
    st.number_input(
        label, low, MAX_SCALE, float(DEFAULTS[field]), step=0.1, format="%.4g", key=field, help=explanation, bind="query-params"
    )


def _preset() -> None:
    """A starting point. It always names what the controls say, so a changed control shows as own settings."""
    st.session_state["preset"] = next((name for name, preset in PRESETS.items() if _matches(preset.spec)), OWN)
    st.selectbox(
        "Experiment",
        [*PRESETS, OWN],
        format_func=lambda name: PRESETS[name].title if name in PRESETS else "Your own settings",
        key="preset",
        on_change=_load_preset,
        width=290,
    )


def _matches(spec: ExperimentSpec) -> bool:
    return all(st.session_state.get(name, DEFAULTS[name]) == value for name, value in spec.to_dict().items())


def _load_preset() -> None:
    preset = PRESETS.get(st.session_state["preset"])
    if preset is not None:
        st.session_state.update(preset.spec.to_dict())


def _recall() -> None:
    """Give the controls the values they had on another page, unless the URL says otherwise."""
    for name, value in st.session_state.get(_REMEMBERED, {}).items():
        if name not in st.session_state and name not in st.query_params:
            st.session_state[name] = value
