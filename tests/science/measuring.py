"""Measurements that several of these tests share."""

import math
from statistics import mean

from gradlab import ExperimentSpec, diagnose, run_experiment

# The last layer hands back labels' errors: unlike the error of a zero target they have nothing to do with the weights.
SETTINGS = {
    "activate_last": False,
    "sample_input": "standard_normal",
    "batch_size": 32,
    "loss": "cross_entropy",
    "target": "class_labels",
}


def spec_of(**changes):
    """A wide plain network with labels as targets, changed as asked."""
    return ExperimentSpec().replace(**(SETTINGS | changes))


def measured_factor(*, seeds=3, gradient="outputs", **changes):
    """γ per layer toward the input, as the lab measures it: the geometric mean over a few seeds."""
    factors = [diagnose(run_experiment(spec_of(seed=seed, **changes)), gradient=gradient).factor for seed in range(seeds)]
    return math.exp(mean(map(math.log, factors)))
