"""One layer's weight gradient as a matrix: its entries, their absolute values, and the one number they become."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gradlab.errors import GradlabError, listed, shorten
from gradlab.lessons.demonstrations.base import Bench
from gradlab.spec import ExperimentSpec
from gradlab.statistics import measure

SHOWN = 12
"""Rows and columns shown of a larger matrix, unless told."""

Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A weight gradient; of a large one the upper left corner is shown, while the mean is that of the whole."""

    layer: str
    values: Rows
    """The entries shown, one tuple per output of the layer, one number per input."""
    absolute: Rows
    """Their absolute values."""
    mean_abs: float | None
    """The mean of the absolute values of all entries; None where one is not finite."""
    rows: int
    """Rows of the whole matrix: outputs of the layer."""
    columns: int
    """Columns of the whole matrix: inputs of the layer."""

    @property
    def truncated(self) -> bool:
        """Whether the matrix has more entries than are shown."""
        return len(self.values) * len(self.values[0]) < self.rows * self.columns


def weight_gradient(spec: ExperimentSpec, layer: int | str, shown: int = SHOWN) -> Matrix:
    """The weight gradient of one layer after one backward pass, measured now.

    `layer` is its number, from 0, or its name, such as `layers.0`; at most `shown` rows and columns are given. Raises
    GradlabError for a layer that the network does not have.
    """
    if isinstance(shown, bool) or not isinstance(shown, int) or shown < 1:
        raise GradlabError(f"shown = {shorten(shown)} is not possible; a whole number from 1")
    bench = Bench(spec)
    name = f"layers.{layer}" if isinstance(layer, int) and not isinstance(layer, bool) else layer
    if name not in bench.linears:
        raise GradlabError(f"there is no layer {shorten(layer)}; there are {listed(bench.linears)}")
    bench.run()
    gradient = bench.linears[name].weight.grad
    assert gradient is not None, "every weight of the lab's networks is on the path to the loss"
    statistics, corner = measure(gradient), gradient[:shown, :shown]
    return Matrix(
        layer=name,
        values=_rows(corner),
        absolute=_rows(corner.abs()),
        mean_abs=None if statistics.nonfinite_count else statistics.mean_abs,
        rows=gradient.shape[0],
        columns=gradient.shape[1],
    )


def _rows(matrix: Tensor) -> Rows:
    return tuple(map(tuple, matrix.tolist()))
