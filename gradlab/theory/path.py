"""A signal followed layer by layer: at finite depth the variance has often not settled, and the factor with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from gradlab.spec import Activation
from gradlab.theory.gaussian import moments

LARGEST = 1e200
"""Beyond this variance nothing changes any more: an activation that lets it grow so far is straight on both sides."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """What each hidden layer makes of a signal on the way forward and of a gradient on the way back; float64 tensors."""

    variances: Tensor
    """(layers, n): pre-activation variance q in each layer, the first layer first."""
    factors: Tensor
    """(layers − 1, n): RMS of the gradient at a layer's linear output, over that of the next layer's."""
    growth: Tensor
    """(layers − 1, n): RMS of what a layer hands on, over that of what the layer before handed on."""


def follow(
    activation: Activation,
    first: Tensor,
    weights: Tensor,
    biases: Tensor,
    *,
    layers: int,
    shortcut: bool = False,
    passed_by: float = 0.0,
) -> Path:
    """The path through layers of n different weight variances σ_w² at once.

    `first` is the variance of the first layer's pre-activations, `weights` σ_w² and `biases` σ_b² of the others. With
    shortcuts a layer hands on x + φ(h), and x and φ(h) are uncorrelated but for their means; `passed_by` is the mean square
    of the input where a shortcut leads around the first layer too. The mean square of a gradient gets 1 + χ₁ times as
    large, as if the two ways back were independent (Yang & Schoenholz 2017).
    """
    q, variances, slopes, signals = first, [], [], []
    mean, square = torch.zeros_like(first), torch.full_like(first, passed_by)
    for _ in range(layers):
        q = q.clamp(max=LARGEST)
        at = moments(activation, q)
        if shortcut:
            square = square + at.square + 2 * mean * at.mean
            mean = mean + at.mean
        else:
            mean, square = at.mean, at.square
        variances.append(q)
        slopes.append(at.slope_square)
        signals.append(square)
        q = weights * square + biases
    slope, signal = torch.stack(slopes), torch.stack(signals)
    passed = (1 + weights * slope[1:]) * slope[:-1] / slope[1:] if shortcut else weights * slope[:-1]
    return Path(variances=torch.stack(variances), factors=passed.sqrt(), growth=(signal[1:] / signal[:-1]).sqrt())


def fitted_factors(factors: Tensor) -> Tensor:
    """The one factor per layer that `diagnose` would fit to readings with these factors between neighbouring layers.

    That is, by its logarithm, the median over all pairs of layers of the factor per layer between the two; shape
    (layers − 1, n) -> (n,).
    """
    logs = torch.cat([torch.zeros_like(factors[:1]), factors.log()]).cumsum(0).T.contiguous()
    nearer, farther = torch.triu_indices(logs.shape[1], logs.shape[1], offset=1)
    slopes = ((logs[:, farther] - logs[:, nearer]) / (farther - nearer)).numpy()
    below, above = (slopes.shape[1] - 1) // 2, slopes.shape[1] // 2
    middle = numpy.partition(slopes, (below, above), axis=1)[:, [below, above]].mean(axis=1)
    return torch.from_numpy(numpy.exp(middle))
