"""An experiment as a script of its own: the same numbers from PyTorch alone, for reading, running and changing."""

from __future__ import annotations

import textwrap
from itertools import groupby

import torch

from gradlab.batches import LOSSES, SAMPLE_INPUTS, TARGETS
from gradlab.networks import ACTIVATIONS, INITIALIZERS
from gradlab.spec import (
    CaptureMethod,
    ExperimentSpec,
    Initializer,
    Loss,
    NetworkSpec,
    Normalization,
    Precision,
    SampleInput,
    Target,
)

WIDTH = 110
"""Longest line of a script, so that it reads well beside an editor's margin."""

DRAWN: dict[Initializer, str] = {
    # Not PyTorch's default, which nn.Linear draws by itself.
    Initializer.XAVIER: "nn.init.xavier_uniform_(layer.weight, generator=generator)",
    Initializer.HE: 'nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)',
    Initializer.ORTHOGONAL: "nn.init.orthogonal_(layer.weight, generator=generator)",
    Initializer.NORMAL: "nn.init.normal_(layer.weight, std=SIGMA_W / math.sqrt(fan_in), generator=generator)",
}
BATCHES: dict[SampleInput, str] = {
    SampleInput.FIXED_SAMPLE: "torch.tensor([[(1.0, 0.0, -1.0)[i % 3] for i in range(LAYER_SIZES[0])]] * BATCH_SIZE)",
    SampleInput.STANDARD_NORMAL: "torch.randn(BATCH_SIZE, LAYER_SIZES[0], generator=generator_of(stream=1))",
    SampleInput.ZEROS: "torch.zeros(BATCH_SIZE, LAYER_SIZES[0])",
}
WANTED: dict[Target, str] = {
    Target.ZEROS: "torch.zeros(BATCH_SIZE, LAYER_SIZES[-1])",
    Target.STANDARD_NORMAL: "torch.randn(BATCH_SIZE, LAYER_SIZES[-1], generator=generator_of(stream=2))",
    Target.CLASS_LABELS: "torch.randint(LAYER_SIZES[-1], (BATCH_SIZE,), generator=generator_of(stream=2))",
}
LOSS_OF: dict[Loss, str] = {
    Loss.MSE: "functional.mse_loss(output, target)",
    Loss.MSE_SUM: 'functional.mse_loss(output, target, reduction="sum")',
    Loss.L1: "functional.l1_loss(output, target)",
    Loss.CROSS_ENTROPY: "functional.cross_entropy(output, target)",
    Loss.OUTPUT_SUM: "output.sum()",
}
# What each method needs before the forward, and where it finds the gradient of a layer's output afterwards.
CAPTURED: dict[CaptureMethod, str] = {
    CaptureMethod.TENSOR_HOOKS: """
        # The capture: when a layer has run, its output gets a tensor hook, which backward calls with the gradient.
        def watch(name):
            def after_forward(layer, inputs, output):
                output.register_hook(lambda gradient: gradients.update({name: gradient}))

            return after_forward


        gradients = {}
        for name, layer in layers.items():
            layer.register_forward_hook(watch(name))
        """,
    CaptureMethod.RETAIN_GRAD: """
        # The capture: when a layer has run, its output is kept and told to keep its gradient, in .grad.
        def watch(name):
            def after_forward(layer, inputs, output):
                output.retain_grad()
                outputs[name] = output

            return after_forward


        outputs = {}
        for name, layer in layers.items():
            layer.register_forward_hook(watch(name))
        """,
    CaptureMethod.FULL_BACKWARD_HOOKS: """
        # The capture: every layer gets a full backward hook, called with the gradient at the layer's output.
        def watch(name):
            def after_backward(layer, grad_input, grad_output):
                gradients[name] = grad_output[0]

            return after_backward


        gradients = {}
        for name, layer in layers.items():
            layer.register_full_backward_hook(watch(name))
        inputs.requires_grad_()  # else PyTorch warns that the first layer has no grad_input, which is not used here
        """,
}


def to_script(spec: ExperimentSpec) -> str:
    """A Python script that measures the experiment with PyTorch alone and prints its numbers.

    It builds only what this experiment needs. The first line it prints is `loss` and the loss; every further line is the
    name of a layer or parameter, the kind of gradient (`output`, `weight` or `bias`) and the mean of its absolute values,
    in full precision. Layers come in the order of `named_modules()`, parameters in that of `named_parameters()`.
    The gradients are those of `run_experiment` on one thread, as in the lab; the means are its means to a relative 1e-6, as
    they are summed in another order, and `inf` where that sum leaves the range of float64. More threads add in other orders
    too, which shows where rounding errors are all there is: behind a BatchNorm over rows that are all alike.
    """
    parts = [_title(spec), _imports(spec), _experiment(spec), _own_generator(spec), _linear(spec.network)]
    parts += [_network(spec), _batch(spec), textwrap.dedent(CAPTURED[spec.capture_method]), _run(spec)]
    return _laid_out("\n".join(filter(None, parts)))


def _title(spec: ExperimentSpec) -> str:
    layers = "one layer" if spec.network.depth == 1 else f"{spec.network.depth} layers"
    return f'''"""The gradients of one backward pass through {layers}, seed {spec.seed}.

Written by gradlab. It needs PyTorch alone; torch {torch.__version__.split("+")[0]} gives the numbers that gradlab shows.
"""
'''


def _imports(spec: ExperimentSpec) -> str:
    lines = ["import math"] if spec.network.initializer is Initializer.NORMAL else []
    lines += ["from itertools import pairwise", "", "import torch", "from torch import nn"]
    return "\n".join([*lines, *(["from torch.nn import functional"] if "functional" in LOSS_OF[spec.loss] else []), ""])


def _experiment(spec: ExperimentSpec) -> str:
    network = spec.network
    lines = [_sizes(network.layer_sizes), f"BATCH_SIZE = {spec.batch.batch_size}"]
    if network.gain != 1:
        lines.append(f"GAIN = {network.gain!r}  # multiplies the initial weights")
    if network.initializer is Initializer.NORMAL:
        lines.append(f"SIGMA_W = {network.sigma_w!r}  # the weights have variance SIGMA_W² / fan_in")
        if network.use_bias:
            lines.append(f"SIGMA_B = {network.sigma_b!r}  # the biases have variance SIGMA_B²")
    lines.append(f"SEED = {spec.seed}  # where all random numbers come from")
    lines += ["", "torch.set_num_threads(1)  # numbers are then added in the same order everywhere", ""]
    return "\n".join(lines)


def _sizes(sizes: tuple[int, ...]) -> str:
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    comment = "  # the input size, then the output size of every layer"
    if len(runs) == 1 and len(sizes) > 5:
        return f"LAYER_SIZES = [{sizes[0]}] * {len(sizes)}{comment}"
    listed = ", ".join(f"*[{size}] * {count}" if count > 5 else ", ".join([str(size)] * count) for size, count in runs)
    if len(line := f"LAYER_SIZES = [{listed}]{comment}") <= WIDTH:
        return line
    unbroken = textwrap.fill(listed.replace(" * ", "\N{NO-BREAK SPACE}*\N{NO-BREAK SPACE}"), WIDTH - 4)
    return f"LAYER_SIZES = [{comment}\n{textwrap.indent(unbroken, '    ')}\n]".replace("\N{NO-BREAK SPACE}", " ")


def _own_generator(spec: ExperimentSpec) -> str:
    if "generator_of" not in BATCHES[spec.batch.sample_input] + _target(spec):
        return ""
    return """

# Random numbers for input and target that have nothing to do with those of the weights.
def generator_of(stream):
    return torch.Generator().manual_seed((SEED * 2_654_435_761 + stream * 974_711_161) % 2**32)


"""


def _linear(network: NetworkSpec) -> str:
    """The definition of a linear map whose weights nn.Linear does not draw by itself, or draws in another size."""
    if not _draws_itself(network):
        lines = [f"# A linear map drawn anew. {INITIALIZERS[network.initializer].help}"]
        lines += ["generator = torch.Generator().manual_seed(SEED)", "", ""]
    elif network.gain != 1:
        lines = ["# A linear map as PyTorch draws it, with its weights multiplied."]
    else:
        return ""
    lines += ["def linear(fan_in, fan_out):", f"    layer = nn.Linear(fan_in, fan_out{_no_bias(network)})"]
    if not _draws_itself(network):
        lines.append(f"    {DRAWN[network.initializer]}")
        if network.use_bias:
            normal = network.initializer is Initializer.NORMAL
            drawn = "normal_(layer.bias, std=SIGMA_B, generator=generator)" if normal else "zeros_(layer.bias)"
            lines.append(f"    nn.init.{drawn}")
    if network.gain != 1:
        lines += ["    with torch.no_grad():", "        layer.weight.mul_(GAIN)"]
    return "\n".join(["", "", *lines, "    return layer", "", ""])


def _draws_itself(network: NetworkSpec) -> bool:
    return network.initializer not in DRAWN


def _no_bias(network: NetworkSpec) -> str:
    return "" if network.use_bias else ", bias=False"


def _network(spec: ExperimentSpec) -> str:
    network, normalization = spec.network, spec.network.normalization
    activation = repr(ACTIVATIONS[network.activation].build()).replace("'", '"')
    own = "linear(fan_in, fan_out)" if _linear(network) else f"nn.Linear(fan_in, fan_out{_no_bias(network)})"
    norm = ", nn.BatchNorm1d(fan_out)" if normalization is Normalization.BATCH_NORM else ""
    lines = [
        "",
        "",
        "# The network. A layer's place in it is its name in the output below.",
        "class DeepNetwork(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.layers = nn.ModuleList(",
        f"            nn.Sequential({own}{norm}, nn.{activation})",
        "            for fan_in, fan_out in pairwise(LAYER_SIZES)",
        "        )",
    ]
    if not network.activate_last:
        lines.append("        del self.layers[-1][-1]  # no activation after the last layer")
    if normalization in NORMALIZED:
        which, comment = NORMALIZED[normalization]
        lines.append(f"        self.layer_norms = nn.ModuleList(nn.LayerNorm(size) for size in {which})  # {comment}")
    lines += ["", "    def forward(self, x):", *_forward(network), "        return x", "", ""]
    lines += ["torch.manual_seed(SEED)"] if _draws_itself(network) else []
    widened = "  # the same weights, widened" if network.dtype is Precision.FLOAT64 else ""
    return "\n".join([*lines, f"network = DeepNetwork(){_widened(spec)}{widened}", ""])


NORMALIZED = {
    Normalization.LAYER_NORM_BEFORE: ("LAYER_SIZES[:-1]", "of each input"),
    Normalization.LAYER_NORM_AFTER: ("LAYER_SIZES[1:]", "of each output"),
}


def _forward(network: NetworkSpec) -> list[str]:
    before = network.normalization is Normalization.LAYER_NORM_BEFORE
    after = network.normalization is Normalization.LAYER_NORM_AFTER
    output = "layer(norm(x))" if before else "layer(x)"
    lines = ["for layer, norm in zip(self.layers, self.layer_norms):" if before or after else "for layer in self.layers:"]
    if not network.use_shortcut:
        lines.append(f"    x = {output}")
    elif len(set(network.layer_sizes)) == 1:
        lines.append(f"    x = x + {output}  # the shortcut")
    else:
        lines.append(f"    output = {output}")
        lines.append("    x = x + output if x.shape == output.shape else output  # a shortcut where the sizes are equal")
    if after:
        lines.append("    x = norm(x)")
    return [f"        {line}" for line in lines]


def _batch(spec: ExperimentSpec) -> str:
    lines = [f"# The sample input. {SAMPLE_INPUTS[spec.batch.sample_input].help}"]
    lines += [f"inputs = {BATCHES[spec.batch.sample_input]}{_widened(spec)}"]
    if _target(spec):
        lines += [f"# The target. {TARGETS[spec.batch.target].help}", f"target = {_target(spec)}"]
    layers = "layers = {name: part for name, part in network.named_modules() if not list(part.children())}"
    return "\n".join([*lines, "", "# The layers to watch: all parts that have no parts themselves.", layers, "", ""])


def _target(spec: ExperimentSpec) -> str:
    """The expression of the target; none for a loss that compares with nothing."""
    if spec.loss is Loss.OUTPUT_SUM:
        return ""
    return WANTED[spec.batch.target] + (_widened(spec) if spec.batch.target is not Target.CLASS_LABELS else "")


def _widened(spec: ExperimentSpec) -> str:
    return ".double()" if spec.network.dtype is Precision.FLOAT64 else ""


def _run(spec: ExperimentSpec) -> str:
    gradient = "outputs[name].grad" if spec.capture_method is CaptureMethod.RETAIN_GRAD else "gradients[name]"
    return f"""

# One forward, the loss, one backward. {LOSSES[spec.loss].help}
output = network(inputs)
loss = {LOSS_OF[spec.loss]}
loss.backward()


# A line for each gradient: the mean of its absolute values, added up in double precision.
def report(name, kind, gradient):
    finite = gradient[gradient.isfinite()].double()
    broken = gradient.numel() - finite.numel()
    note = f"  without {{broken}} entries that are NaN or infinite" if broken else ""
    print(f"{{name:24}} {{kind:6}} {{finite.abs().mean().item()!r}}{{note}}")


print("loss", loss.item())
for name in layers:
    report(name, "output", {gradient})
for name, parameter in network.named_parameters():
    report(name, name.split(".")[-1], parameter.grad)
"""


def _laid_out(text: str) -> str:
    """The text with at most two empty lines in a row, as Python code is set."""
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text
