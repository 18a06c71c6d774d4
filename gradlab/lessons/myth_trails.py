"""What a claim is held against: trails at a few seeds, the theory for this network, and the claim itself, as lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev

import pandas

from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import Verdict, diagnose, per_layer_factor, verdict_on
from gradlab.ensemble import run_ensemble
from gradlab.experiment import ExperimentResult, run_experiment
from gradlab.flags import layer_gradients
from gradlab.lessons.learning import Optimizer, weight_movement
from gradlab.spec import ExperimentSpec
from gradlab.text import share_left, short_number
from gradlab.trail import Quantity, layer_of

THEORY = "theory (dashed)"
CLAIM = "what the claim expects (dotted)"

# The last layer hands back labels' errors: unlike the error of a zero target they have nothing to do with the weights.
LABELS = {
    "activate_last": False,
    "sample_input": "standard_normal",
    "batch_size": 32,
    "loss": "cross_entropy",
    "target": "class_labels",
}
ONE_SAMPLE = LABELS | {"batch_size": 1, "loss": "output_sum"}


class Kind(StrEnum):
    """What a line in the picture of a claim is."""

    MEASURED = "measured"
    THEORY = "theory"
    CLAIM = "claim"


@dataclass(frozen=True, kw_only=True, eq=False)
class MythResult:
    """One claim held against a measurement, as plain numbers."""

    number: float
    """The factor per layer toward the input that was measured: the geometric mean over the seeds."""
    numbers: tuple[float, ...]
    """The same at each seed."""
    seeds: tuple[int, ...]
    spec: ExperimentSpec
    """The network the number is about, at the first of the seeds."""
    predicted: float | None
    """The factor that theory expects of this very network; None where there is no such formula here."""
    claimed: float
    """The factor per layer that the claim comes down to."""
    steps: int
    """How many layers lie between the two ends that are compared."""
    sentence: str
    """What was measured, in words with its numbers."""
    frame: pandas.DataFrame
    """One row per line and layer, the output end first: `series`, `kind`, `hue`, `layer`, `reading`, `low`, `high`.

    Readings are relative to the one at the output end; `low` and `high` are the extremes over the seeds.
    """

    @property
    def apart(self) -> float:
        """What was measured at the input end, over what the claim expects there."""
        return (self.number / self.claimed) ** self.steps

    @property
    def holds(self) -> bool:
        """Whether the two stay within a factor of two over all layers: where the lab itself calls a trail steady."""
        return verdict_on(self.apart, CutOffs()) is Verdict.STEADY


Run = Callable[[Sequence[int]], MythResult]


def claim_frame(layers: Sequence[str], claimed: float) -> pandas.DataFrame:
    """The claim as a line along the layers, the output end first; the columns of `MythResult.frame`."""
    return _line(CLAIM, Kind.CLAIM, layers, [claimed**step for step in range(len(layers))])


def layer_names(hidden: int) -> tuple[str, ...]:
    """The hidden layers in order of arrival, the one nearest the output first."""
    return tuple(f"layers.{depth}" for depth in reversed(range(hidden)))


# --- one network at a few seeds -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Trails:
    """The readings of the hidden layers at each seed, relative to the one nearest the output, that one first."""

    spec: ExperimentSpec
    layers: tuple[str, ...]
    readings: tuple[tuple[float, ...], ...]
    factors: tuple[float, ...]

    @property
    def factor(self) -> float:
        """γ per layer toward the input: the geometric mean over the seeds."""
        return _geometric_mean(self.factors)

    @property
    def at_the_input_end(self) -> float:
        """What arrives at the first layer, relative to the output end: the geometric mean over the seeds."""
        return _geometric_mean([readings[-1] for readings in self.readings])

    @property
    def scatter(self) -> float:
        """By what factor a seed typically differs at the input end: one standard deviation of the logarithms."""
        return math.exp(stdev(math.log(readings[-1]) for readings in self.readings))

    def frame(self, name: str, hue: int = 0) -> pandas.DataFrame:
        """The trails as one line with the range over the seeds; the columns of `MythResult.frame`."""
        by_layer = list(zip(*self.readings, strict=True))
        name = f"{name} ({len(self.readings)} seeds)"
        frame = _line(name, Kind.MEASURED, self.layers, list(map(_geometric_mean, by_layer)), hue)
        return frame.assign(low=list(map(min, by_layer)), high=list(map(max, by_layer)))


def trails_at(seeds: Sequence[int], **changes: object) -> Trails:
    """The output gradients of the hidden layers of a network, at every seed."""
    return trails_of(runs_at(seeds, **changes), Quantity.OUTPUTS)


def many_trails(seeds: Sequence[int], **changes: object) -> Trails:
    """The same for more seeds than are measured one by one while somebody waits."""
    ensemble = run_ensemble(ExperimentSpec().replace(**(LABELS | changes), seed=seeds[0]), seeds)
    return Trails(
        spec=ensemble.spec,
        layers=ensemble.layers[-2::-1],
        readings=tuple(_relative(sizes) for sizes in ensemble.outputs.rms[:, :-1].tolist()),
        factors=tuple(ensemble.factors.tolist()),
    )


def runs_at(seeds: Sequence[int], **changes: object) -> list[ExperimentResult]:
    """A network, given by what differs from a batch with labels as targets, measured at every seed."""
    return [run_experiment(ExperimentSpec().replace(**(LABELS | changes), seed=seed)) for seed in seeds]


def trails_of(results: Sequence[ExperimentResult], quantity: Quantity) -> Trails:
    """One of the two gradients of the hidden layers in results that differ in their seed alone."""
    found, readings = [diagnose(result, gradient=quantity) for result in results], []
    for result, diagnosis in zip(results, found, strict=True):
        fitted = [record for record in layer_gradients(result, quantity) if record.layer in diagnosis.fitted_layers]
        readings.append(_relative([record.statistics.rms if record.statistics else math.nan for record in fitted]))
    return Trails(
        spec=results[0].spec,
        layers=tuple(layer_of(name) for name in reversed(found[0].fitted_layers)),
        readings=tuple(readings),
        factors=tuple(math.nan if diagnosis.factor is None else diagnosis.factor for diagnosis in found),
    )


def movements(seeds: Sequence[int], optimizer: Optimizer, **changes: object) -> tuple[Trails, float, float]:
    """How far one optimiser step moves the weights of each hidden layer, relative to their size; the first layer's own.

    The last two are the first layer's mean absolute gradient and relative movement at the first seed.
    """
    specs = [ExperimentSpec().replace(**(LABELS | changes), seed=seed) for seed in seeds]
    runs = [weight_movement(spec, 1, optimizer)[:-1] for spec in specs]
    moved = [[row.relative_movement or math.nan for row in run] for run in runs]
    trails = Trails(
        spec=specs[0],
        layers=tuple(layer_of(row.layer) for row in reversed(runs[0])),
        readings=tuple(_relative(sizes) for sizes in moved),
        factors=tuple(per_layer_factor(range(len(sizes)), sizes) for sizes in moved),
    )
    return trails, runs[0][0].first_gradient or math.nan, moved[0][0]


def _relative(sizes: Sequence[float]) -> tuple[float, ...]:
    """Sizes of the first layer to the last, turned round and over the size of the last."""
    return tuple(size / sizes[-1] for size in reversed(sizes))


def _geometric_mean(numbers: Sequence[float]) -> float:
    return math.exp(fmean(map(math.log, numbers)))


def _line(name: str, kind: Kind, layers: Sequence[str], readings: Sequence[float], hue: int = 0) -> pandas.DataFrame:
    sides = {"reading": readings, "low": readings, "high": readings}
    return pandas.DataFrame({"series": name, "kind": str(kind), "hue": hue, "layer": list(layers), **sides})


def result_of(
    trails: Trails, claimed: float, sentence: str, measured: Sequence[pandas.DataFrame], *, seeds: Sequence[int],
    predicted: float | None = None, factors: Sequence[float] = (),
) -> MythResult:  # fmt: skip
    """The measured lines with the claim's and, where there is one, the theory's: `factors`, from the input end."""
    lines = [*measured, claim_frame(trails.layers, claimed)]
    if factors:
        expected = [math.prod(reversed(factors[len(factors) - step :])) for step in range(len(factors) + 1)]
        lines.insert(-1, _line(THEORY, Kind.THEORY, trails.layers, expected))
    return MythResult(
        number=trails.factor,
        numbers=trails.factors,
        seeds=tuple(seeds),
        spec=trails.spec,
        predicted=predicted,
        claimed=claimed,
        steps=len(trails.layers) - 1,
        sentence=sentence,
        frame=pandas.concat(lines, ignore_index=True),
    )


def in_words(trails: Trails) -> str:
    """The factor per layer, and what was measured at the input end."""
    left, steps = trails.at_the_input_end, len(trails.layers) - 1
    size = f"{share_left(left)} is left" if left < 0.95 else f"{short_number(left)} times as much arrives"
    return f"the factor per layer toward the input is {short_number(trails.factor)}; {size} at the input end, {steps} layers on"
