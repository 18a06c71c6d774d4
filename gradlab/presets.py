"""Named experiments, each with what to look for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from gradlab.spec import Activation, BatchSpec, ExperimentSpec, Initializer, Loss, NetworkSpec, SampleInput, Target


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named experiment."""

    title: str
    look_for: str
    spec: ExperimentSpec


def _deep(width: int, depth: int, output_size: int, **options: Any) -> NetworkSpec:
    return NetworkSpec.of_width(width, depth, output_size=output_size, activate_last=False, **options)


_NORMAL_BATCH = BatchSpec(sample_input=SampleInput.STANDARD_NORMAL, batch_size=32)

PRESETS: dict[str, Preset] = {
    "reference": Preset(
        title="Reference: five small layers",
        look_for="Toward the input end the readings shrink, though not at every step.",
        spec=ExperimentSpec(),
    ),
    "reference_shortcut": Preset(
        title="Reference with shortcuts",
        look_for="The same weights and input; only the shortcuts are new. The readings level off.",
        spec=ExperimentSpec(network=NetworkSpec(use_shortcut=True)),
    ),
    "two_layer_regression": Preset(
        title="Two layers: fc1, ReLU, fc2",
        look_for="An output gradient has the shape of the output, a weight gradient that of the weight.",
        spec=ExperimentSpec(
            network=NetworkSpec(layer_sizes=(4, 8, 1), activation=Activation.RELU, activate_last=False),
            batch=BatchSpec(sample_input=SampleInput.STANDARD_NORMAL, batch_size=3, target=Target.STANDARD_NORMAL),
        ),
    ),
    "deep_sigmoid": Preset(
        title="Ten sigmoid layers",
        look_for="A sigmoid's slope is at most 1/4: each layer passes on a small part of the signal.",
        spec=ExperimentSpec(network=_deep(32, 10, 1, activation=Activation.SIGMOID), batch=_NORMAL_BATCH),
    ),
    "he_relu": Preset(
        title="Fifty ReLU layers, He initialisation",
        look_for="The initialisation is made for ReLU: fifty layers on, the signal is still there.",
        spec=ExperimentSpec(
            network=_deep(256, 50, 10, activation=Activation.RELU, initializer=Initializer.HE),
            # Class labels: the error of a zero target would be the output itself, which the weights amplify in their own
            # way toward the input too, and the readings would grow although no layer amplifies a signal that is not its own.
            batch=replace(_NORMAL_BATCH, target=Target.CLASS_LABELS),
            loss=Loss.CROSS_ENTROPY,
        ),
    ),
    "too_large": Preset(
        title="Weights twice too large",
        look_for="Twice the He initialisation: the readings grow toward the input end, about twofold per layer.",
        spec=ExperimentSpec(
            network=_deep(64, 20, 1, activation=Activation.RELU, initializer=Initializer.HE, gain=2.0), batch=_NORMAL_BATCH
        ),
    ),
    "bias_free_relu": Preset(
        title="Bias-free ReLU: the two gradients part",
        look_for="The output gradients shrink toward the input, the weight gradients keep about one size in every layer.",
        spec=ExperimentSpec(
            # Without biases, <W, dL/dW> is the same in every layer, whatever the scale of the weights and the loss (Du, Hu &
            # Lee 2018). One output and no target: then no layer sees an error that the weights have amplified themselves.
            network=_deep(
                128, 12, 1, activation=Activation.RELU, initializer=Initializer.NORMAL, sigma_w=math.sqrt(1 / 3), use_bias=False
            ),
            batch=BatchSpec(sample_input=SampleInput.STANDARD_NORMAL),
            loss=Loss.OUTPUT_SUM,
        ),
    ),
}
