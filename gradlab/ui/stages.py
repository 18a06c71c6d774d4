"""The three stages of a measurement, one at a time, with what exists after each."""

from __future__ import annotations

import streamlit as st

from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.experiment import ExperimentResult
from gradlab.text import short_number

STAGES = ("1 Forward", "2 Loss", "3 Backward")


def show(result: ExperimentResult) -> None:
    """A switch between the stages and what the chosen one hands on."""
    chosen = st.segmented_control("Stage", STAGES, default=STAGES[0], required=True, key="stage", label_visibility="collapsed")
    {STAGES[0]: _forward, STAGES[1]: _loss, STAGES[2]: _backward}[chosen or STAGES[0]](result)


def _forward(result: ExperimentResult) -> None:
    spec = result.spec
    rows, columns = len(result.output), len(result.output[0])
    first = ", ".join(short_number(value) for value in result.output[0][:4]) + (" …" if columns > 4 else "")
    st.markdown(
        f"The input goes in ({SAMPLE_INPUTS[spec.batch.sample_input].title.lower()}, shape {rows} × {spec.network.input_size})"
        f" and an output of shape {rows} × {columns} comes out, beginning with **{first}**."
        f" So far {result.filled_before} of {len(result.parameters)} parameters have a `.grad`."
    )


def _loss(result: ExperimentResult) -> None:
    spec = result.spec
    st.markdown(
        f"The output is compared with the target ({TARGETS[spec.batch.target].title.lower()})."
        f" {LOSSES[spec.loss].title}: **{short_number(result.loss)}**. {LOSSES[spec.loss].help}"
        f" Still {result.filled_before} of {len(result.parameters)} parameters have a `.grad`."
    )


def _backward(result: ExperimentResult) -> None:
    st.markdown(
        "`loss.backward()` computes how this one number changes with every parameter. Now"
        f" **{result.filled_after} of {len(result.parameters)}** parameters have a `.grad`, each of its parameter's shape."
        f" The first gradient arrived at `{result.arrival_order[0]}`, the last at `{result.arrival_order[-1]}`."
    )
