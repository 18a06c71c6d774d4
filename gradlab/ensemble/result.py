"""What an ensemble of seeds gave, and what it says that one seed cannot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import Verdict
from gradlab.ensemble.readings import STATISTICS, Floats, Readings
from gradlab.ensemble.trend import Trends, opposite, trends
from gradlab.errors import SpecError, listed
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """One experiment measured at many seeds, as plain arrays: it can be pickled, cached and drawn without a tensor."""

    spec: ExperimentSpec
    """The experiment; its own seed plays no part."""
    seeds: NDArray[np.int64]
    """The seeds that were measured, in the order asked for."""
    losses: Floats
    """The scalar loss at every seed, NaN or infinite where it was."""
    outputs: Readings
    """The gradients at the outputs of the linear maps."""
    weights: Readings
    """The gradients of the linear maps' weights."""
    stopped: bool
    """Whether it was stopped before all seeds were measured."""

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, the first layer first: the second dimension of every array of readings."""
        return tuple(f"layers.{depth}" for depth in range(self.spec.network.depth))

    def readings(self, quantity: Quantity | str) -> Readings:
        """The readings of the outputs or of the weights."""
        return {Quantity.OUTPUTS: self.outputs, Quantity.WEIGHTS: self.weights}[_checked("quantity", quantity, Quantity)]

    def trends(self, cut_offs: CutOffs | None = None, *, gradient: Quantity | str = Quantity.OUTPUTS) -> Trends:
        """Factor γ, attenuation A and verdict at every seed, each what `diagnose` finds in that seed's result."""
        return trends(self.readings(gradient), self.spec.network.layer_sizes, cut_offs or CutOffs())

    @cached_property
    def _trends(self) -> Trends:
        return self.trends()

    @property
    def factors(self) -> Floats:
        """γ of the output gradients at every seed: how many times as large one layer nearer the input; NaN without a line."""
        return self._trends.factors

    @property
    def attenuations(self) -> Floats:
        """A of the output gradients at every seed: the share left at the input end of the fitted layers."""
        return self._trends.attenuations

    @property
    def verdicts(self) -> NDArray[Any]:
        """The `Verdict` on the output gradients at every seed."""
        return self._trends.verdicts

    @property
    def verdict_shares(self) -> dict[Verdict, float]:
        """The share of the seeds with each verdict that occurs, in the order of `Verdict`."""
        counts = {verdict: int(np.count_nonzero(self.verdicts == verdict)) for verdict in Verdict}
        return {verdict: count / len(self) for verdict, count in counts.items() if count}

    @property
    def opposite_share(self) -> float:
        """The share of seeds whose own γ says the opposite of the ensemble, among the seeds that have a γ.

        The ensemble says that the gradient shrinks toward the input if the median γ is below 1, that it grows if the
        median is above 1; a seed says the opposite if its γ lies on the other side of 1. NaN where no seed has a γ and
        where the median is 1, as there is no opposite then. A γ that rounding alone keeps from 1 is 1.
        """
        factors = self.factors[~np.isnan(self.factors)]
        count = opposite(factors)
        return float("nan") if count is None else count / len(factors)

    def monotone_share(self, quantity: Quantity | str = Quantity.WEIGHTS, statistic: str = "mean_abs") -> float:
        """The share of all seeds at which the reading falls at every step from the last layer to the first.

        Two equal readings are no fall, and neither is a step to or from a gradient that is not finite. With one layer
        there is no step, and every seed counts.
        """
        return float(np.mean(np.all(np.diff(self._values(quantity, statistic), axis=1) > 0, axis=1)))

    def first_below_last_share(self, quantity: Quantity | str = Quantity.WEIGHTS, statistic: str = "mean_abs") -> float:
        """The share of all seeds at which the first layer's reading is smaller than the last layer's."""
        values = self._values(quantity, statistic)
        return float(np.mean(values[:, 0] < values[:, -1]))

    def band(
        self, quantity: Quantity | str, statistic: str = "mean_abs", low: float = 0.1, high: float = 0.9
    ) -> pandas.DataFrame:
        """One row per layer: `layer`, the `low`, `median` and `high` of a statistic over the seeds, and what was left out.

        `low` and `high` are the quantiles asked for, linear between seeds, zeros included. Seeds at which the gradient is
        not finite are left out; `seeds` is the number of the others, `zero_share` and `nonfinite_share` are shares of
        all seeds. NaN where no seed is left. Raises SpecError for another statistic or quantiles out of order.
        """
        for name, value, least, most in (("low", low, 0.0, 0.5), ("high", high, 0.5, 1.0)):
            if not least <= value <= most:
                raise SpecError(name, value, f"a number from {least:g} to {most:g}")
        values = self._values(quantity, statistic)
        columns = [column[~np.isnan(column)] for column in values.T]
        levels = (low, 0.5, high)
        quantiles = np.array([np.quantile(column, levels) if len(column) else np.full(3, np.nan) for column in columns])
        readings = self.readings(quantity)
        is_zero = (readings.max_abs == 0) & (readings.nonfinite_count == 0)
        return pandas.DataFrame(
            {
                "layer": self.layers,
                "low": quantiles[:, 0],
                "median": quantiles[:, 1],
                "high": quantiles[:, 2],
                "seeds": [len(column) for column in columns],
                "zero_share": is_zero.mean(0),
                "nonfinite_share": (readings.nonfinite_count > 0).mean(0),
            }
        )

    def table(self) -> pandas.DataFrame:
        """One row per seed, quantity and layer: `seed`, `quantity`, `layer`, `status`, the statistics, `nonfinite_count`.

        The statistics are over the finite entries, as in a single experiment's table.
        """
        count, depth = len(self), self.spec.network.depth
        frames = []
        for quantity in (Quantity.OUTPUTS, Quantity.WEIGHTS):
            readings = self.readings(quantity)
            columns = {
                "seed": np.repeat(self.seeds, depth),
                "quantity": np.full(count * depth, str(quantity), object),
                "layer": np.tile(np.array(self.layers, object), count),
                "status": np.array(list(map(str, readings.statuses.ravel())), object),
            }
            columns |= {name: getattr(readings, name).ravel() for name in (*STATISTICS, "nonfinite_count")}
            frames.append(pandas.DataFrame(columns))
        return pandas.concat(frames, ignore_index=True)

    def _values(self, quantity: Quantity | str, statistic: str) -> Floats:
        """One statistic of the gradients that are finite, NaN elsewhere."""
        readings = self.readings(quantity)
        if statistic not in STATISTICS:
            raise SpecError("statistic", statistic, listed(STATISTICS))
        return readings.finite(statistic)


def _checked(name: str, value: Quantity | str, kind: type[Quantity]) -> Quantity:
    try:
        return kind(value)
    except ValueError:
        raise SpecError(name, value, listed(kind)) from None
