"""From what arrived in a pass to its records: one per output and per parameter name, whatever did not arrive too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from gradlab.capture.passes import Pass
from gradlab.capture.records import OutputGradient, ParameterGradient, Status, status_of
from gradlab.capture.watched import UNKNOWN, Layer, Output, Parameter
from gradlab.statistics import GradientStatistics, scaled

FROZEN = "frozen: requires_grad is False"
UNWATCHED = "its forward ran in a step that is not watched"


def output_records(finished: Pass, layers: Sequence[Layer], keep_gradients: bool) -> list[OutputGradient]:
    """One record per output of the pass in forward order, then one per layer that was never called."""
    arrivals = {id(reading): index for index, reading in enumerate(finished.arrived)}
    ranks = {id(o): rank for rank, o in enumerate(o for o in finished.arrived if isinstance(o, Output))}
    earlier_calls: Counter[tuple[int, int]] = Counter()
    calls: Counter[int] = Counter()
    for each in finished.rounds:
        for place in each.called:
            earlier_calls[each.number, place] = calls[place]
        for output in finished.outputs:
            if output.round is each:
                place = output.layer.place
                calls[place] = max(calls[place], earlier_calls[each.number, place] + output.call + 1)
    records = []
    for index, output in enumerate(finished.outputs):
        status, note, statistics, gradient = _reading(finished, output, arrivals.get(id(output)))
        records.append(
            OutputGradient(
                layer=output.layer.name,
                call=earlier_calls[output.round.number, output.layer.place] + output.call,
                output=output.path,
                module_type=output.layer.module_type,
                shape=None if output.shape is None else tuple(output.shape),
                dtype=None if output.dtype is None else _dtype_name(output.dtype),
                forward_index=index,
                backward_index=ranks.get(id(output)),
                status=status,
                note=note,
                statistics=statistics,
                gradient=gradient if keep_gradients else None,
            )
        )
    unwatched = UNWATCHED if finished.unwatched else ""
    return records + [_never_called(layer, layer.hidden or unwatched) for layer in layers if not calls[layer.place]]


def parameter_records(finished: Pass, parameters: Sequence[Parameter], keep_gradients: bool) -> list[ParameterGradient]:
    """One record per parameter name."""
    arrivals = {id(reading): index for index, reading in enumerate(finished.arrived)}
    ranks = {id(p): rank for rank, p in enumerate(p for p in finished.arrived if isinstance(p, Parameter))}
    records = []
    for parameter in parameters:
        status, note, statistics, gradient = _reading(finished, parameter, arrivals.get(id(parameter)))
        shape, dtype = finished.descriptions.get(parameter, UNKNOWN)
        for name, layer, role in parameter.names:
            others = [other for other, _, _ in parameter.names if other != name]
            shared = f"shared with {', '.join(others)}: one tensor, one gradient" if others else ""
            records.append(
                ParameterGradient(
                    parameter=name,
                    layer=layer,
                    role=role,
                    shape=None if shape is None else tuple(shape),
                    dtype=None if dtype is None else _dtype_name(dtype),
                    backward_index=ranks.get(id(parameter)),
                    status=status,
                    note="; ".join(filter(None, (note, shared))),
                    statistics=statistics,
                    gradient=gradient if keep_gradients else None,
                )
            )
    return records


def _reading(
    finished: Pass, reading: Output | Parameter, arrival: int | None
) -> tuple[Status, str, GradientStatistics | None, Tensor | None]:
    if note := finished.withheld.get(reading) or reading.note:
        return Status.UNSUPPORTED, note, None, None
    if arrival is None:
        return *_absence(finished, reading), None, None
    statistics, gradient = finished.statistics(arrival), finished.gradient(arrival)
    if statistics.norm != statistics.norm and statistics.nonfinite_count == 0:
        return Status.UNSUPPORTED, "the gradient holds no values: it is on the meta device", None, None
    if finished.scale != 1.0:
        statistics = scaled(statistics, 1.0 / finished.scale)
        gradient = None if gradient is None else _unscaled(gradient, finished.scale)
    status = status_of(statistics)
    if status is Status.ALL_ZERO and finished.no_zero:
        return Status.UNSUPPORTED, finished.no_zero, None, None
    return status, "", statistics, gradient


def _absence(finished: Pass, reading: Output | Parameter) -> tuple[Status, str]:
    if isinstance(reading, Parameter):
        return (Status.NOT_TRACKED, FROZEN) if reading in finished.untracked else (Status.NO_GRADIENT, "")
    if reading.tracked:
        return Status.NO_GRADIENT, ""
    return Status.NOT_TRACKED, ""


def _unscaled(gradient: Tensor, scale: float) -> Tensor:
    # In half precision the division would lose what the scale was there to save.
    wide = gradient.float() if gradient.dtype in (torch.float16, torch.bfloat16) else gradient
    return wide / scale


def _never_called(layer: Layer, why_unseen: str) -> OutputGradient:
    return OutputGradient(
        layer=layer.name,
        call=0,
        output="0",
        module_type=layer.module_type,
        shape=None,
        dtype=None,
        forward_index=None,
        backward_index=None,
        status=Status.UNSUPPORTED if why_unseen else Status.NEVER_CALLED,
        note=why_unseen,
        statistics=None,
    )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
