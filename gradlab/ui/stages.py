"""The measure page's lesson: what exists after each stage, how a matrix becomes one number, and the lines that do it."""

from __future__ import annotations

import math

import streamlit as st

from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.capture import ParameterGradient
from gradlab.experiment import ExperimentResult
from gradlab.lessons.snippets import MEASUREMENT
from gradlab.text import short_number
from gradlab.trail import layer_of
from gradlab.ui import cache, code, panels, questions
from gradlab.ui.cache import Picture

SECTIONS = ("Stages", "Matrix", "Lines of code")
STAGES = ("1 Forward", "2 Loss", "3 Backward")
_ASKED = dict(zip(STAGES, ("forward_hands_on", "loss_hands_on", "backward_hands_on"), strict=True))
_VALUES_SHOWN = 4


def lesson(result: ExperimentResult) -> None:
    """A switch between the three parts of the lesson, and the chosen one."""
    chosen = st.segmented_control(
        "Part", SECTIONS, default=SECTIONS[0], required=True, key="measure_part", label_visibility="collapsed"
    )
    {SECTIONS[0]: stages, SECTIONS[1]: matrix, SECTIONS[2]: lines_of_code}[chosen or SECTIONS[0]](result)


# --- the three stages -------------------------------------------------------------------------------------------------


def stages(result: ExperimentResult) -> None:
    """A switch between the stages, what exists after the chosen one, and what it hands on."""
    st.header("What exists after each stage?")
    chosen = st.segmented_control("Stage", STAGES, default=STAGES[0], required=True, key="stage", label_visibility="collapsed")
    stage = chosen or STAGES[0]
    st.markdown({STAGES[0]: _forward, STAGES[1]: _loss, STAGES[2]: _backward}[stage](result))
    st.markdown(_existing(result, STAGES.index(stage)))
    questions.ask(cache.posed(_ASKED[stage], result.spec), page="measure")


def _forward(result: ExperimentResult) -> str:
    spec = result.spec
    shape = f"{spec.batch.batch_size} × {spec.network.input_size}"
    return f"The input ({SAMPLE_INPUTS[spec.batch.sample_input].title.lower()}, {shape}) goes in, an output comes out."


def _loss(result: ExperimentResult) -> str:
    spec = result.spec
    target = TARGETS[spec.batch.target].title.lower()
    return f"The output is compared with the target ({target}). {LOSSES[spec.loss].title}: {LOSSES[spec.loss].help}"


def _backward(result: ExperimentResult) -> str:
    arrived = result.arrival_order
    where = f" The first gradient arrived at `{arrived[0]}`, the last at `{arrived[-1]}`." if arrived else ""
    return f"`loss.backward()` computes how this one number changes with every parameter.{where}"


def _existing(result: ExperimentResult, stage: int) -> str:
    """What there is after a stage as a small table: the output, the loss, and `.grad` of the first weight."""
    first, filled = result.parameters[0], (result.filled_before, result.filled_before, result.filled_after)[stage]
    rows = {
        f"output ({len(result.output)} × {len(result.output[0])})": _beginning(result.output[0]),
        "loss": f"**{value_words(result.loss)}**" if stage > 0 else "not yet",
        f"`.grad` of `{first.parameter}`": _gradient(first) if stage > 1 else "`None`",
        "parameters that have a `.grad`": f"**{filled} of {len(result.parameters)}**",
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join([f"| after {STAGES[stage][2:].lower()} | what there is |", "|:---|:---|", *lines])


def _beginning(values: tuple[float, ...]) -> str:
    more = " …" if len(values) > _VALUES_SHOWN else ""
    return f"**{', '.join(map(value_words, values[:_VALUES_SHOWN]))}**{more}"


def _gradient(record: ParameterGradient) -> str:
    statistics, shape = record.statistics, " × ".join(map(str, record.shape or ()))
    if statistics is None:
        return "`None`"
    if statistics.nonfinite_count:
        return f"{shape} numbers, {statistics.nonfinite_count} of them NaN or infinite"
    return f"**{shape} numbers**, from {short_number(statistics.min)} to {short_number(statistics.max)}"


def value_words(value: float) -> str:
    """A number for reading, or NaN by its name: here it is what was computed, not a missing number."""
    return "NaN" if math.isnan(value) else short_number(value)


# --- a matrix becomes one number --------------------------------------------------------------------------------------


def matrix(result: ExperimentResult) -> None:
    """The gradient of a chosen layer's weight, its absolute values and their mean, side by side."""
    st.header("How does a matrix become one number?")
    readings = {layer_of(record.layer): _reading(record) for record in result.linear_weights}
    layer = st.selectbox("Layer", list(readings), key="measure_layer", width=220) or next(iter(readings))
    mean = readings[layer]
    entries, dark = cache.matrix(result.spec, layer), panels.dark()
    signed, absolute = cache.matrix_pictures(result.spec, layer, dark)
    columns = st.columns(3)
    with columns[0]:
        _cells("1 The gradient", signed, "measure_signed")
    with columns[1]:
        _cells("2 Absolute values", absolute, "measure_absolute")
    with columns[2]:
        if mean is None:
            st.markdown("**3 Their mean**\n\nAt least one entry is NaN or infinite, so there is no mean.")
        else:
            _cells("3 Their mean", cache.mean_picture(result.spec, layer, mean, dark), "measure_mean")
    st.markdown(f"*How to read it.* {signed.how_to_read}")
    size = f"{entries.rows} × {entries.columns}"
    if entries.truncated:
        shown = f"{len(entries.values)} × {len(entries.values[0])}"
        st.markdown(f"Of {size} entries you see the first {shown}; the mean is that of all of them.")
    if mean is not None:
        st.markdown(
            f"{size} entries become **{short_number(mean)}**, the mean absolute weight gradient of `{layer}`."
            " The sign is a direction, the absolute value a strength. Biases are left out."
        )
    questions.ask(cache.posed("one_number", result.spec), page="measure")


def _reading(record: ParameterGradient) -> float | None:
    """What the chart and the table show for this weight; None where an entry is not finite."""
    statistics = record.statistics
    return None if statistics is None or statistics.nonfinite_count else statistics.mean_abs


def _cells(title: str, picture: Picture, key: str) -> None:
    st.markdown(f"**{title}**")
    st.vega_lite_chart(picture.vega_lite, key=key, alt=picture.alt_text, width="stretch")


# --- the lines that measure it ----------------------------------------------------------------------------------------


def lines_of_code(result: ExperimentResult) -> None:
    """The measurement in plain PyTorch with a note to each line that needs one."""
    st.header("Which lines measure this?")
    st.markdown("The reference network in plain PyTorch. It runs as it stands and prints one number per weight layer.")
    code.show(MEASUREMENT)
