"""What to measure: frozen specifications of a network, a batch and an experiment.

A specification is checked when it is made, compares by value, hashes, and goes to and from a flat dict of numbers and
short text without loss. That one dict is the first columns of the CSV and the parameters of a link.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from itertools import islice
from numbers import Real
from typing import Any, Self, get_type_hints

from gradlab.errors import SpecError, listed, shorten
from gradlab.sizes import MAX_LAYERS, sizes_from_text, sizes_to_text

MAX_SIZE = 4096
MAX_BATCH_SIZE = 1024
MAX_SEED = 2**32 - 1
DEFAULT_SEED = 123
MAX_PARAMETERS = 50_000_000
"""About 400 MB of weights and gradients in float32: what an ordinary laptop holds."""
MAX_SCALE = 1e6
"""Largest gain, σ_w and σ_b: far beyond any use, and still finite in float32 after one layer."""


class Activation(StrEnum):
    GELU_TANH = "gelu_tanh"
    GELU = "gelu"
    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    SILU = "silu"
    ELU = "elu"
    IDENTITY = "identity"


class Initializer(StrEnum):
    PYTORCH_DEFAULT = "pytorch_default"
    XAVIER = "xavier"
    HE = "he"
    ORTHOGONAL = "orthogonal"
    NORMAL = "normal"


class Normalization(StrEnum):
    NO_NORM = "no_norm"
    BATCH_NORM = "batch_norm"
    LAYER_NORM_BEFORE = "layer_norm_before"
    LAYER_NORM_AFTER = "layer_norm_after"


class Precision(StrEnum):
    FLOAT32 = "float32"
    FLOAT64 = "float64"


class SampleInput(StrEnum):
    FIXED_SAMPLE = "fixed_sample"
    STANDARD_NORMAL = "standard_normal"
    ZEROS = "zeros"


class Target(StrEnum):
    ZEROS = "zeros"
    STANDARD_NORMAL = "standard_normal"
    CLASS_LABELS = "class_labels"


class Loss(StrEnum):
    MSE = "mse"
    MSE_SUM = "mse_sum"
    L1 = "l1"
    CROSS_ENTROPY = "cross_entropy"
    OUTPUT_SUM = "output_sum"


class CaptureMethod(StrEnum):
    TENSOR_HOOKS = "tensor_hooks"
    RETAIN_GRAD = "retain_grad"
    FULL_BACKWARD_HOOKS = "full_backward_hooks"


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """A stack of layers, each a linear map, an optional normalisation and an activation.

    `layer_sizes` runs from the input size to the output size, so it has one entry more than the network has layers.
    """

    layer_sizes: tuple[int, ...] = (3, 3, 3, 3, 3, 1)
    activation: Activation = Activation.GELU_TANH
    activate_last: bool = True
    use_shortcut: bool = False
    initializer: Initializer = Initializer.PYTORCH_DEFAULT
    gain: float = 1.0
    sigma_w: float = 1.0
    sigma_b: float = 0.0
    normalization: Normalization = Normalization.NO_NORM
    use_bias: bool = True
    dtype: Precision = Precision.FLOAT32

    def __post_init__(self) -> None:
        _settle(self, layer_sizes=_layer_sizes, gain=_gain, sigma_w=_scale, sigma_b=_scale)
        if self.parameter_count > MAX_PARAMETERS:
            raise SpecError(
                "layer_sizes", sizes_to_text(self.layer_sizes),
                f"at most {MAX_PARAMETERS:,} weights and biases in all, these sizes need {self.parameter_count:,}",
            )  # fmt: skip

    @classmethod
    def of_width(
        cls, width: int, depth: int, *, input_size: int | None = None, output_size: int | None = None, **options: Any
    ) -> Self:
        """The specification of `depth` layers of one width; the first input and the last output may differ."""
        depth = _whole("depth", depth, 1, MAX_LAYERS)
        sizes = [width] * (depth + 1)
        sizes[0] = width if input_size is None else input_size
        sizes[-1] = width if output_size is None else output_size
        return cls(layer_sizes=tuple(sizes), **options)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layer_sizes) - 1

    @property
    def input_size(self) -> int:
        return self.layer_sizes[0]

    @property
    def output_size(self) -> int:
        return self.layer_sizes[-1]

    @property
    def parameter_count(self) -> int:
        """Number of weights and biases of the linear maps (normalisation adds a few more)."""
        pairs = zip(self.layer_sizes, self.layer_sizes[1:], strict=False)
        return sum(fan_in * fan_out + self.use_bias * fan_out for fan_in, fan_out in pairs)


@dataclass(frozen=True, kw_only=True)
class BatchSpec:
    """The sample input and the target the output is compared with."""

    sample_input: SampleInput = SampleInput.FIXED_SAMPLE
    batch_size: int = 1
    target: Target = Target.ZEROS

    def __post_init__(self) -> None:
        _settle(self, batch_size=lambda name, value: _whole(name, value, 1, MAX_BATCH_SIZE))


@dataclass(frozen=True, kw_only=True)
class ExperimentSpec:
    """One measurement, whole: network, batch, loss, capture method and the seed all random numbers come from."""

    network: NetworkSpec = field(default_factory=NetworkSpec)
    batch: BatchSpec = field(default_factory=BatchSpec)
    loss: Loss = Loss.MSE
    capture_method: CaptureMethod = CaptureMethod.TENSOR_HOOKS
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        for name, kind in (("network", NetworkSpec), ("batch", BatchSpec)):
            if not isinstance(getattr(self, name), kind):
                raise SpecError(name, getattr(self, name), f"a {kind.__name__}")
        _settle(self, seed=lambda name, value: _whole(name, value, 0, MAX_SEED))
        self._check_combination()

    def _check_combination(self) -> None:
        labels = self.batch.target is Target.CLASS_LABELS
        if labels != (self.loss is Loss.CROSS_ENTROPY) and self.loss is not Loss.OUTPUT_SUM:
            allowed = "class_labels with the loss cross_entropy" if not labels else "zeros or standard_normal"
            raise SpecError("target", str(self.batch.target), f"{allowed}, as the loss is {self.loss}")
        if self.network.normalization is Normalization.BATCH_NORM:
            if self.batch.batch_size < 2:
                raise SpecError("batch_size", self.batch.batch_size, "2 or more with batch_norm, which averages over the batch")
            if self.batch.sample_input is not SampleInput.STANDARD_NORMAL:
                # Every row the same: the deviation it divides by is rounding noise, and so would be all gradients before it.
                allowed = "standard_normal with batch_norm, which needs samples that differ"
                raise SpecError("sample_input", str(self.batch.sample_input), allowed)

    def replace(self, **changes: Any) -> ExperimentSpec:
        """The same experiment with some fields changed, named as in `to_dict` (such as `activation="relu"`)."""
        return self.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, str | int | float | bool]:
        """Every field under its own name, as a number, a bool or a short text without spaces."""
        flat: dict[str, Any] = {}
        for part in (self.network, self.batch, self):
            flat |= {f.name: getattr(part, f.name) for f in fields(part) if f.name not in ("network", "batch")}
        flat["layer_sizes"] = sizes_to_text(self.network.layer_sizes)
        return {name: str(value) if isinstance(value, StrEnum) else value for name, value in flat.items()}

    @classmethod
    def from_dict(cls, flat: Mapping[str, object]) -> ExperimentSpec:
        """The specification that `to_dict` wrote; fields left out keep their defaults, values may be text.

        Raises SpecError for an unknown field, a bad value or a combination that cannot be built.
        """
        for name in flat:
            if name not in FIELDS:
                raise SpecError("field", name, listed(FIELDS))
        parts: dict[type, dict[str, Any]] = {NetworkSpec: {}, BatchSpec: {}, cls: {}}
        for name, value in flat.items():
            parts[FIELDS[name]][name] = value
        return cls(network=NetworkSpec(**parts[NetworkSpec]), batch=BatchSpec(**parts[BatchSpec]), **parts[cls])


FIELDS: dict[str, type] = {
    f.name: part
    for part in (NetworkSpec, BatchSpec, ExperimentSpec)
    for f in fields(part)
    if f.name not in ("network", "batch")
}
"""Field name -> the specification it belongs to, in the order of `to_dict`."""


# --- checking and settling values -------------------------------------------------------------------------------------


def _settle(spec: NetworkSpec | BatchSpec | ExperimentSpec, **own_rules: Any) -> None:
    """Bring every field to its declared type, once, at the door; raise SpecError for what cannot be."""
    for name, hint in _types(type(spec)).items():  # type: ignore[arg-type]
        value = getattr(spec, name)
        if name in own_rules:
            value = own_rules[name](name, value)
        elif hint is bool:
            value = _flag(name, value)
        elif issubclass(hint, StrEnum):
            value = _choice(name, value, hint)
        object.__setattr__(spec, name, value)


@cache
def _types(kind: type) -> dict[str, Any]:
    """The declared type of every field; looked up once, as Python reads it from text each time."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _choice(name: str, value: object, kind: type[StrEnum]) -> StrEnum:
    try:
        return kind(str(value))
    except ValueError:
        raise SpecError(name, value, listed(kind)) from None


def _flag(name: str, value: object) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if type(value).__name__ in ("bool", "bool_"):  # numpy's too, as a data frame holds them
        return bool(value)
    raise SpecError(name, value, "true or false")


def _whole(name: str, value: object, low: int, high: int) -> int:
    number = _number(value)
    if number is None or number != int(number) or not low <= number <= high:
        raise SpecError(name, value, f"a whole number from {low} to {high}")
    return int(number)


def _real(name: str, value: object, low: float) -> float:
    number = _number(value)
    if number is None or not low <= number <= MAX_SCALE:
        raise SpecError(name, value, f"a number from {low:,.0f} to {MAX_SCALE:,.0f}")
    return number


def _gain(name: str, value: object) -> float:
    return _real(name, value, -MAX_SCALE)


def _scale(name: str, value: object) -> float:
    return _real(name, value, 0.0)


def _number(value: object) -> float | None:
    """The value as a finite float, or None where it is not a number; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, Real | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _layer_sizes(name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        value = sizes_from_text(value)
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise SpecError(name, value, "a list of whole numbers, input size first")
    value = tuple(islice(value, MAX_LAYERS + 2))
    if not 2 <= len(value) <= MAX_LAYERS + 1:
        raise SpecError(name, shorten(value), f"2 to {MAX_LAYERS + 1} sizes, for 1 to {MAX_LAYERS} layers")
    return tuple(_whole(name, size, 1, MAX_SIZE) for size in value)
