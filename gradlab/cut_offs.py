"""Where a verdict or a flag begins: named numbers that can be changed, each with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NoReturn

from gradlab.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class CutOffs:
    """Where a verdict or a flag begins; `CUT_OFF_REASONS` says why there.

    The first six bound the attenuation A, what is left at the input end of the fitted layers. None depends on the scale
    of the loss. Raises SpecError where a value is out of range or the order vanishing < weakening < 1 < growing <
    exploding is broken.
    """

    severe_vanishing: float = 1e-3
    vanishing: float = 0.1
    weakening: float = 0.5
    growing: float = 2.0
    exploding: float = 10.0
    severe_exploding: float = 70.0
    fewest_layers: int = 3
    tiny: float = 1e-3
    huge: float = 1e3
    dead_units: float = 0.5
    dead_deviations: float = 3.0
    saturated: float = 0.5

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise SpecError(name, value, "a finite number")
        self._check_order()
        if self.fewest_layers < 2 or self.fewest_layers != int(self.fewest_layers):
            raise SpecError("fewest_layers", self.fewest_layers, "a whole number from 2 on: a line needs two points")
        for name, low, high in (
            ("tiny", 0.0, 1.0),
            ("huge", 1.0, math.inf),
            ("dead_units", 0.0, 1.0),
            ("dead_deviations", 0.0, math.inf),
            ("saturated", 0.0, 1.0),
        ):
            if not low <= getattr(self, name) <= high:
                raise SpecError(name, getattr(self, name), f"a number from {low:g} to {high:g}")

    def _check_order(self) -> None:
        order = ("severe_vanishing", "vanishing", "weakening", "growing", "exploding", "severe_exploding")
        for low, high in pairwise(order):
            lower, upper = getattr(self, low), getattr(self, high)
            if not (lower < upper or (lower == upper and "severe" in low + high)):
                self._refuse(low if lower != CutOffs.__dict__[low] else high)
        for name, fits in (
            ("severe_vanishing", self.severe_vanishing > 0),
            ("weakening", self.weakening < 1),
            ("growing", self.growing > 1),
        ):
            if not fits:
                self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        allowed = "0 < severe_vanishing ≤ vanishing < weakening < 1 < growing < exploding ≤ severe_exploding"
        raise SpecError(name, getattr(self, name), allowed)


CUT_OFF_REASONS: dict[str, str] = {
    "severe_vanishing": "A below it is severe: the figure at which AUTOTRAINER calls the ratio of the first to the last "
    "layer's gradient vanishing (Zhang et al., ICSE 2021).",
    "vanishing": "A below it: nine tenths of the signal are gone between the two ends. One learning rate for all layers "
    "then moves the input end ten times less than the output end.",
    "weakening": "A below it: half of the signal is gone.",
    "growing": "A above it: the mirror image of weakening.",
    "exploding": "A above it: the mirror image of vanishing.",
    "severe_exploding": "A above it is severe: the figure at which AUTOTRAINER calls the ratio of the first to the last "
    "layer's gradient exploding (Zhang et al., ICSE 2021).",
    "fewest_layers": "With fewer hidden layers of one width there is a step, not a trend.",
    "tiny": "A layer below this share of the network's own median: a thousandth is three powers of ten, far beyond the "
    "difference chance makes between neighbours.",
    "huge": "A layer above this multiple of the network's own median: the mirror image of tiny.",
    "dead_units": "More than this share of a layer's units is active at no sample: half a layer is the share at which "
    "Amazon SageMaker Debugger's rule DeadRelu and torchdiag report it.",
    "dead_deviations": "With one sample, or samples much alike, half of all ReLU units are inactive by chance. The share has "
    "to pass one half by this many standard deviations of that chance, or be the whole layer; 0 leaves chance out.",
    "saturated": "More than this share of the inputs lies where the activation is flat: the share of a layer in Amazon "
    "SageMaker Debugger's rule SaturatedActivation.",
}
"""Name of a cut-off -> why it stands where it stands."""
