"""What went forward through each layer: the size of what went in and came out, and how many units pass a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from gradlab.networks import ACTIVATIONS, DeepNetwork
from gradlab.spec import Activation, NetworkSpec
from gradlab.statistics import measure_all

SATURATED_OUTSIDE: dict[Activation, tuple[float, float]] = {
    Activation.TANH: (-9.4999, 9.4999),
    Activation.SIGMOID: (-23.0, 16.99999),
}
"""Inputs beyond these leave an activation flat: the defaults of Amazon SageMaker Debugger's rule SaturatedActivation."""

RARELY = 0.01
"""A unit active at a smaller share of the samples is inactive in the rule DeadRelu of the same tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivity:
    """The forward run seen by one layer, over the whole batch; None where there is nothing to measure, never 0.

    A unit is active at a sample if the derivative of its activation there, as autograd computes it, is not exactly 0:
    for ReLU where its input is above 0, for tanh where its output did not round to ±1. A network without activation
    (`identity`, or a last layer that has none) has no shares.
    """

    layer: str
    """The layer's name, such as `layers.0`."""
    input_norm: float | None
    """L2 norm of the whole batch h that went into the linear map; None if an entry is NaN or infinite.

    For one sample the norm of the weight's gradient is that of the gradient at the linear map's output, times this.
    """
    output_rms: float | None
    """Root mean square of what the linear map put out; None if an entry is NaN or infinite."""
    dead_fraction: float | None
    """Share of the units that are active at no sample of the batch."""
    rarely_active_fraction: float | None
    """Share of the units that are active at less than 1 % of the samples; up to 100 samples that is at none."""
    active_fraction: float | None
    """Share of the samples at which a unit is active, on average over the units."""
    saturated_fraction: float | None
    """Share of the activation's inputs beyond `SATURATED_OUTSIDE`; None but for tanh and sigmoid."""


class ForwardActivity:
    """Looks on during one forward run of a network and changes nothing about it; hooks are gone when the block ends.

    Use as `with ForwardActivity(network, spec) as activity: network(batch)`, then `activity.layers()`.
    """

    def __init__(self, network: DeepNetwork, spec: NetworkSpec) -> None:
        self._network = network
        self._activation = spec.activation
        self._given: dict[str, Tensor] = {}
        self._linear: dict[str, Tensor] = {}
        self._before_activation: dict[str, Tensor] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        try:
            for index, layer in enumerate(self._network.layers):
                first, last = layer[0], layer[-1]  # type: ignore[index]
                self._look_at(f"layers.{index}", first, self._given, self._linear)
                if not isinstance(last, nn.Linear | nn.BatchNorm1d):
                    self._look_at(f"layers.{index}", last, self._before_activation, {})
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()
        self._given, self._linear, self._before_activation = {}, {}, {}

    def layers(self) -> tuple[LayerActivity, ...]:
        """One record per layer, the first layer first; inside the block only, for the tensors go when it ends."""
        names = list(self._linear)
        given = measure_all([self._given[name] for name in names])
        put_out = measure_all([self._linear[name] for name in names])
        return tuple(
            LayerActivity(
                layer=name,
                input_norm=None if h.nonfinite_count else h.norm,
                output_rms=None if z.nonfinite_count else z.rms,
                **_shares(self._activation, self._before_activation.get(name)),
            )
            for name, h, z in zip(names, given, put_out, strict=True)
        )

    def _look_at(self, name: str, module: nn.Module, given: dict[str, Tensor], returned: dict[str, Tensor]) -> None:
        def look(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            given[name], returned[name] = args[0].detach(), output.detach()

        self._handles.append(module.register_forward_hook(look))

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _shares(activation: Activation, given: Tensor | None) -> dict[str, float | None]:
    if given is None or activation is Activation.IDENTITY:
        return dict.fromkeys(("dead_fraction", "rarely_active_fraction", "active_fraction", "saturated_fraction"))
    active = derivative(activation, given) != 0
    samples, units = active.shape
    times_active = active.sum(dim=0)
    beyond = None
    if activation in SATURATED_OUTSIDE:
        low, high = SATURATED_OUTSIDE[activation]
        beyond = ((given < low) | (given > high)).double().mean().item()
    return {
        "dead_fraction": int((times_active == 0).sum()) / units,
        "rarely_active_fraction": int((times_active < RARELY * samples).sum()) / units,
        "active_fraction": int(times_active.sum()) / (samples * units),
        "saturated_fraction": beyond,
    }


def derivative(activation: Activation, given: Tensor) -> Tensor:
    """The slope of an activation at each of the given numbers, as autograd computes it, in their dtype and shape."""
    # A module of its own: calling the network's would count as a call of that layer.
    with torch.enable_grad():
        point = given.detach().requires_grad_()
        value = ACTIVATIONS[activation].build()(point)
        return torch.autograd.grad(value, point, torch.ones_like(value))[0]
