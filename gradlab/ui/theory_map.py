"""The map on the depth page: theory over weight scale and depth, a network picked from it, and its measurement."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import streamlit as st

from gradlab import charts
from gradlab.charts.factors import PICK
from gradlab.networks import ACTIVATIONS
from gradlab.spec import Activation, ExperimentSpec, NetworkSpec
from gradlab.text import short_number
from gradlab.theory import FactorMap, FactorPrediction, critical_point, predict_factor
from gradlab.theory import factor_map as map_of
from gradlab.trail import Quantity
from gradlab.ui import cache, choices, panels
from gradlab.ui.cache import Picture, kept, picture_of
from gradlab.ui.depth import residual
from gradlab.ui.turns import taking_turns

KEY = "depth_map"
WIDTH = 64
"""Units of a network that is picked from the map."""
SAMPLES = 16
DEPTHS = tuple(range(5, 61, 5))
COLUMNS = 40
"""How many σ_w the map has."""
ABOUT_ONE = (0.95, 1.05)
ANSWERS = {"below": "γ is below 0.95", "about": "γ lies from 0.95 to 1.05", "above": "γ is above 1.05"}
_SAID = "depth_said"


@kept(max_entries=100)
def theory_map(activation: Activation, sigma_b: float) -> FactorMap:
    """Theory over the σ_w from a step to `COLUMNS` steps, and over `DEPTHS`."""
    weights = sigma_ws(step_of(activation, sigma_b))
    with taking_turns(math.inf):
        return map_of(activation, weights, DEPTHS, sigma_b)


@kept(max_entries=100)
def step_of(activation: Activation, sigma_b: float) -> float:
    """From one σ_w of the map to the next: so that the critical one is on it, if it is anywhere near."""
    with taking_turns(math.inf):
        critical = critical_point(activation, sigma_b)
    return 0.1 if critical is None or critical.sigma_w < 3 else 0.5


@kept(max_entries=200)
def _map_picture(activation: Activation, sigma_b: float, picked: tuple[float, int], dark: bool) -> Picture:
    found = theory_map(activation, sigma_b)
    return picture_of(charts.factor_map(found, picked=picked, name=ACTIVATIONS[activation].title, dark=dark))


def pick(spec: ExperimentSpec) -> tuple[float, int]:
    """Draw the map and the sliders; the σ_w and the number of layers that are picked."""
    activation, sigma_b = spec.network.activation, spec.network.sigma_b
    title, step = ACTIVATIONS[activation].title, step_of(activation, sigma_b)
    st.header("A map of theory")
    st.markdown(
        f"γ that theory expects of plain {title} networks: normal initialisation, no shortcuts, no normalisation,"
        f" σ_b = {short_number(sigma_b)}. Click a cell, or move the sliders."
    )
    keys = f"depth_sigma_w_{step:g}", "depth_layers"
    for key, default in zip(keys, (10 * step, 20), strict=True):
        st.session_state.setdefault(key, default)
    place, (left, right) = st.container(), st.columns(2)
    with left:
        sigma_w = st.slider("σ_w", step, round(COLUMNS * step, 6), step=step, key=keys[0])
    with right:
        layers = st.slider("Layers", DEPTHS[0], DEPTHS[-1], step=DEPTHS[1] - DEPTHS[0], key=keys[1])
    picked = (round(sigma_w, 6), layers)
    with place:
        picture = _map_picture(activation, sigma_b, picked, panels.dark())
        st.vega_lite_chart(
            picture.vega_lite, key=KEY, alt=picture.alt_text, width="stretch", on_select=lambda: _clicked(*keys, step),
            selection_mode=PICK,
        )  # fmt: skip
        st.markdown(f"*How to read it.* {picture.how_to_read}")
    return picked


def _clicked(sigma_w_key: str, layers_key: str, step: float) -> None:
    """Move the sliders to the cell that was clicked."""
    event: Any = st.session_state.get(KEY)
    cell = cell_of(event.selection.get(PICK) if event else None, step)
    if cell is not None:
        st.session_state[sigma_w_key], st.session_state[layers_key] = cell


def cell_of(points: object, step: float) -> tuple[float, int] | None:
    """The cell that a selection stands for; None for none, and for what a browser makes up."""
    cell = points[0] if isinstance(points, list) and points and isinstance(points[0], dict) else {}
    sigma_w, layers = cell.get("sigma_w"), cell.get("layers")
    if layers not in DEPTHS or sigma_w not in sigma_ws(step):
        return None
    return float(sigma_w), int(layers)


def sigma_ws(step: float) -> list[float]:
    """The σ_w of the map's columns."""
    return [round(step * column, 6) for column in range(1, COLUMNS + 1)]


def picked_spec(spec: ExperimentSpec, sigma_w: float, layers: int) -> ExperimentSpec:
    """The network at a point of the map, with the experiment's seed. The loss is the sum of the outputs: with a zero target
    the error would be the output itself, made by the same weights."""
    return ExperimentSpec.from_dict(
        {
            "layer_sizes": f"{WIDTH}x{layers + 1}",
            "activation": str(spec.network.activation),
            "initializer": "normal",
            "sigma_w": sigma_w,
            "sigma_b": spec.network.sigma_b,
            "sample_input": "standard_normal",
            "batch_size": SAMPLES,
            "loss": "output_sum",
            "dtype": str(spec.network.dtype),
            "seed": spec.seed,
        }
    )


# --- the question about the pick, and its measurement --------------------------------------------------------------------


def said() -> dict[str, Any] | None:
    """What was answered, and about which network; None before."""
    kept: dict[str, Any] | None = st.session_state.get(_SAID)
    return kept


def ask(spec: ExperimentSpec) -> None:
    """Below, about or above 1? Or, once answered: what was said and what was measured at that network."""
    answer = said()
    with st.container(border=True):
        if answer is None and right_answer(spec) is None:
            st.markdown("At this point no γ can be measured. Pick another one to be asked about it.")
        elif answer is None:
            st.markdown(
                f"**{_words(spec)}, seed {spec.seed}: what will one measurement show?** γ is the factor of the output gradient"
                " per layer toward the input."
            )
            titles, commit = ANSWERS.__getitem__, partial(_commit, spec)
            choices.form("depth_form", "depth_option", ANSWERS, commit, title=titles, button="Commit and measure")
        else:
            _reveal(answer["spec"], answer["option"])


def right_answer(spec: ExperimentSpec) -> str | None:
    """Which of the answers the measurement gives; None where there is no γ."""
    factor = cache.diagnosed(spec, Quantity.OUTPUTS).factor
    if factor is None:
        return None
    return "below" if factor < ABOUT_ONE[0] else "above" if factor > ABOUT_ONE[1] else "about"


def _commit(spec: ExperimentSpec, option: str) -> None:
    if said() is None:
        st.session_state[_SAID] = {"spec": spec, "option": option}


def _reveal(spec: ExperimentSpec, option: str) -> None:
    right = right_answer(spec) == option
    factor = short_number(cache.diagnosed(spec, Quantity.OUTPUTS).factor)
    st.markdown(f"You said: *{ANSWERS[option]}*, at {_words(spec)}.")
    mark = "✓ That is what was measured" if right else "✗ That is not what was measured"
    st.markdown(f"**{mark}: γ = {factor}.** {map_prediction(spec).sentence} Every further point is measured as you pick it.")


def show_pick(spec: ExperimentSpec) -> None:
    """The trail of the picked network, measured, and how far its γ lies from theory's."""
    if said() is None:
        return
    expected, diagnosis = map_prediction(spec), cache.diagnosed(spec, Quantity.OUTPUTS)
    measured = f"γ = {short_number(diagnosis.factor)}" if diagnosis.factor else "no γ"
    beside = residual(diagnosis.factor, expected) if diagnosis.factor else ""
    lines = [
        f"**{_words(spec)}, seed {spec.seed}: {measured} is measured.** {expected.sentence}{beside}",
        panels.headline(diagnosis),
        *expected.caveats,
    ]
    panels.show(cache.river({_words(spec): spec}, Quantity.OUTPUTS, None, panels.dark()), "depth_pick", *lines)


def map_prediction(spec: ExperimentSpec) -> FactorPrediction:
    """What the map expects there: for inputs of mean square 1."""
    return _predicted_network(spec.network)


@kept(max_entries=300)
def _predicted_network(network: NetworkSpec) -> FactorPrediction:
    return predict_factor(network)


def _words(spec: ExperimentSpec) -> str:
    network = spec.network
    return f"σ_w = {short_number(network.sigma_w)}, {network.depth} layers of {WIDTH} units"
