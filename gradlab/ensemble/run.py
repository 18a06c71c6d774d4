"""Run an experiment over many seeds: batched in chunks, and one by one where no batch gives the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradlab.ensemble.batched import BatchedNetworks
from gradlab.ensemble.readings import STATISTICS, Readings
from gradlab.ensemble.result import Ensemble
from gradlab.errors import SpecError
from gradlab.experiment import run_experiment
from gradlab.flags import layer_gradients
from gradlab.spec import MAX_SEED, ExperimentSpec, Initializer
from gradlab.trail import Quantity

MAX_READINGS = 5_000_000
"""The largest number of seeds times layers: half a gigabyte of statistics."""

CHUNK_SECONDS = 0.05
CHUNK_BYTES = 48_000_000
BETWEEN_REPORTS = 0.05
"""Seconds from one report to the next while seeds are measured one by one."""

Progress = Callable[[int, int], bool | None]


def run_ensemble(
    spec: ExperimentSpec, seeds: Sequence[int] | range | NDArray[Any], *, progress: Progress | None = None
) -> Ensemble:
    """The experiment at every one of the seeds: the numbers of `run_experiment`, some hundred times as fast.

    The specification's own seed plays no part. Seeds may repeat and come in any order. `progress(done, total)` is called
    several times a second, or after every seed where one takes longer; when it returns False the ensemble ends there,
    with `stopped` set and the seeds done so far. Nothing is shared with other threads, nor is global random state.

    Batched numbers differ from those of a single experiment by the rounding of sums in another order: by about 1e-6 in
    float32, by more where the single experiment's own rounding errors are larger. Seeds at which a number is NaN or
    infinite, or at which a normalisation passes on hardly anything but rounding errors (over two numbers, over numbers
    that are all alike), are measured again one by one, by `run_experiment`; there may be none of them, or nothing else.

    Raises SpecError for a seed that is none, for no seeds at all, and for more than `MAX_READINGS` seeds times layers.
    """
    return _Run(spec, _settled(spec, seeds), progress).ensemble()


class _Run:
    """The arrays of an ensemble while they are filled, from the first seed on."""

    def __init__(self, spec: ExperimentSpec, seeds: list[int], progress: Progress | None) -> None:
        self.spec = spec
        self.seeds = seeds
        self.total = len(seeds)
        depth = spec.network.depth
        self.losses = np.empty(self.total)
        self.numbers = np.empty((2, len(STATISTICS), self.total, depth))
        self.nonfinite = np.zeros((2, self.total, depth), np.int64)
        self.progress = progress
        self.reported = time.monotonic()

    def ensemble(self) -> Ensemble:
        done = self._measure()
        outputs, weights = (
            Readings(**dict(zip(STATISTICS, numbers[:, :done], strict=True)), nonfinite_count=nonfinite[:done])
            for numbers, nonfinite in zip(self.numbers, self.nonfinite, strict=True)
        )
        return Ensemble(
            spec=self.spec,
            seeds=np.array(self.seeds[:done], np.int64),
            losses=self.losses[:done],
            outputs=outputs,
            weights=weights,
            stopped=done < self.total,
        )

    def _measure(self) -> int:
        """The number of seeds that were done when all were, or when progress returned False."""
        networks = BatchedNetworks(self.spec)
        size = _chunk_size(self.spec)
        for start in range(0, self.total, size):
            end = min(start + size, self.total)
            losses, numbers, counts = networks.measure(self.seeds[start:end])
            self.losses[start:end], self.numbers[:, :, start:end] = losses, numbers
            done = self._measure_alone((start + np.flatnonzero(~counts)).tolist(), end)
            if done < end or not self._goes_on(end):
                return done
        return self.total

    def _measure_alone(self, places: list[int], end: int) -> int:
        """Measure the seeds at these places, up to `end`, each by itself; `end`, or where progress returned False."""
        for place, following in pairwise([*places, end]):
            result = run_experiment(replace(self.spec, seed=self.seeds[place]))
            self.losses[place] = result.loss
            for kind, quantity in enumerate((Quantity.OUTPUTS, Quantity.WEIGHTS)):
                for layer, record in enumerate(layer_gradients(result, quantity)):
                    assert record.statistics is not None, record
                    self.numbers[kind, :, place, layer] = [getattr(record.statistics, name) for name in STATISTICS]
                    self.nonfinite[kind, place, layer] = record.statistics.nonfinite_count
            is_due = following < end and time.monotonic() - self.reported > BETWEEN_REPORTS
            if is_due and not self._goes_on(following):
                return following
        return end

    def _goes_on(self, done: int) -> bool:
        """Report how many seeds are done; whether the rest is still wanted."""
        wish = None if self.progress is None else self.progress(done, self.total)
        self.reported = time.monotonic()
        return wish is None or bool(wish)


def _chunk_size(spec: ExperimentSpec) -> int:
    """How many seeds at once: a twentieth of a second's work, about, in bounded memory.

    It depends on the specification alone: how a batch is cut may change last digits, which must not change between runs.
    """
    network, rows = spec.network, spec.batch.batch_size
    weights = [fan_in * fan_out for fan_in, fan_out in pairwise(network.layer_sizes)]
    entries, units = network.parameter_count, rows * sum(network.layer_sizes)
    seconds = 2e-6 + 1e-6 * network.depth + 5e-9 * entries + 2e-9 * rows * sum(weights) + 4e-8 * units
    if network.initializer is Initializer.ORTHOGONAL:
        shapes = pairwise(network.layer_sizes)
        seconds += sum(1.5e-5 + 1e-9 * fan_in * fan_out * min(fan_in, fan_out) for fan_in, fan_out in shapes)
    numbers = entries + 8 * units + (4 * max(weights) if rows > 1 else 0)
    return max(1, min(int(CHUNK_SECONDS / seconds), CHUNK_BYTES // (8 * numbers)))


def _settled(spec: ExperimentSpec, seeds: Any) -> list[int]:
    """The seeds as a list of Python's own whole numbers."""
    allowed = f"a list or range of whole numbers from 0 to {MAX_SEED}"
    if isinstance(seeds, str | bytes) or not hasattr(seeds, "__len__") or not hasattr(seeds, "__iter__"):
        raise SpecError("seeds", seeds, allowed)
    count, most = len(seeds), MAX_READINGS // spec.network.depth
    if not count:
        raise SpecError("seeds", seeds, f"{allowed}, at least one")
    if count > most:
        raise SpecError("seeds", f"{count:,} seeds", f"at most {most:,} seeds for a network of {spec.network.depth} layers")
    listed = seeds.tolist() if isinstance(seeds, np.ndarray) else list(seeds)
    return [seed if type(seed) is int and 0 <= seed <= MAX_SEED else replace(spec, seed=seed).seed for seed in listed]
