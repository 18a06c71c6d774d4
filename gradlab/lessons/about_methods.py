"""Questions about the capture methods; what is right is found by running them."""

from __future__ import annotations

from functools import cache, lru_cache

import torch
from torch import Tensor, nn

from gradlab.batches import loss_function, sample_input, target
from gradlab.capture import CAPTURE_METHODS, capture_gradients
from gradlab.errors import CaptureError
from gradlab.experiment import ExperimentResult, run_experiment
from gradlab.lessons.question import Option, Question, fixed
from gradlab.lessons.situations import linear
from gradlab.lessons.thread_warnings import filtered_here
from gradlab.networks import build_network
from gradlab.presets import PRESETS
from gradlab.spec import CaptureMethod, ExperimentSpec

_BY_HAND = {
    CaptureMethod.TENSOR_HOOKS: "A forward hook that attaches a tensor hook to the output",
    CaptureMethod.RETAIN_GRAD: "`retain_grad()` on the output, `.grad` after backward",
    CaptureMethod.FULL_BACKWARD_HOOKS: "`register_full_backward_hook` on the layer",
}


def _lesson(result: ExperimentResult) -> ExperimentSpec:
    """Lesson B's network of two layers, with the seed at hand."""
    return PRESETS["two_layer_regression"].spec.replace(seed=result.spec.seed)


# --- an activation in place -------------------------------------------------------------------------------------------


@cache
def _in_front_of_an_in_place_activation() -> dict[CaptureMethod, str]:
    """What each method says about a linear layer whose output a ReLU overwrites: "" for a number, else why there is none."""
    found = {}
    for method in CaptureMethod:
        generator = torch.Generator().manual_seed(0)
        network = nn.Sequential(linear(4, 8, generator), nn.ReLU(inplace=True), linear(8, 1, generator))
        try:
            with capture_gradients(network, method) as capture:
                network(torch.randn(3, 4, generator=generator)).sum().backward()
        except CaptureError as error:
            found[method] = f"it refuses: {error}"
            continue
        record = capture.passes[0].outputs[0]
        found[method] = "" if record.statistics else f"the reading is withheld: {record.note}"
    return found


def _in_place(result: ExperimentResult) -> str:
    found = _in_front_of_an_in_place_activation()
    said = [f"{CAPTURE_METHODS[method].title}: {reason or 'a number'}." for method, reason in found.items()]
    return f"Measured in front of a ReLU that works in place. {' '.join(said)}"


_IN_PLACE_THOUGHTS = {
    CaptureMethod.TENSOR_HOOKS: "You may think that a hook on a tensor follows the tensor wherever it goes.",
    CaptureMethod.RETAIN_GRAD: "You may think that the tensor you kept is still the layer's output. The activation has written"
    " over it, so its `.grad` belongs to what stands there now.",
    CaptureMethod.FULL_BACKWARD_HOOKS: "You may think that a hook on the layer needs no tensor. PyTorch wraps the layer's"
    " output for it, and what is wrapped may not be changed in place.",
}

METHOD_INPLACE = Question(
    key="method_inplace",
    page="methods",
    covers=("B2", "B3", "B5"),
    text=fixed(
        "An activation works in place: it overwrites the output of the layer before it. What still gives the gradient at that"
        " layer's own output?"
    ),
    options=lambda result: tuple(
        Option(key=method, text=text, refutation=f"{_IN_PLACE_THOUGHTS[method]} {_in_place(result)}")
        for method, text in _BY_HAND.items()
    ),
    scorer=lambda result: frozenset(
        str(method) for method, reason in _in_front_of_an_in_place_activation().items() if not reason
    ),
    explanation=_in_place,
    why_not=lambda result: "",
    never_right={
        "retain_grad": "The tensor it was called on is overwritten.",
        "full_backward_hooks": "A wrapped output may not be changed in place.",
    },
)

# --- the same number? -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _compared_layers(lesson: ExperimentSpec) -> tuple[int, float]:
    """How many layer outputs all three ways read, and the largest difference between any two of their numbers."""
    first, *others = (_captured(lesson.replace(capture_method=method)) for method in CaptureMethod)
    difference = max(float((one - two).abs().max()) for other in others for one, two in zip(first, other, strict=True))
    return len(first), difference


def _captured(spec: ExperimentSpec) -> list[Tensor]:
    outputs = run_experiment(spec, keep_gradients=True).outputs
    return [record.gradient for record in outputs if record.gradient is not None]


def _same(result: ExperimentResult) -> frozenset[str]:
    _, difference = _compared_layers(_lesson(result))
    return frozenset({"same" if difference == 0 else "rounding" if difference < 1e-5 else "different"})


def _compared(result: ExperimentResult) -> str:
    layers, difference = _compared_layers(_lesson(result))
    return (
        f"Measured on the two-layer network, seed {result.spec.seed}: at {layers} layer outputs the largest difference between"
        f" any two ways is {difference:g}."
    )


METHOD_SAME_NUMBER = Question(
    key="method_same_number",
    page="methods",
    covers=("B2", "B3", "B4", "B5"),
    text=fixed("Three ways to capture an output gradient, one ordinary network. How do their numbers compare?"),
    options=lambda result: (
        Option(
            key="same",
            text="The same to the last bit",
            refutation="You may think that three ways to look at one tensor must agree. They do while it is one tensor."
            f" {_compared(result)}",
        ),
        Option(
            key="rounding",
            text="The same up to rounding",
            refutation="You may think that each way computes the gradient in its own manner. None of them computes anything:"
            f" all three read the one tensor that autograd made. {_compared(result)}",
        ),
        Option(
            key="different",
            text="Different: they measure different things",
            refutation="You may think that different hooks see different gradients. On an ordinary network all three look at"
            f" the layer's output; they part where something changes it in place. {_compared(result)}",
        ),
    ),
    scorer=_same,
    explanation=_compared,
    why_not=lambda result: "",
    never_right={
        "rounding": "The three ways read one and the same tensor.",
        "different": "The three ways read one and the same tensor.",
    },
)

# --- the input of the first layer -------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _given_to_the_first_layer(spec: ExperimentSpec) -> tuple[str, str, str]:
    """What a full backward hook on the first layer is given at its input and output, and whether the first has numbers."""
    given: list[tuple[Tensor | None, Tensor | None]] = []
    network = build_network(spec)
    first = network.layers[0][0]  # type: ignore[index]
    handle = first.register_full_backward_hook(lambda module, inputs, outputs: given.append((inputs[0], outputs[0])))
    try:
        with filtered_here("ignore", "Full backward hook is firing"):
            loss_function(spec)(network(sample_input(spec)), target(spec)).backward()
    finally:
        handle.remove()
    at_input, at_output = given[0]
    kind = "none" if at_input is None else "numbers" if bool(at_input.any()) else "zeros"
    return _described(at_input), _described(at_output), kind


def _described(gradient: Tensor | None) -> str:
    return "`None`" if gradient is None else f"a tensor of shape {' × '.join(map(str, gradient.shape))}"


def _first_layer(result: ExperimentResult) -> str:
    at_input, at_output, _ = _given_to_the_first_layer(_lesson(result))
    return f"Measured on the two-layer network: `grad_input[0]` is {at_input}, `grad_output[0]` is {at_output}."


METHOD_FIRST_LAYER = Question(
    key="method_first_layer",
    page="methods",
    covers=("B3",),
    text=fixed(
        "A full backward hook on the first layer is handed `grad_input`. What is in it, as the input needs no gradient?"
    ),
    options=lambda result: (
        Option(
            key="none",
            text="`None`",
            refutation="You may think that a first layer never has a gradient at its input. It has one if the input asks for"
            f" it. {_first_layer(result)}",
        ),
        Option(
            key="zeros",
            text="Zeros",
            refutation="You may think that what nobody needs is zero. A zero would have to be computed, and it would be wrong:"
            f" the loss does depend on the input. {_first_layer(result)}",
        ),
        Option(
            key="numbers",
            text="How the loss changes with each input",
            refutation="You may think that the gradient runs through to the input. Autograd stops where nothing asks for a"
            f" gradient; with `x.requires_grad_()` it would be there. {_first_layer(result)}",
        ),
    ),
    scorer=lambda result: frozenset({_given_to_the_first_layer(_lesson(result))[2]}),
    explanation=_first_layer,
    why_not=lambda result: "",
    never_right={
        "zeros": "Nothing is computed that nobody needs.",
        "numbers": "The lab's inputs need no gradient.",
    },
)

# --- one tensor, one look ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _one_look(spec: ExperimentSpec) -> dict[str, bool]:
    """Whether each way gives the gradient at the first layer's output, as `torch.autograd.grad` has it."""
    network, wanted, loss_of = build_network(spec), target(spec), loss_function(spec)
    first, rest = network.layers[0][0], nn.Sequential(network.layers[0][1], network.layers[1])  # type: ignore[index]

    def forward() -> tuple[Tensor, Tensor]:
        h = first(sample_input(spec))
        return h, loss_of(rest(h), wanted)

    h, loss = forward()
    (true,) = torch.autograd.grad(loss, h)
    kept, loss = forward()
    kept.retain_grad()
    loss.backward()
    dropped, loss = forward()
    loss.backward()
    weight = first.weight.grad
    return {
        "retain_grad": kept.grad is not None and torch.equal(kept.grad, true),
        "read_grad": dropped.retains_grad,  # without it `.grad` is None, and asking for it a warning
        "weight_grad": weight.shape == true.shape and torch.equal(weight, true),
    }


def _looked(result: ExperimentResult) -> str:
    right = [key for key, equal in _one_look(_lesson(result)).items() if equal]
    return (
        f"Measured on the two-layer network, seed {result.spec.seed}, against `torch.autograd.grad`: equal to the last bit with"
        f" {' and '.join(f'`{key}`' for key in right) or 'none of them'}."
    )


METHOD_ONE_TENSOR = Question(
    key="method_one_tensor",
    page="methods",
    covers=("B4",),
    text=fixed("You want the gradient at one layer's output, once, without any hook. What do you write?"),
    options=lambda result: (
        Option(
            key="retain_grad",
            text="`h = layer(x); h.retain_grad()`, and `h.grad` after backward",
            refutation=f"You may think that `retain_grad()` always gives the layer's own output gradient. It gives that of the"
            f" tensor as it is in the end. {_looked(result)}",
        ),
        Option(
            key="read_grad",
            text="`h = layer(x)`, and `h.grad` after backward",
            refutation="You may think that every tensor has its gradient after backward. A tensor that was computed from others"
            f" is no leaf: its `.grad` stays `None` unless you ask for it before. {_looked(result)}",
        ),
        Option(
            key="weight_grad",
            text="`layer.weight.grad` after backward",
            refutation="You may think that the layer's gradient is one thing. This is the weight's, of the weight's shape, not"
            f" what arrived at the output. {_looked(result)}",
        ),
    ),
    scorer=lambda result: frozenset(key for key, equal in _one_look(_lesson(result)).items() if equal),
    explanation=_looked,
    why_not=lambda result: "",
    never_right={
        "read_grad": "PyTorch keeps no gradient at a tensor that is no leaf.",
        "weight_grad": "A weight's gradient has the weight's shape.",
    },
)
