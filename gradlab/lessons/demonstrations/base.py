"""What a demonstration gives, and which experiment it is run on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pandas
from torch import Tensor, nn

from gradlab.batches import loss_function, sample_input, target
from gradlab.capture import ParameterGradient
from gradlab.errors import GradlabError
from gradlab.experiment import ExperimentResult, run_experiment
from gradlab.networks import build_network
from gradlab.spec import CaptureMethod, ExperimentSpec, Initializer
from gradlab.statistics import GradientStatistics, measure_all
from gradlab.text import short_number

Cell = str | int | float | None

REFERENCE = ExperimentSpec()
RUNS = 6
"""Runs that a demonstration takes at the most."""
MAX_WORK = 210_000_000
"""Most multiplications of one forward run, see `_work`: so many runs of that size take about a second on one core."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One measured number and what it is; the value is None where the measurement gives none."""

    label: str
    value: float | int | None

    @property
    def text(self) -> str:
        """The value for reading: a count in full, a measurement to three digits, `None` where there is none."""
        if self.value is None:
            return "None"
        return f"{self.value:,}" if isinstance(self.value, int) else short_number(self.value)


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """A mistake shown live: the number it leads to, the right one, and what lies between, computed."""

    wrong: Reading
    """What the mistaken way reads."""
    right: Reading
    """What the right way reads."""
    damage: str
    """What the mistake does here, in one or two sentences with the numbers measured."""
    factor: float | None
    """How many times too large the mistaken number is; None where a ratio says nothing."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """The measurement in more detail, one tuple per row, one entry per column."""
    spec: ExperimentSpec
    """The experiment it ran on."""
    note: str = ""
    """Why it ran on another experiment than the one asked for; empty where it did not."""

    def table(self) -> pandas.DataFrame:
        """The detail as a data frame."""
        return pandas.DataFrame(list(self.rows), columns=list(self.columns))


Show = Callable[[ExperimentSpec], Demonstration]


class NothingToShow(GradlabError):
    """An experiment on which the mistake makes no difference that can be measured; the text says why."""


def demonstrate(show: Show, spec: ExperimentSpec) -> Demonstration:
    """The demonstration on `spec`, or on the reference experiment where that is too large or shows nothing, with a note."""
    why = too_large(spec)
    if not why:
        try:
            return _checked(show(spec))
        except NothingToShow as reason:
            why = str(reason)
    return replace(show(REFERENCE), note=f"This ran on the reference experiment: {why}.")


def _checked(found: Demonstration) -> Demonstration:
    numbers = [value for value in (found.wrong.value, found.right.value, found.factor) if value is not None]
    if not all(map(math.isfinite, numbers)):
        raise NothingToShow("in yours the numbers are too far apart to be compared")
    if found.wrong.value == found.right.value:
        raise NothingToShow("in yours the two numbers come out alike")
    return found


def too_large(spec: ExperimentSpec, runs: int = RUNS) -> str:
    """Why the experiment cannot be run `runs` times while somebody waits; empty where it can."""
    work, allowed = _work(spec), MAX_WORK * RUNS // runs
    if work <= allowed:
        return ""
    return (
        f"yours takes about {work / 1e6:,.0f} million multiplications a run, and {allowed / 1e6:,.0f} million are allowed here"
    )


def _work(spec: ExperimentSpec) -> int:
    """Multiplications of one forward run, with what takes as long as some: drawing a weight 24, an activation 64."""
    sizes = spec.network.layer_sizes
    work = spec.network.parameter_count * (spec.batch.batch_size + 24) + 64 * spec.batch.batch_size * sum(sizes)
    if spec.network.initializer is Initializer.ORTHOGONAL:
        # A QR decomposition: it counts a twentieth, as matrices are multiplied faster than they are made up.
        work += sum(a * b * min(a, b) for a, b in pairwise(sizes)) // 20
    return work


class Bench:
    """A network with its input, target and loss, to be run as often as a demonstration needs."""

    def __init__(self, spec: ExperimentSpec, network: nn.Module | None = None) -> None:
        self.network = build_network(spec) if network is None else network
        self._input, self._target, self._loss_of = sample_input(spec), target(spec), loss_function(spec)

    @property
    def linears(self) -> dict[str, nn.Linear]:
        """The linear map of every layer, first layer first, by the layer's name."""
        named = self.network.named_modules()
        return {layer_name(name): module for name, module in named if isinstance(module, nn.Linear)}

    def loss(self) -> Tensor:
        """The loss of one more forward run."""
        return self._loss_of(self.network(self._input), self._target)

    def run(self) -> None:
        """Forward and backward, as often as it is called; gradients add up."""
        self.loss().backward()


def measured(spec: ExperimentSpec, **options: bool) -> ExperimentResult:
    """The experiment's result, by the one method that is right for any network."""
    return run_experiment(replace(spec, capture_method=CaptureMethod.TENSOR_HOOKS), **options)


def weights(result: ExperimentResult) -> list[ParameterGradient]:
    """The weight gradients of the linear maps, first layer first."""
    return [r for r in result.parameters if r.role == "weight" and r.shape is not None and len(r.shape) == 2]


def layer_name(name: str) -> str:
    """The layer a module or parameter belongs to: `layers.0` for `layers.0.0.weight`."""
    return ".".join(name.split(".")[:2])


def statistics_of(gradient: Tensor | None) -> GradientStatistics:
    """The statistics of a gradient that has to be there and finite; raises NothingToShow where it is not."""
    if gradient is None:
        raise NothingToShow("in yours no gradient arrives")
    (statistics,) = measure_all([gradient])
    if statistics.nonfinite_count:
        raise NothingToShow("in yours a gradient has entries that are not finite")
    return statistics


def times(factor: float) -> str:
    """A factor that theory gives exactly, to the digits that float32 holds: `3`, `65,536`."""
    return f"{factor:,.7g}"


def reading_of(record: ParameterGradient) -> float | None:
    """The mean absolute gradient of a record; None where it is missing or has entries that are not finite."""
    statistics = record.statistics
    return None if statistics is None or statistics.nonfinite_count else statistics.mean_abs


def usable(value: float | None, what: str) -> float:
    """The value, if it is a number that can be compared; raises NothingToShow for zero, None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        raise NothingToShow(f"in yours {what} is not finite")
    if value == 0:
        raise NothingToShow(f"in yours {what} is exactly zero")
    return value
