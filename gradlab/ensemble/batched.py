"""The networks of many seeds as one: every tensor has the seeds as its first dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gradlab.batches import SAMPLE_INPUTS, TARGETS
from gradlab.ensemble.parameters import Parameters
from gradlab.ensemble.readings import Floats, product_statistics, row_statistics, statistics_of
from gradlab.networks import PRECISIONS, build_network
from gradlab.spec import ExperimentSpec, Initializer, Loss, SampleInput, Target

SAME_FOR_ALL_SEEDS = frozenset({SampleInput.FIXED_SAMPLE, SampleInput.ZEROS, Target.ZEROS})


def _cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    rows = functional.cross_entropy(output.flatten(0, 1), labels.flatten(), reduction="none")
    return rows.view(labels.shape).mean(1)


LOSSES: dict[Loss, Callable[[Tensor, Tensor], Tensor]] = {
    Loss.MSE: lambda output, target: functional.mse_loss(output, target, reduction="none").mean((1, 2)),
    Loss.MSE_SUM: lambda output, target: functional.mse_loss(output, target, reduction="none").sum((1, 2)),
    Loss.L1: lambda output, target: functional.l1_loss(output, target, reduction="none").mean((1, 2)),
    Loss.CROSS_ENTROPY: _cross_entropy,
    Loss.OUTPUT_SUM: lambda output, target: output.sum((1, 2)),
}
"""`gradlab.batches.LOSSES`, for each seed by itself."""

LOST = {torch.float32: 1e-2, torch.float64: 1e-8}
"""With less than this share left after a subtraction, more than a relative 1e-5 of the rest is rounding error."""


class _Kept:
    """The tensors of one part of the network while seeds are measured; nn.Module's own attributes are slow to set."""

    weight: Tensor
    bias: Tensor | None
    given: Tensor
    returned: Tensor


class _Linear(nn.Module):
    """The linear maps of all seeds."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = _Kept()

    def forward(self, x: Tensor) -> Tensor:
        kept = self.kept
        weight = kept.weight.mT
        output = torch.bmm(x, weight) if kept.bias is None else torch.baddbmm(kept.bias[:, None], x, weight)
        kept.given = x.detach()
        # The weights are not tracked: gradients are wanted from the first layer's output on.
        kept.returned = output if output.requires_grad else output.requires_grad_()
        return output


class _Normalization(nn.Module):
    """Normalisation over one dimension of (seeds, rows, units)."""

    over: int

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.kept = _Kept()

    def normalized(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        self.kept.given, self.kept.returned = x.detach(), self.normalized(x)
        return self.kept.returned

    def loses(self, gradient_after: Tensor, gradient_before: Tensor) -> Tensor:
        """At which seeds hardly anything but rounding errors goes forward or backward, because nearly all is taken away.

        Forward the mean is subtracted, all there is where the numbers are alike. Backward it is what the numbers cannot
        change: two normalised numbers are ±1 whatever they were, and a sum over all is always 0. `gradient_before` is that
        of the linear map before: an activation between may block all that was more than a rounding error.
        """
        lost = LOST[self.kept.given.dtype]
        variance, mean = torch.var_mean(self.kept.given.double(), self.over, correction=0, keepdim=True)
        forward = variance.sqrt() < lost * mean.abs()
        whole = gradient_after * (variance + self.eps).rsqrt()
        backward = gradient_before.abs().amax((1, 2)) < lost * whole.abs().amax((1, 2))
        return forward.flatten(1).any(1) | backward


class _BatchNorm(_Normalization):
    """The units of all seeds side by side, as units of one network: BatchNorm takes each by itself."""

    over = 1

    def normalized(self, x: Tensor) -> Tensor:
        seeds, rows, units = x.shape
        beside = x.transpose(0, 1).reshape(rows, seeds * units)
        done = functional.batch_norm(beside, None, None, training=True, eps=self.eps)
        return done.view(rows, seeds, units).transpose(0, 1)


class _LayerNorm(_Normalization):
    """Over the units, whatever their number."""

    over = 2

    def normalized(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], eps=self.eps)


class BatchedNetworks:
    """A `DeepNetwork` with its own forward, whose parts take the batches of all seeds: (seeds, rows, units)."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._spec = spec
        self._dtype = PRECISIONS[spec.network.dtype].build()
        self._parameters = Parameters(spec.network)
        self._linears = [_Linear() for _ in range(spec.network.depth)]
        # Of width 1: the parts that know the width are exchanged for others that do not.
        widths = (1,) * len(spec.network.layer_sizes)
        narrow = replace(spec.network, layer_sizes=widths, initializer=Initializer.PYTORCH_DEFAULT)
        self._network = build_network(narrow, seed=0)
        for layer, linear in zip(self._network.layers, self._linears, strict=True):
            assert isinstance(layer, nn.Sequential)
            layer[0] = linear
            for place, part in enumerate(layer):
                if isinstance(part, nn.BatchNorm1d):
                    layer[place] = _BatchNorm(part.eps)
        norms = self._network.layer_norms or nn.ModuleList()
        for place, norm in enumerate(norms):
            assert isinstance(norm, nn.LayerNorm)
            norms[place] = _LayerNorm(norm.eps)
        self._norms = [part for part in self._network.modules() if isinstance(part, _Normalization)]

    def measure(self, seeds: Sequence[int]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """The losses (seeds,), the row statistics of outputs and weights (2, 6, seeds, layers), and which seeds count.

        The others must be measured by themselves: a number there is NaN or infinite, or little but rounding errors.
        """
        for linear, (weight, bias) in zip(self._linears, self._parameters.draw(seeds), strict=True):
            linear.kept.weight, linear.kept.bias = weight, bias
        batch, target = self._sample(seeds)
        with torch.enable_grad():
            output = self._network(batch)
            losses = LOSSES[self._spec.loss](output, target)
        # A first LayerNorm has no linear map before it: there is one for each of the others.
        norms = [norm for norm in self._norms if norm.kept.returned.requires_grad]
        inputs = [*(linear.kept.returned for linear in self._linears), *(norm.kept.returned for norm in norms)]
        # Each seed's loss depends on that seed's tensors alone, so the gradient of the sum is that of each.
        gradients = torch.autograd.grad(losses, inputs, torch.ones_like(losses))
        arrived, given = gradients[: len(self._linears)], [linear.kept.given for linear in self._linears]
        flat = [gradient.flatten(1) for gradient in arrived]
        outputs = statistics_of(flat)
        if self._spec.batch.batch_size == 1:
            weights = product_statistics(flat, [x.flatten(1) for x in given], outputs)
        else:
            of_weights = (torch.bmm(gradient.mT, x).flatten(1) for gradient, x in zip(arrived, given, strict=True))
            weights = np.stack([row_statistics(of_weight) for of_weight in of_weights], 2)
        numbers = np.stack([outputs, weights])
        counts = np.isfinite(losses.detach().numpy()) & np.isfinite(numbers[:, 0]).all(axis=(0, 2))
        for norm, after, before in zip(norms, gradients[len(self._linears) :], gradients, strict=False):
            counts &= ~norm.loses(after, before).numpy()
        return losses.detach().double().numpy(), numbers, counts

    def _sample(self, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The sample inputs and the targets."""
        rows, given, wanted = self._spec.batch.batch_size, self._spec.batch.sample_input, self._spec.batch.target
        batch = _drawn(given, SAMPLE_INPUTS[given].build, rows, self._spec.network.input_size, seeds)
        target = _drawn(wanted, TARGETS[wanted].build, rows, self._spec.network.output_size, seeds)
        return batch.to(self._dtype), target if wanted is Target.CLASS_LABELS else target.to(self._dtype)


def _drawn(
    choice: SampleInput | Target, draw: Callable[[int, int, int], Tensor], rows: int, size: int, seeds: Sequence[int]
) -> Tensor:
    if choice in SAME_FOR_ALL_SEEDS:
        one = draw(rows, size, 0)
        return one.expand(len(seeds), *one.shape)
    return torch.stack([draw(rows, size, seed) for seed in seeds])
