"""What many seeds of one experiment say together, and where one seed lies among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas

from gradlab.diagnosis import Verdict, diagnose
from gradlab.ensemble import Ensemble, Readings
from gradlab.ensemble.readings import Floats
from gradlab.ensemble.trend import opposite
from gradlab.experiment import ExperimentResult
from gradlab.flags import layer_gradients
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity

NAMED = 5
"""Seeds at which something is not a number are named up to so many."""
_DOWNWARD, _UPWARD = (Verdict.VANISHING, Verdict.WEAKENING), (Verdict.GROWING, Verdict.EXPLODING)


@dataclass(frozen=True, kw_only=True)
class ManySeeds:
    """One network at many seeds, one of its two gradients: the numbers that are drawn and said, not the readings."""

    spec: ExperimentSpec
    quantity: Quantity
    seeds: int
    """How many were measured: the seeds from 0 on."""
    band: pandas.DataFrame
    """One row per layer, as of `Ensemble.band`: the 10 %, 50 % and 90 % quantiles of the mean absolute gradient."""
    factors: tuple[float, float, float] | None
    """γ at the 10 %, 50 % and 90 % quantile of the seeds that have one; None where no seed has."""
    judged: int
    """How many seeds have a γ."""
    verdicts: dict[Verdict, int]
    """How many seeds get each verdict that occurs."""
    opposite: int | None
    """At how many seeds γ lies on the other side of 1 than the median does; None where there is no such side."""
    opposite_verdicts: int
    """At how many of these that makes a verdict of its own: a γ close to 1 is steady on either side."""
    falling: int
    """At how many seeds the readings fall at every step from the output end to the input end."""
    first_below_last: int
    """At how many seeds the first layer's reading is smaller than the last layer's."""
    non_finite: tuple[int, ...]
    """The seeds with NaN or infinity in some layer's gradient."""
    zero: tuple[int, ...]
    """The seeds at which some layer's gradient is exactly zero throughout."""


def joined(parts: Sequence[Ensemble]) -> Ensemble:
    """Ensembles of one experiment at different seeds as one; at least one of them."""
    return replace(
        parts[0],
        seeds=np.concatenate([part.seeds for part in parts]),
        losses=np.concatenate([part.losses for part in parts]),
        outputs=_joined([part.outputs for part in parts]),
        weights=_joined([part.weights for part in parts]),
        stopped=parts[-1].stopped,
    )


def _joined(parts: Sequence[Readings]) -> Readings:
    return Readings(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Readings)})


def summarize(ensemble: Ensemble, quantity: Quantity) -> ManySeeds:
    """What an ensemble says about one of its gradients."""
    readings, trends, count = ensemble.readings(quantity), ensemble.trends(gradient=quantity), len(ensemble)
    factors = trends.factors[~np.isnan(trends.factors)]
    counts = {verdict: int(np.count_nonzero(trends.verdicts == verdict)) for verdict in Verdict}
    broken = readings.nonfinite_count > 0
    low, median, high = np.quantile(factors, (0.1, 0.5, 0.9)).tolist() if len(factors) else (0.0, 0.0, 0.0)
    return ManySeeds(
        spec=ensemble.spec,
        quantity=quantity,
        seeds=count,
        band=ensemble.band(quantity),
        factors=(low, median, high) if len(factors) else None,
        judged=len(factors),
        verdicts={verdict: number for verdict, number in counts.items() if number},
        opposite=opposite(factors),
        opposite_verdicts=sum(counts[verdict] for verdict in (_UPWARD if median < 1 else _DOWNWARD) if len(factors)),
        falling=round(ensemble.monotone_share(quantity) * count),
        first_below_last=round(ensemble.first_below_last_share(quantity) * count),
        non_finite=_seeds_with(ensemble, broken),
        zero=_seeds_with(ensemble, (readings.max_abs == 0) & ~broken),
    )


def _seeds_with(ensemble: Ensemble, is_so: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> tuple[int, ...]:
    return tuple(ensemble.seeds[is_so.any(1)].tolist())


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where one seed lies among others: for each number the share of the other seeds at which it is smaller."""

    seed: int
    others: int
    """How many seeds it is compared with; it is not compared with itself."""
    readings: tuple[float | None, ...]
    """The mean absolute gradient of each layer, the first layer first; None where it is not finite."""
    below: tuple[float | None, ...]
    """The share of the others with a smaller one, among those where it is finite."""
    factor: float | None
    """γ of this seed."""
    factor_below: float | None
    """The share of the others with a smaller γ, among those that have one."""


def standing(result: ExperimentResult, ensemble: Ensemble, quantity: Quantity) -> Standing:
    """Where a result lies among the seeds of the same experiment."""
    others = ensemble.seeds != result.spec.seed
    values = ensemble.readings(quantity).finite("mean_abs")[others]
    records = [record.statistics for record in layer_gradients(result, quantity)]
    readings = [None if each is None or each.nonfinite_count else each.mean_abs for each in records]
    factor = diagnose(result, gradient=quantity).factor
    return Standing(
        seed=result.spec.seed,
        others=len(values),
        readings=tuple(readings),
        below=tuple(_share_below(reading, column) for reading, column in zip(readings, values.T, strict=True)),
        factor=factor,
        factor_below=_share_below(factor, ensemble.trends(gradient=quantity).factors[others]),
    )


def _share_below(value: float | None, others: Floats) -> float | None:
    others = others[~np.isnan(others)]
    return float(np.mean(others < value)) if value is not None and len(others) else None
