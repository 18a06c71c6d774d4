"""What is measured about one gradient, and about many at once."""

from gradlab.statistics.kernels import SQUARES
from gradlab.statistics.plain import GradientStatistics, combined, measure, scaled
from gradlab.statistics.quick import measure_all, measure_few

__all__ = ["SQUARES", "GradientStatistics", "combined", "measure", "measure_all", "measure_few", "scaled"]
