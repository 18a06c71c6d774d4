"""Deep networks from a specification, initialised without touching global random state."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradlab.registry import Choice
from gradlab.spec import DEFAULT_SEED, Activation, ExperimentSpec, Initializer, NetworkSpec, Normalization, Precision

PRECISIONS: dict[Precision, Choice[Callable[[], torch.dtype]]] = {
    Precision.FLOAT32: Choice("float32", "About 7 digits, down to 1e-38: what networks are trained in.", lambda: torch.float32),
    Precision.FLOAT64: Choice("float64", "About 16 digits, down to 1e-308; the same weights, widened.", lambda: torch.float64),
}

ACTIVATIONS: dict[Activation, Choice[Callable[[], nn.Module]]] = {
    Activation.GELU_TANH: Choice(
        "GELU (tanh form)", "x·Φ(x) with Φ approximated by a tanh, as in GPT-2.", lambda: nn.GELU(approximate="tanh")
    ),
    Activation.GELU: Choice("GELU (exact)", "x·Φ(x), with the exact normal distribution Φ.", nn.GELU),
    Activation.RELU: Choice("ReLU", "max(0, x): passes positive values, blocks the rest.", nn.ReLU),
    Activation.LEAKY_RELU: Choice("LeakyReLU", "x where positive, 0.01·x elsewhere.", nn.LeakyReLU),
    Activation.TANH: Choice("Tanh", "Squashes to −1 … 1; slope 1 at zero, less elsewhere.", nn.Tanh),
    Activation.SIGMOID: Choice("Sigmoid", "Squashes to 0 … 1; its slope is at most 1/4.", nn.Sigmoid),
    Activation.SILU: Choice("SiLU", "x·sigmoid(x), also called swish.", nn.SiLU),
    Activation.ELU: Choice("ELU", "x where positive, eˣ − 1 elsewhere.", nn.ELU),
    Activation.IDENTITY: Choice("Identity", "No activation: the network is linear.", nn.Identity),
}


def _pytorch_default(linear: nn.Linear, spec: NetworkSpec, generator: torch.Generator) -> None:
    # What nn.Linear.reset_parameters draws, in its order: with gain 1 bit-equal to torch.manual_seed + nn.Linear.
    nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=generator)
    if linear.bias is not None:
        bound = 1 / math.sqrt(linear.in_features)
        nn.init.uniform_(linear.bias, -bound, bound, generator=generator)


def _xavier(linear: nn.Linear, spec: NetworkSpec, generator: torch.Generator) -> None:
    nn.init.xavier_uniform_(linear.weight, generator=generator)


def _he(linear: nn.Linear, spec: NetworkSpec, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu", generator=generator)


def _orthogonal(linear: nn.Linear, spec: NetworkSpec, generator: torch.Generator) -> None:
    nn.init.orthogonal_(linear.weight, generator=generator)


def _normal(linear: nn.Linear, spec: NetworkSpec, generator: torch.Generator) -> None:
    nn.init.normal_(linear.weight, std=spec.sigma_w / math.sqrt(linear.in_features), generator=generator)
    if linear.bias is not None:
        nn.init.normal_(linear.bias, std=spec.sigma_b, generator=generator)


INITIALIZERS: dict[Initializer, Choice[Callable[[nn.Linear, NetworkSpec, torch.Generator], None]]] = {
    Initializer.PYTORCH_DEFAULT: Choice(
        "PyTorch default", "What nn.Linear draws: weights and biases uniform within ±1/√fan_in.", _pytorch_default
    ),
    Initializer.XAVIER: Choice(
        "Xavier", "Uniform weights of variance 2/(fan_in + fan_out), biases 0 (Glorot & Bengio 2010).", _xavier
    ),
    Initializer.HE: Choice("He", "Normal weights of variance 2/fan_in, biases 0 (He et al. 2015).", _he),
    Initializer.ORTHOGONAL: Choice(
        "Orthogonal", "Weights with orthonormal rows or columns, biases 0 (Saxe et al. 2014).", _orthogonal
    ),
    Initializer.NORMAL: Choice(
        "Normal (σ_w, σ_b)", "Normal weights of variance σ_w²/fan_in, normal biases of variance σ_b².", _normal
    ),
}


def _layer_norm(size: int) -> nn.Module:
    return nn.LayerNorm(size)


NORMALIZATIONS: dict[Normalization, Choice[Callable[[int], nn.Module]]] = {
    Normalization.NO_NORM: Choice("None", "No normalisation.", lambda size: nn.Identity()),
    Normalization.BATCH_NORM: Choice(
        "BatchNorm", "Each unit over the batch, between the linear map and the activation.", nn.BatchNorm1d
    ),
    Normalization.LAYER_NORM_BEFORE: Choice(
        "LayerNorm before", "The layer's input over its units; a shortcut goes around it (Pre-LN).", _layer_norm
    ),
    Normalization.LAYER_NORM_AFTER: Choice(
        "LayerNorm after", "The layer's output over its units, after a shortcut is added (Post-LN).", _layer_norm
    ),
}


class DeepNetwork(nn.Module):
    """Layers in a row, each `Linear` → (BatchNorm) → activation, with LayerNorm and shortcuts as the specification says.

    With shortcuts a layer's input is added to its output where both have the same shape. Nothing works in place, so
    that every layer's output stays what the layer returned.
    """

    def __init__(self, spec: NetworkSpec, generator: torch.Generator) -> None:
        super().__init__()
        self.use_shortcut = spec.use_shortcut
        self.norm_first = spec.normalization is Normalization.LAYER_NORM_BEFORE
        self.layers = nn.ModuleList(_layer(spec, index, generator) for index in range(spec.depth))
        normalized = {
            Normalization.LAYER_NORM_BEFORE: spec.layer_sizes[:-1],
            Normalization.LAYER_NORM_AFTER: spec.layer_sizes[1:],
        }.get(spec.normalization, ())
        self.layer_norms = (
            nn.ModuleList(NORMALIZATIONS[spec.normalization].build(size).float() for size in normalized) if normalized else None
        )

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            norm = None if self.layer_norms is None else self.layer_norms[index]
            output = layer(x if norm is None or not self.norm_first else norm(x))
            x = x + output if self.use_shortcut and x.shape == output.shape else output
            if norm is not None and not self.norm_first:
                x = norm(x)
        return x


def _layer(spec: NetworkSpec, index: int, generator: torch.Generator) -> nn.Sequential:
    fan_in, fan_out = spec.layer_sizes[index], spec.layer_sizes[index + 1]
    linear = undrawn_linear(fan_in, fan_out, bias=spec.use_bias)
    with torch.no_grad():
        if linear.bias is not None:
            linear.bias.zero_()
        INITIALIZERS[spec.initializer].build(linear, spec, generator)
        linear.weight.mul_(spec.gain)
    parts: list[nn.Module] = [linear]
    if spec.normalization is Normalization.BATCH_NORM:
        parts.append(NORMALIZATIONS[spec.normalization].build(fan_out).float())
    if spec.activate_last or index < spec.depth - 1:
        parts.append(ACTIVATIONS[spec.activation].build())
    return nn.Sequential(*parts)


def undrawn_linear(fan_in: int, fan_out: int, *, bias: bool = True) -> nn.Linear:
    """A float32 linear map whose weights are memory as it was found, to be filled.

    `nn.Linear` itself would draw from the global generator, which all threads of a Streamlit server share; by way of the
    meta device, as PyTorch's `skip_init` does it, to build a network takes longer than to run it.
    """
    linear: nn.Linear = _Undrawn(fan_in, fan_out, bias=bias, dtype=torch.float32, device="cpu")
    linear.__class__ = nn.Linear  # which it is in all but how it was made
    return linear


class _Undrawn(nn.Linear):
    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


def build_network(spec: ExperimentSpec | NetworkSpec, seed: int | None = None) -> DeepNetwork:
    """The network a specification describes, with its weights drawn from `seed` (an ExperimentSpec brings its own).

    Global random state is neither read nor changed. With the initialiser `pytorch_default` and gain 1 the weights equal
    `torch.manual_seed(seed)` followed by building the `nn.Linear`s one after the other, bit for bit. A float64 network
    has the float32 draws widened, as `.double()` does, so that precision is the one thing that differs.
    """
    if isinstance(spec, ExperimentSpec):
        seed = spec.seed if seed is None else seed
        spec = spec.network
    generator = torch.Generator().manual_seed(DEFAULT_SEED if seed is None else seed)
    return DeepNetwork(spec, generator).to(PRECISIONS[spec.dtype].build())
