"""What mean-field theory expects of a network, to stand beside what the lab measures."""

from gradlab.theory.gaussian import Moments, moments
from gradlab.theory.maps import FactorMap, critical_line, factor_map
from gradlab.theory.mean_field import (
    CriticalPoint,
    DepthScales,
    Fate,
    LayerVariances,
    Limit,
    critical_point,
    depth_scales,
    layer_variances,
    limit_of,
)
from gradlab.theory.prediction import Basis, FactorPrediction, predict_factor

__all__ = [
    "Basis",
    "CriticalPoint",
    "DepthScales",
    "FactorMap",
    "FactorPrediction",
    "Fate",
    "LayerVariances",
    "Limit",
    "Moments",
    "critical_line",
    "critical_point",
    "depth_scales",
    "factor_map",
    "layer_variances",
    "limit_of",
    "moments",
    "predict_factor",
]
