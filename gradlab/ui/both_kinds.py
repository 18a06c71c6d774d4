"""The output page's parts: both gradients of the same layers, what ties them, their shapes, and what to look for."""

from __future__ import annotations

import pyarrow
import streamlit as st

from gradlab.capture import STATUS_HELP, OutputGradient
from gradlab.diagnosis import disagreement
from gradlab.experiment import ExperimentResult
from gradlab.lessons.both_kinds import cancels, factors, identity
from gradlab.presets import PRESETS
from gradlab.spec import ExperimentSpec
from gradlab.text import in_words, short_number
from gradlab.trail import QUANTITY_HELP, Quantity
from gradlab.ui import cache, in_turn, numbers, panels, state

TWO_TRENDS, WHICH, STORED = "two_trends", "which_is_which", "stored"
QUESTIONS = (TWO_TRENDS, WHICH, STORED, "zero_or_none", "none_means")
PARADOX = "bias_free_relu"
TIES, SHAPES, LOOK = PARTS = ("What ties them", "Shapes", "What to look for")
_DIGITS = dict.fromkeys(("norm", "min", "max"), numbers.SIZE)


def ask(spec: ExperimentSpec) -> None:
    """The questions one after the other, each once: in a visit they need not be answered again for every experiment."""
    asked = in_turn.posed(QUESTIONS, spec, once=QUESTIONS)
    in_turn.ask([posed for posed in asked if posed.can_be_asked], "outputs")


def is_open(question: str, spec: ExperimentSpec) -> bool:
    """Whether the question is still to be answered: until then the page does not say it."""
    return cache.posed(question, spec).can_be_asked and not in_turn.answered_once(question)


def show(spec: ExperimentSpec) -> None:
    """Both gradients in one picture; the verdict on each once their trends are no longer asked."""
    panels.show(cache.both_kinds_picture(spec, panels.dark()), "outputs_both", *_verdicts(spec))


def _verdicts(spec: ExperimentSpec) -> list[str]:
    if is_open(TWO_TRENDS, spec):
        return ["**One backward pass, two gradients at every layer.** Compare the two lines; the verdicts follow your answer."]
    weights, outputs = (cache.diagnosed(spec, quantity) for quantity in (Quantity.WEIGHTS, Quantity.OUTPUTS))
    remark = disagreement(outputs, weights)
    return [panels.headline(weights), panels.headline(outputs), *([remark] if remark else [])]


def lesson(spec: ExperimentSpec) -> None:
    """A switch between the three parts, and the chosen one."""
    part = st.segmented_control("Part", PARTS, default=TIES, required=True, key="outputs_part", label_visibility="collapsed")
    {TIES: ties, SHAPES: shapes, LOOK: look}[part or TIES](spec, cache.measured(spec))


# --- what ties them ---------------------------------------------------------------------------------------------------


def ties(spec: ExperimentSpec, result: ExperimentResult) -> None:
    """The identity with both sides for every layer, and the network in which the two trends part."""
    samples = spec.batch.batch_size
    st.header("What ties the two together?")
    st.markdown(
        f"**‖∂L/∂W‖ {'=' if samples == 1 else '≤'} ‖δ‖ · ‖h‖**. On the left the weight gradient of a layer. On the right the"
        " gradient δ at the output of its linear map, times h, what went into the map. ‖ ‖ is the L2 norm."
    )
    st.markdown(identity(result))
    rows = cache.both_kinds(spec)
    share = "left ÷ right" if samples > 1 else "rel. difference"
    left, right = "‖∂L/∂W‖", "‖δ‖ · ‖h‖"
    table = [
        {
            "layer": row.layer,
            left: row.weight_norm,
            right: row.product,
            share: row.share if samples > 1 or row.share is None else abs(row.share - 1),
        }
        for row in rows
    ]
    digits = {left: numbers.SIZE, right: numbers.SIZE, share: "%.3f" if samples > 1 else numbers.SIZE}
    numbers.table(cache.arrow(table), digits, key="outputs_ties")
    _paradox(spec, result)


def _paradox(spec: ExperimentSpec, result: ExperimentResult) -> None:
    """What each factor does along the layers, and the button to the network where one cancels the other."""
    words = "" if is_open(TWO_TRENDS, spec) else factors(result)
    if words and cancels(result):
        words += (
            " The first two cancel, so the weight gradient keeps about its size. Without biases and with ReLU the sum of"
            " W · ∂L/∂W over the entries is the same in every layer (Du, Hu & Lee 2018). Whoever looks at the weight gradients"
            " alone does not see what happens to the signal."
        )
    if words:
        st.markdown(words)
    if spec != PRESETS[PARADOX].spec and state.controls() == "open":
        st.button("Load the bias-free ReLU network", on_click=_load, key="outputs_paradox")
        st.markdown("Twelve layers without biases. See what each of the two gradients does there.")


def _load() -> None:
    state.choose(PRESETS[PARADOX].spec.to_dict())


# --- shapes -----------------------------------------------------------------------------------------------------------


def shapes(spec: ExperimentSpec, result: ExperimentResult) -> None:
    """Both gradients of a chosen layer: shape, norm, what each says, and which of them is kept."""
    st.header("Which shape does each have?")
    if is_open(WHICH, spec):
        st.markdown("Which of two shapes belongs to which gradient is one of the questions above. They stand here after it.")
        return
    rows = {row.layer: row for row in cache.both_kinds(spec)}
    chosen = rows[st.selectbox("Layer", list(rows), key="outputs_layer", width=220) or next(iter(rows))]
    weight, output = chosen.weight, chosen.output
    lines = {
        "shape": (_shape(weight.shape), _shape(output.shape)),
        "of": ("outputs × inputs", "batch × outputs"),
        "L2 norm": (_norm(chosen.weight_norm, weight.status), _norm(chosen.output_norm, output.status)),
        "it says": (QUANTITY_HELP[Quantity.WEIGHTS], QUANTITY_HELP[Quantity.OUTPUTS]),
    }
    if not is_open(STORED, spec):
        stored = f"in `.grad` of `{weight.parameter}`" if result.filled_after else "nowhere: backward left no gradient"
        lines["after backward"] = (stored, "dropped; a hook noted it as it passed")
    body = [f"| {name} | {left} | {right} |" for name, (left, right) in lines.items()]
    st.markdown("\n".join([f"| `{chosen.layer}` | weight gradient | output gradient |", "|:---|:---|:---|", *body]))


def _shape(shape: tuple[int, ...] | None) -> str:
    return f"**{' × '.join(map(str, shape))}**" if shape else "–"


def _norm(norm: float | None, status: str) -> str:
    return f"**{short_number(norm)}**" if norm is not None else in_words(status)


# --- what to look for -------------------------------------------------------------------------------------------------


def look(spec: ExperimentSpec, result: ExperimentResult) -> None:
    """What is unusual in this network, its output gradients as a table, and the four signs on a network that has them all."""
    st.header("What is there to look for?")
    flags = cache.diagnosed(spec, Quantity.OUTPUTS)
    if flags.flags:
        panels.flags(flags)
    else:
        st.markdown("In this network no layer stands out: none is all zero, tiny, huge or without a gradient.")
    rows = cache.both_kinds(spec)
    table = _table([(row.layer, row.output) for row in rows])
    if is_open(WHICH, spec):
        table = table.drop_columns("shape")
    numbers.table(table, _DIGITS, key="outputs_look")
    if is_open("none_means", spec):
        st.markdown("What a gradient of `None` tells you is one of the questions above. All four signs stand here after it.")
        return
    signs = cache.signs()
    st.markdown("**Four signs, on four layers made for them.** One small network, one backward pass:")
    st.markdown("\n".join(f"- **{sign.title}** (`{sign.record.layer}`: {sign.how}). {sign.means}" for sign in signs))
    table = _table([(sign.record.layer, sign.record) for sign in signs])
    numbers.table(table, _DIGITS, key="outputs_signs")
    with st.expander("What does the status say?"):
        statuses = dict.fromkeys(record.status for record in [*(row.output for row in rows), *(sign.record for sign in signs)])
        st.markdown("\n".join(f"- **{in_words(status)}**: {STATUS_HELP[status]}" for status in statuses))


def _table(rows: list[tuple[str, OutputGradient]]) -> pyarrow.Table:
    """Layer, norm, smallest and largest entry, shape and status; where there is no number the cell is empty, never 0."""
    statistics = [record.statistics for _, record in rows]
    finite = [None if of is None or of.nonfinite_count else of for of in statistics]
    return pyarrow.table(
        {
            "layer": [layer for layer, _ in rows],
            "norm": [of and of.norm for of in finite],
            "min": [of and of.min for of in finite],
            "max": [of and of.max for of in finite],
            "shape": [" × ".join(map(str, record.shape or ())) for _, record in rows],
            "status": [in_words(record.status) for _, record in rows],
        }
    )
