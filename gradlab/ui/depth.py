"""The depth page: γ measured at many seeds beside the γ that theory expects, and a map of theory to pick networks from."""

from __future__ import annotations

import math
from collections.abc import Mapping

import streamlit as st

from gradlab import charts
from gradlab.lessons.many_seeds import ManySeeds
from gradlab.networks import ACTIVATIONS, INITIALIZERS, NORMALIZATIONS
from gradlab.spec import Activation, ExperimentSpec, Normalization
from gradlab.text import counted, short_number
from gradlab.theory import Basis, FactorPrediction, predict_factor
from gradlab.trail import Quantity
from gradlab.ui import cache, ensembles, numbers, panels, state
from gradlab.ui.cache import Picture, kept, picture_of, shared
from gradlab.ui.ensembles import Measured
from gradlab.ui.links import VIEWS
from gradlab.ui.turns import taking_turns

KEY = "depth_factors"
WIDE = "64x21"
"""The sizes at which theory is tried unless the visitor's own are asked for: 20 layers of 64 units."""
SEEDS = 50
FEWEST = 10
"""With fewer seeds for each activation than this, only the chosen one is measured."""
_SIZES = {"wide": "20 layers of 64 units", "own": "Your own layer sizes"}
_EVERY = "depth_every_asked"
"""Of which experiment every activation was asked for."""
_NORMALIZED = {name: entry.title for name, entry in NORMALIZATIONS.items()}

# --- measured beside predicted ------------------------------------------------------------------------------------------


def sizes() -> str:
    """Draw the choice of the layer sizes at which is measured; the chosen option."""
    st.segmented_control(
        "At which sizes", VIEWS["measured_sizes"], required=True, format_func=_SIZES.__getitem__,
        key=state.widget("measured_sizes"), help="Theory is about wide networks: its numbers are for 16 units or more.",
    )  # fmt: skip
    return state.view("measured_sizes")


def at_sizes(spec: ExperimentSpec, option: str) -> ExperimentSpec:
    """The experiment at the sizes that are asked for."""
    return spec if option == "own" else spec.replace(layer_sizes=WIDE)


@shared(max_entries=500)
def _predicted(spec: ExperimentSpec) -> FactorPrediction:
    with taking_turns(math.inf):  # hundreds of small steps, each of which waits for whoever else has the interpreter
        return predict_factor(spec)


def predicted(spec: ExperimentSpec) -> FactorPrediction:
    """What theory expects; it is about no seed in particular."""
    return _predicted(ensembles.without_seed(spec))


@kept(max_entries=200)
def _rows_picture(specs: dict[str, ExperimentSpec], measured: dict[str, Measured], chosen: str, dark: bool) -> Picture:
    rows = []
    for name, spec in specs.items():
        expected = predicted(spec)
        found = ensembles.summary(ensembles.without_seed(spec), *measured[name], Quantity.OUTPUTS) if name in measured else None
        rows.append(
            charts.FactorRow(
                name=name,
                measured=found.factors if found else None,
                predicted=expected.factor,
                predicted_at_most=expected.factor_at_most,
                is_chosen=name == chosen,
                waits=found is None,
            )
        )
    hue = int(specs[chosen].network.use_shortcut)
    return picture_of(charts.factors(rows, hue=hue, dark=dark))


def show(spec: ExperimentSpec) -> dict[str, ManySeeds]:
    """Measure γ for each activation and draw it beside theory's; what was found, by the activation's title."""
    chosen = ACTIVATIONS[spec.network.activation].title
    specs = {ACTIVATIONS[each].title: spec.replace(activation=str(each)) for each in Activation}
    total = min(ensembles.affordable_seeds(each, SEEDS, networks=len(specs)) for each in specs.values())
    only_one = total < FEWEST
    if only_one:
        specs, total = {chosen: spec}, ensembles.affordable_seeds(spec, SEEDS)
    every = _is_start(spec) or st.session_state.get(_EVERY) == _family(spec)
    wanted = specs if every else {chosen: spec}

    def picture(measured: dict[str, Measured]) -> Picture:
        return _rows_picture(specs, measured, chosen, panels.dark())

    place = st.container()
    with place:
        measured = ensembles.measure(wanted, total, "depth", picture, asked=every)
    found = {
        name: ensembles.summary(ensembles.without_seed(specs[name]), *each, Quantity.OUTPUTS) for name, each in measured.items()
    }
    lines = [_headline(chosen, found.get(chosen), predicted(spec)), _setting(spec, total, found)]
    if only_one:
        lines.append("Networks of this size take so long that only the chosen activation is measured.")
    with place:
        panels.show(picture(measured), KEY, *lines)
        ensembles.ask_for_the_rest("depth")
    return found


def _family(spec: ExperimentSpec) -> ExperimentSpec:
    """The experiment whatever its activation and seed."""
    return ensembles.without_seed(spec.replace(activation=ExperimentSpec().network.activation))


def _is_start(spec: ExperimentSpec) -> bool:
    """Whether it is what everybody begins with, whose activations are measured once for all visitors."""
    return _family(spec) == _family(ExperimentSpec().replace(layer_sizes=WIDE))


def every_button(spec: ExperimentSpec) -> None:
    """Draw the button that has every activation measured, where only the chosen one is unless it is asked for."""
    if not _is_start(spec) and st.session_state.get(_EVERY) != _family(spec):
        explanation = "Nine networks instead of one, each at many seeds: some seconds."
        st.button("Measure every activation", key="depth_every", on_click=_ask_for_every, args=(spec,), help=explanation)


def _ask_for_every(spec: ExperimentSpec) -> None:
    st.session_state[_EVERY] = _family(spec)


def _setting(spec: ExperimentSpec, total: int, found: Mapping[str, ManySeeds]) -> str:
    network = spec.network
    widths = sorted(set(network.layer_sizes[1:-1])) or [network.output_size]
    width = counted(widths[0], "unit") if len(widths) == 1 else f"{widths[0]} to {widths[-1]} units"
    extras = [
        INITIALIZERS[network.initializer].title,
        "with shortcuts" if network.use_shortcut else "without shortcuts",
        *([] if network.normalization is Normalization.NO_NORM else [_NORMALIZED[network.normalization]]),
    ]
    layers = f"{counted(network.depth, 'layer')} of {width}"
    fewest = min((each.seeds for each in found.values()), default=0)
    seeds = f"{counted(total, 'seed')} each"
    if fewest < total:
        seeds = f"{fewest:,} of {total:,} seeds{' or more' if len(found) > 1 else ''}"
    return f"Measured: output gradients, {layers}, {', '.join(extras)}, {seeds}."


def _headline(name: str, found: ManySeeds | None, expected: FactorPrediction) -> str:
    if found is None:
        measured = "not measured"
    elif found.factors is None:
        measured = f"no γ at {ensembles.any_seed(found)} ({', '.join(panels.SIGNS[verdict] for verdict in found.verdicts)})"
    else:
        low, median, high = map(short_number, found.factors)
        measured = f"γ = {median} is measured at the median seed, 8 of 10 from {low} to {high}"
        if found.judged < found.seeds:
            measured += f", of the {found.judged:,} of {found.seeds:,} seeds that have one"
    beside = residual(found.factors[1], expected) if found and found.factors else ""
    return f"**{name}: {measured}.** {expected.sentence}{beside}"


def residual(measured: float, expected: FactorPrediction) -> str:
    """How far the measured factor lies from the expected one, or from the range."""
    if expected.factor is None:
        return ""
    most = max(expected.factor, expected.factor_at_most or 0.0)
    if most > 1.01 * expected.factor and expected.factor <= measured <= most:
        return " **The measured median lies in that range.**"
    nearest = expected.factor if measured < expected.factor else most
    return f" **Measured is {difference(measured, nearest)}.**"


def difference(measured: float, expected: float) -> str:
    """Such as `2.1 % below`; `equal to three digits` where it is."""
    if short_number(measured) == short_number(expected):
        return "the same to three digits"
    percent = 100 * abs(measured / expected - 1)
    words = f"{percent:.2g} %" if percent < 99.5 else f"{short_number(percent)} %"
    return f"{words} {'above' if measured > expected else 'below'}"


def why(spec: ExperimentSpec) -> None:
    """What to keep in mind when the two stand side by side, and where gradients would neither shrink nor grow."""
    expected, network = predicted(spec), spec.network
    lines, critical = list(expected.caveats), ""
    if expected.critical and expected.sigma_w and not network.use_shortcut:
        jump = ", in a jump" if expected.critical.abrupt else ""
        critical = (
            f"The critical σ_w of {ACTIVATIONS[network.activation].title} with this input and these biases is"
            f" {short_number(expected.critical.sigma_w)}: there gradients pass from shrinking to growing{jump}. This network"
            f" has σ_w {short_number(expected.sigma_w)}."
        )
    if expected.basis is Basis.SHORTCUTS:
        lines.append("With shortcuts theory gives a range: from independent layers to units that share a sign.")
    if lines:
        st.markdown("**Why the two can differ**\n\n" + "\n".join(f"- {line}" for line in lines))
    if critical:
        st.markdown(critical)


def table(specs: Mapping[str, ManySeeds]) -> None:
    """Every activation: measured, expected, and the difference."""
    rows = []
    for name, found in specs.items():
        expected = predicted(found.spec)
        low, median, high = found.factors or (None, None, None)
        rows.append(
            {
                "activation": name,
                "γ, median": median,
                "10 %": low,
                "90 %": high,
                "theory": _range(expected),
                "difference": _residual_cell(median, expected),
                "seeds with a γ": found.judged,
            }
        )
    if rows:
        st.header("In numbers")
        measured = [factor for found in specs.values() for factor in found.factors or ()]
        digits = "%.3f" if all(0.1 <= factor < 10 for factor in measured) else numbers.FACTOR
        numbers.table(cache.arrow(rows), dict.fromkeys(("γ, median", "10 %", "90 %"), digits))


def _range(expected: FactorPrediction) -> str:
    most = expected.factor_at_most
    return short_number(expected.factor) + (f" to {short_number(most)}" if most and most != expected.factor else "")


def _residual_cell(median: float | None, expected: FactorPrediction) -> str:
    if median is None or expected.factor is None:
        return "–"
    return residual(median, expected).strip(" *.").removeprefix("Measured is ").removeprefix("The measured median lies ")
