"""Random pairs of networks, without and with shortcuts, and what plain autograd says about them."""

import random
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import median, mode

import torch

from gradlab import ExperimentSpec, SpecError, build_network, run_experiment
from gradlab.batches import loss_function, sample_input, target
from gradlab.spec import Activation, Initializer, Loss, Normalization, SampleInput

PAIRS = 220


def random_spec(draw):
    """A small experiment without shortcuts; one in four has layers of several widths, one in ten a hostile scale."""
    depth, width = draw.randint(1, 11), draw.choice([1, 2, 3, 4, 6, 8])
    sizes = [draw.choice([width, 3]), *[width] * (depth - 1), draw.choice([1, width, 2])]
    if draw.random() < 0.25:
        sizes = [draw.randint(1, 6) for _ in sizes]
    flat = {
        "layer_sizes": "-".join(map(str, sizes)),
        "activation": draw.choice(list(Activation)),
        "activate_last": draw.random() < 0.5,
        "initializer": draw.choice(list(Initializer)),
        "gain": draw.choice([1, 1, 1, 1, 0.5, 2, 3]) if draw.random() < 0.9 else draw.choice([0, 1e6, -1e6, 1e-6]),
        "sigma_w": draw.choice([0.5, 1, 1.5, 2.5]),
        "normalization": draw.choice([Normalization.NO_NORM] * 3 + list(Normalization)),
        "use_bias": draw.random() < 0.6,
        "dtype": draw.choice(["float32", "float64"]),
        "sample_input": draw.choice(list(SampleInput)),
        "batch_size": draw.choice([1, 1, 2, 3, 8]),
        "loss": draw.choice([Loss.MSE, Loss.MSE, Loss.MSE_SUM, Loss.L1, Loss.OUTPUT_SUM]),
        "seed": draw.randint(0, 10_000),
    }
    try:
        return ExperimentSpec.from_dict(flat)
    except SpecError:  # such as BatchNorm on one sample
        return random_spec(draw)


@cache
def pairs():
    """Results without and with shortcuts; the reference pair first, then a few that are known to be extreme."""
    draw = random.Random(7)
    named = [
        {},
        {"layer_sizes": "3-1"},
        {"layer_sizes": "3-3-3-1"},
        {"layer_sizes": "3-4-5-6-1"},
        {"layer_sizes": "4x60-1", "activation": "relu"},
        {"initializer": "normal", "sigma_w": 0},
        {"layer_sizes": "8x12-1", "gain": 1e6, "activation": "identity"},
        {"layer_sizes": "8x11-1", "activation": "sigmoid"},
        {"activation": "leaky_relu", "activate_last": False, "loss": "output_sum", "seed": 8973},
    ]
    specs = [ExperimentSpec().replace(**changes) for changes in named]
    specs += [random_spec(draw) for _ in range(PAIRS - len(specs))]
    return tuple((run_experiment(spec), run_experiment(spec.replace(use_shortcut=True))) for spec in specs)


@dataclass
class Raw:
    """The gradients of one experiment as autograd leaves them, first layer first."""

    weights: list[torch.Tensor]
    outputs: list[torch.Tensor]
    order: list[int]


@cache
def raw(spec):
    """The same experiment without the package's capture: `.grad` of the weights, kept gradients of the linear outputs."""
    network, kept, order = build_network(spec), {}, []
    linears = [layer[0] for layer in network.layers]

    def keep(depth, output):
        output.retain_grad()
        output.register_hook(lambda gradient: order.append(depth))
        kept[depth] = output

    for depth, linear in enumerate(linears):
        linear.register_forward_hook(lambda module, inputs, output, depth=depth: keep(depth, output))
    loss_function(spec)(network(sample_input(spec)), target(spec)).backward()
    weights = [linear.weight.grad.double() for linear in linears]
    return Raw(weights, [kept[depth].grad.double() for depth in range(len(linears))], order)


def mean_abs(gradients):
    return [gradient.abs().mean().item() for gradient in gradients]


def hidden_depths(spec):
    """The layers a trend is read from: those before the last with the width most of them have."""
    widths = spec.network.layer_sizes[1:-1]
    return [depth for depth, width in enumerate(widths) if width == mode(widths)] if widths else []


def left_at_the_input_end(spec, gradients):
    """A: a robust line through the root mean squares of the hidden layers; None where one of them is no positive number."""
    depths = hidden_depths(spec)
    sizes = [gradients[depth].square().mean().sqrt() for depth in depths]
    if len(depths) < 3 or not all(size.isfinite() and size > 0 for size in sizes):
        return None
    return 10 ** -(robust_slope(depths, sizes) * (len(depths) - 1))


def robust_slope(depths, sizes):
    """The median of all slopes of log10 size over depth (Theil 1950, Sen 1968)."""
    points = [
        (depth, torch.as_tensor(size, dtype=torch.float64).log10().item()) for depth, size in zip(depths, sizes, strict=True)
    ]
    return median((second[1] - first[1]) / (second[0] - first[0]) for first, second in combinations(points, 2))


def word(left):
    """The trend a learner may name."""
    return "smaller" if left < 0.5 else "grows" if left > 2 else "same"
