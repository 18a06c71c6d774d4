"""What the rules measure: each gives the numbers that its rule compares, with what they belong to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gradlab.capture import ParameterGradient
from gradlab.experiment import ExperimentResult
from gradlab.spec import Activation


class Measured(NamedTuple):
    """One number a rule looks at, and what it belongs to."""

    of: str
    value: float


def of_parameters(field: str) -> Callable[[ExperimentResult], list[Measured]]:
    """One number for each weight and bias that a gradient arrived at."""

    def measure(result: ExperimentResult) -> list[Measured]:
        arrived = ((record.parameter, record.statistics) for record in result.parameters)
        return [Measured(name, float(getattr(statistics, field))) for name, statistics in arrived if statistics]

    return measure


def of_weights(field: str) -> Callable[[ExperimentResult], list[Measured]]:
    """One number for each weight, of a linear map or a normalisation, that a gradient arrived at."""
    measure = of_parameters(field)

    def measure_weights(result: ExperimentResult) -> list[Measured]:
        weights = {record.parameter for record in result.parameters if record.role == "weight"}
        return [number for number in measure(result) if number.of in weights]

    return measure_weights


def global_norm(result: ExperimentResult) -> list[Measured]:
    """The norm of all gradients taken as one vector."""
    return [Measured("", math.hypot(*(number.value for number in of_parameters("norm")(result))))]


def nonzero_global_norm(result: ExperimentResult) -> list[Measured]:
    """The same where it is not zero, else nothing."""
    return [number for number in global_norm(result) if number.value]


def _end_norms(result: ExperimentResult) -> Iterator[tuple[ParameterGradient, float, float]]:
    """The first linear map's weight, the norm of its gradient and that of the last one's; nothing if one is missing."""
    first, last = result.linear_weights[0], result.linear_weights[-1]
    if first.statistics and last.statistics and last.statistics.norm:
        yield first, first.statistics.norm, last.statistics.norm


def first_over_last(result: ExperimentResult) -> list[Measured]:
    """The gradient norm of the first linear map's weight over that of the last; nothing where the last has none."""
    return [Measured(first.parameter, norm / norm_of_last) for first, norm, norm_of_last in _end_norms(result)]


def first_over_last_if_small(result: ExperimentResult) -> list[Measured]:
    """The same where the first norm is below 1e-4, else nothing."""
    return [Measured(first.parameter, norm / norm_of_last) for first, norm, norm_of_last in _end_norms(result) if norm < 1e-4]


def zeros(result: ExperimentResult) -> list[Measured]:
    """The share of exact zeros among all entries of all gradients."""
    arrived = [record.statistics for record in result.parameters if record.statistics]
    entries = sum(statistics.numel for statistics in arrived)
    zero = sum(statistics.zero_fraction * statistics.numel for statistics in arrived)
    return [Measured("", zero / entries)] if entries else []


def of_units(share: str, *activations: Activation) -> Callable[[ExperimentResult], list[Measured]]:
    """One share for each layer, in networks with one of the activations."""

    def measure(result: ExperimentResult) -> list[Measured]:
        if result.spec.network.activation not in activations:
            return []
        shares = ((activity.layer, getattr(activity, share)) for activity in result.layers)
        return [Measured(layer, value) for layer, value in shares if value is not None]

    return measure


def silent(result: ExperimentResult) -> list[Measured]:
    """The share of zeros among each layer's ReLU outputs."""
    return [Measured(number.of, 1 - number.value) for number in of_units("active_fraction", Activation.RELU)(result)]
