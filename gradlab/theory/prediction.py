"""The factor per layer that theory expects for a specification, in the terms in which the lab measures it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy
import torch

from gradlab.batches import sample_input
from gradlab.diagnosis import CutOffs
from gradlab.networks import PRECISIONS
from gradlab.spec import ExperimentSpec, Loss, NetworkSpec, Normalization, Target
from gradlab.text import short_number
from gradlab.theory.gaussian import LARGEST, moments
from gradlab.theory.mean_field import CriticalPoint, Fate, critical_point, depth_scales, layer_variances, limit_of
from gradlab.theory.path import Path, fitted_factors, follow

NARROWEST = 16
"""Units a layer needs before its pre-activations are anywhere near Gaussian."""
SMALLEST_BATCH = 16
"""Samples BatchNorm needs for a large-batch figure: with 8 the measured factor is a tenth above it."""
EPSILON = 1e-5
"""What BatchNorm and LayerNorm add to the variance they divide by."""


class Basis(StrEnum):
    """Where a predicted factor comes from."""

    MEAN_FIELD = "mean_field"
    SHORTCUTS = "shortcuts"
    NORMALIZATION = "normalization"
    NO_PREDICTION = "no_prediction"


@dataclass(frozen=True, kw_only=True)
class FactorPrediction:
    """What theory expects of a network's output gradients; every number is None where theory has none."""

    basis: Basis
    factor: float | None
    """γ, fitted to the predicted readings of the hidden layers just as `diagnose` fits the measured ones."""
    factor_at_most: float | None = None
    """With shortcuts: how fast the signal itself grows, which gradients follow once all units share a sign."""
    factors: tuple[float, ...] = ()
    """The factor from each hidden layer to the one before, from the input end: they differ while the variance settles."""
    limit_factor: float | None = None
    """√χ₁: the factor after so many layers that the variance has settled."""
    fate: Fate | None = None
    """What becomes of the variance of the pre-activations."""
    q_star: float | None = None
    """Where that variance settles; 0 where it dies out, None where it diverges."""
    chi: float | None = None
    """χ₁ in the limit."""
    critical: CriticalPoint | None = None
    """The σ_w at which gradients neither shrink nor grow in the limit, and whether they jump there."""
    sigma_w: float | None = None
    """The network's own σ_w: the root of fan_in times the weights' variance, gain included."""
    depth_scale: float | None = None
    """ξ_c: layers over which what two inputs have in common changes e-fold; about 6·ξ_c layers can be trained."""
    why_not: tuple[str, ...] = ()
    """Why there is no factor; empty where there is one."""
    caveats: tuple[str, ...] = ()
    """What to keep in mind when the measured factor stands beside the predicted one."""

    @property
    def applies(self) -> bool:
        """Whether there is a factor to compare a measurement with."""
        return self.factor is not None

    @property
    def critical_sigma_w(self) -> float | None:
        """The σ_w of `critical`."""
        return self.critical.sigma_w if self.critical else None

    @property
    def sentence(self) -> str:
        """The prediction in one sentence."""
        if self.factor is None:
            return " ".join(("Theory gives no number here.", *self.why_not))
        source = {
            Basis.MEAN_FIELD: "Mean-field theory expects",
            Basis.SHORTCUTS: "A rough estimate for shortcuts expects",
            Basis.NORMALIZATION: "The estimate for normalised layers expects",
        }[self.basis]
        if self.factor_at_most and self.factor_at_most > 1.01 * self.factor:
            return f"{source} {short_number(self.factor)} to {short_number(self.factor_at_most)} per layer toward the input."
        return f"{source} {short_number(self.factor)} per layer toward the input."


def predict_factor(spec: ExperimentSpec | NetworkSpec) -> FactorPrediction:
    """The factor γ per layer toward the input that theory expects, before any weight is drawn.

    Plain networks: χ₁ and the variance q followed layer by layer from the input's mean square (1 for a NetworkSpec), as in
    Schoenholz et al. 2017. Shortcuts: √(1 + χ₁), which takes a layer and its shortcut as independent (Yang & Schoenholz
    2017). Normalisation: E[φ'²] over the variance of φ, which for BatchNorm and ReLU is π/(π − 1) (Yang et al. 2019).
    Where none of them holds, `factor` is None and `why_not` says why.
    """
    network = spec.network if isinstance(spec, ExperimentSpec) else spec
    why_not = _why_not(spec, network)
    normalized = network.normalization is not Normalization.NO_NORM
    hidden = network.layer_sizes[1:-1]
    if why_not and (normalized or len(hidden) < 2 or len(set(hidden)) > 1):
        return _none(*why_not)
    caveats = _caveats(spec, network)
    if normalized:
        return _normalized(network, caveats)
    mean_square = sample_input(spec).double().square().mean().item() if isinstance(spec, ExperimentSpec) else 1.0
    return (_with_shortcuts if network.use_shortcut else _plain)(network, mean_square, why_not, caveats)


def _plain(network: NetworkSpec, mean_square: float, why_not: tuple[str, ...], caveats: tuple[str, ...]) -> FactorPrediction:
    inner, path = layer_variances(network, 1), _path(network, mean_square)
    limit = limit_of(network.activation, inner, float(path.variances[0, 0]))
    # Where it depends on the input at all it does so weakly; two digits let the point be found once for many seeds.
    critical = critical_point(network.activation, math.sqrt(inner.sigma_b_squared), float(f"{mean_square:.1e}"))
    found = FactorPrediction(
        basis=Basis.NO_PREDICTION,
        factor=None,
        limit_factor=math.sqrt(limit.chi),
        fate=limit.fate,
        q_star=limit.q_star,
        chi=limit.chi,
        critical=critical,
        sigma_w=math.sqrt(inner.sigma_w_squared),
        depth_scale=depth_scales(network.activation, inner, limit).correlation,
        why_not=why_not or _obstacles(network, path),
    )
    if found.why_not:
        return found
    factors = tuple(path.factors[:, 0].tolist())
    if abs(factors[-1] / math.sqrt(limit.chi) - 1) > 0.01:
        settled = f"in far deeper networks the factor is {short_number(math.sqrt(limit.chi))}"
        caveats += (f"The variance has not settled after {network.depth - 1} layers; {settled}.",)
    if critical and critical.abrupt and abs(math.sqrt(inner.sigma_w_squared) / critical.sigma_w - 1) < 0.1:
        caveats += ("This σ_w is close to where gradients jump from shrinking to growing: chance decides, seed by seed.",)
    factor = fitted_factors(path.factors).item()
    return replace(found, basis=Basis.MEAN_FIELD, factor=factor, factors=factors, caveats=caveats)


def _with_shortcuts(
    network: NetworkSpec, mean_square: float, why_not: tuple[str, ...], caveats: tuple[str, ...]
) -> FactorPrediction:
    path = _path(network, mean_square)
    why_not = why_not or _obstacles(network, path)
    if why_not:
        return _none(*why_not)
    factor, growth = fitted_factors(path.factors).item(), fitted_factors(path.growth).item()
    return FactorPrediction(
        basis=Basis.SHORTCUTS,
        factor=factor,
        factor_at_most=max(factor, growth),
        factors=tuple(path.factors[:, 0].tolist()),
        sigma_w=math.sqrt(layer_variances(network, 1).sigma_w_squared),
        caveats=(*caveats, "It takes each layer as independent of its shortcut: measured factors are usually higher."),
    )


def _path(network: NetworkSpec, mean_square: float) -> Path:
    first, inner = layer_variances(network, 0), layer_variances(network, 1)
    return follow(
        network.activation,
        [first.sigma_w_squared * mean_square + first.sigma_b_squared],
        [inner.sigma_w_squared],
        [inner.sigma_b_squared],
        layers=network.depth - 1,
        shortcut=network.use_shortcut,
        passed_by=mean_square if network.input_size == network.layer_sizes[1] else 0.0,
    )


def _obstacles(network: NetworkSpec, path: Path) -> tuple[str, ...]:
    """Why there is no factor after all, of a network that the theory would cover."""
    largest = min(torch.finfo(PRECISIONS[network.dtype].build()).max, math.sqrt(LARGEST))
    (too_large,) = numpy.nonzero(numpy.sqrt(path.variances[:, 0]) >= largest)
    if len(too_large):
        return (f"From layer {int(too_large[0]) + 1} on the signal is too large for {network.dtype}.",)
    if not (path.factors > 0).all():
        return ("No gradient passes: the weights are zero, or every unit sits where its slope is zero.",)
    return ()


def _normalized(network: NetworkSpec, caveats: tuple[str, ...]) -> FactorPrediction:
    """Each layer divides the gradient by the spread of what it normalises: γ² = E[φ'²]/Var φ for unit weights.

    With BatchNorm the weights' scale cancels; with LayerNorm it multiplies χ₁ and sets the variance of the pre-activations.
    """
    inner, batch_norm = layer_variances(network, 1), network.normalization is Normalization.BATCH_NORM
    q = 1.0 if batch_norm else inner.sigma_w_squared + inner.sigma_b_squared
    at = moments(network.activation, q)
    spread = at.square - at.mean**2
    if spread * (inner.sigma_w_squared if batch_norm else 1.0) < 100 * EPSILON:
        return _none("The layers' outputs differ so little that the ε in the normalisation decides.")
    factor = math.sqrt(at.slope_square * (1.0 if batch_norm else inner.sigma_w_squared) / spread)
    return FactorPrediction(
        basis=Basis.NORMALIZATION,
        factor=factor,
        factors=(factor,) * (network.depth - 2),
        sigma_w=math.sqrt(inner.sigma_w_squared),
        caveats=(*caveats, "Measured factors come out slightly higher, the more so in small batches or narrow layers."),
    )


def _none(*why_not: str) -> FactorPrediction:
    return FactorPrediction(basis=Basis.NO_PREDICTION, factor=None, why_not=why_not)


def _why_not(spec: ExperimentSpec | NetworkSpec, network: NetworkSpec) -> tuple[str, ...]:
    hidden, reasons = network.layer_sizes[1:-1], []
    fewest = CutOffs().fewest_layers
    if len(hidden) < fewest:
        reasons.append(f"A trend needs {fewest} hidden layers, this network has {len(hidden)}.")
    elif len(set(hidden)) > 1:
        reasons.append("The hidden layers have different widths, so there is no one factor per layer.")
    if hidden and min(hidden) < NARROWEST:
        reasons.append(f"The theory is about wide layers: {min(hidden)} units are too few, it takes {NARROWEST} or more.")
    if network.normalization is not Normalization.NO_NORM and network.use_shortcut:
        reasons.append("Normalisation and shortcuts together: there is no simple formula.")
    samples = spec.batch.batch_size if isinstance(spec, ExperimentSpec) else SMALLEST_BATCH
    if network.normalization is Normalization.BATCH_NORM and samples < SMALLEST_BATCH:
        reasons.append(f"BatchNorm over {samples} samples is too noisy: it takes {SMALLEST_BATCH} or more.")
    return tuple(reasons)


def _caveats(spec: ExperimentSpec | NetworkSpec, network: NetworkSpec) -> tuple[str, ...]:
    caveats = []
    width, hidden = network.layer_sizes[1], network.depth - 1
    if hidden > width / 10:
        caveats.append(
            f"{width} units are few for {hidden} hidden layers: seeds scatter around the theory, which is about wide layers."
        )
    own_error = (Loss.MSE, Loss.MSE_SUM, Loss.L1)
    if isinstance(spec, ExperimentSpec) and spec.batch.target is Target.ZEROS and spec.loss in own_error:
        caveats.append(
            "With a zero target the error is the output itself, made by the same weights:"
            " the measured factor can come out higher. The loss output_sum avoids that."
        )
    return tuple(caveats)
