"""Questions about output gradients: which of the two is which, do they agree, and what a zero and a None say."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from gradlab.capture import OutputGradient, Status, capture_gradients
from gradlab.experiment import ExperimentResult
from gradlab.lessons.question import Option, Question, fixed
from gradlab.lessons.situations import linear
from gradlab.lessons.trend import TREND_WORDS, diagnosis_of, trend, why_no_trend
from gradlab.text import short_number
from gradlab.trail import Quantity, layer_of

Shapes = tuple[str, tuple[int, ...], tuple[int, ...]]


def _dimensions(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


# --- which is which? --------------------------------------------------------------------------------------------------


def two_shapes(result: ExperimentResult) -> Shapes | None:
    """The first layer whose weight and output differ in shape: its name, the weight's shape and the output's."""
    outputs = {record.layer: record.shape for record in result.outputs if record.module_type == "Linear"}
    for record in result.parameters:
        output = outputs.get(record.layer)
        if record.role == "weight" and record.shape and output and record.shape != output:
            return layer_of(record.layer), record.shape, output
    return None


def _asked_for(result: ExperimentResult) -> Quantity:
    """Which of the two is asked for goes with the seed, so that a missed question does not return with the same answer."""
    return Quantity.WEIGHTS if result.spec.seed % 2 else Quantity.OUTPUTS


def _which(result: ExperimentResult) -> str:
    layer, _, _ = two_shapes(result) or ("", (), ())
    noun = "weight gradient" if _asked_for(result) is Quantity.WEIGHTS else "output gradient"
    network, rows = result.spec.network, result.spec.batch.batch_size
    depth = int(layer.split(".")[1])
    sizes = f"{network.layer_sizes[depth]} inputs, {network.layer_sizes[depth + 1]} outputs"
    return f"Two gradients of `{layer}` ({sizes}; {rows} in the batch). Which one is the {noun}?"


def _whose(result: ExperimentResult) -> str:
    layer, weight, output = two_shapes(result) or ("", (), ())
    return (
        f"At `{layer}` the weight gradient has the weight's shape, {_dimensions(weight)}: outputs × inputs. The output gradient"
        f" has the output's, {_dimensions(output)}: batch × outputs."
    )


def _shape_options(result: ExperimentResult) -> tuple[Option, ...]:
    _, weight, output = two_shapes(result) or ("", (), ())
    asked_for_weight = _asked_for(result) is Quantity.WEIGHTS
    options = (
        Option(
            key="weight_shape",
            text=f"The one of shape {_dimensions(weight)}",
            refutation="You may think that whatever belongs to a layer has the shape of its weight. An output gradient has one"
            f" entry for each number the layer put out, for each sample. {_whose(result)}",
        ),
        Option(
            key="output_shape",
            text=f"The one of shape {_dimensions(output)}",
            refutation="You may think that a weight's gradient has a row for each sample. The samples are added up in it: the"
            f" optimiser needs one number for each weight. {_whose(result)}",
        ),
    )
    return options[::-1] if asked_for_weight else options


WHICH_IS_WHICH = Question(
    key="which_is_which",
    page="outputs",
    covers=("B1",),
    text=_which,
    options=_shape_options,
    scorer=lambda result: frozenset({"weight_shape" if _asked_for(result) is Quantity.WEIGHTS else "output_shape"}),
    explanation=_whose,
    why_not=lambda result: "" if two_shapes(result) else "Every weight of this network has the very shape of its output here.",
)

# --- what is stored? --------------------------------------------------------------------------------------------------


def _stored(result: ExperimentResult) -> str:
    return (
        f"After backward {result.filled_after} of {len(result.parameters)} parameters have a `.grad`. The gradients at the"
        f" {len(result.outputs)} layer outputs were there for a moment: the lab's hooks noted them as they passed."
    )


STORED = Question(
    key="stored",
    page="outputs",
    covers=("B1",),
    text=fixed("`loss.backward()` has run and no hook was set. What is stored, ready for the optimiser?"),
    options=lambda result: (
        Option(
            key="parameters",
            text="The gradients of weights and biases, in `.grad`",
            refutation=f"You may think that backward always fills every `.grad`. Here it did not. {_stored(result)}",
        ),
        Option(
            key="outputs",
            text="The gradients at the layers' outputs",
            refutation="You may think so because they are what flows backward. They are used on the way and dropped; an"
            f" optimiser changes parameters. {_stored(result)}",
        ),
        Option(
            key="both",
            text="Both",
            refutation="You may think that what was computed is kept. Keeping every output's gradient costs memory, so PyTorch"
            f" keeps those of leaf tensors alone: the parameters. {_stored(result)}",
        ),
    ),
    scorer=lambda result: frozenset({"parameters"} if result.filled_after else ()),
    explanation=_stored,
    why_not=lambda result: "" if result.filled_after else "Backward left no gradient at all here.",
    never_right={
        "outputs": "PyTorch drops the gradients of tensors that are no leaves.",
        "both": "PyTorch drops the gradients of tensors that are no leaves.",
    },
)

# --- do the two agree? ------------------------------------------------------------------------------------------------


def _both_trends(result: ExperimentResult) -> str:
    weights, outputs = trend(result, Quantity.WEIGHTS), trend(result, Quantity.OUTPUTS)
    if weights is None or outputs is None:
        return ""
    factors = {quantity: short_number(diagnosis_of(result, quantity).factor) for quantity in Quantity}
    return (
        f"Toward the input end the weight gradient {TREND_WORDS[weights]} ({factors[Quantity.WEIGHTS]} per layer) and the"
        f" output gradient {TREND_WORDS[outputs]} ({factors[Quantity.OUTPUTS]} per layer)."
    )


TWO_TRENDS = Question(
    key="two_trends",
    page="outputs",
    covers=("B1",),
    text=fixed(
        "Weight gradients and output gradients of the same run: do both go the same way over the hidden layers, smaller, larger"
        " or about the same?"
    ),
    options=lambda result: (
        Option(
            key="agree",
            text="Yes, both go the same way",
            refutation="You may think that both measure the same thing. A weight gradient is an output gradient times the"
            f" layer's input, so inputs that change along the way pull the two apart. {_both_trends(result)}",
        ),
        Option(
            key="disagree",
            text="No, they go different ways",
            refutation="You may think that two different things cannot agree. Where the layers' inputs keep their size, the"
            f" weight gradient follows the output gradient. {_both_trends(result)}",
        ),
    ),
    scorer=lambda result: frozenset(
        {"agree" if trend(result, Quantity.WEIGHTS) is trend(result, Quantity.OUTPUTS) else "disagree"}
    ),
    explanation=_both_trends,
    why_not=lambda result: why_no_trend(result, Quantity.WEIGHTS) or why_no_trend(result, Quantity.OUTPUTS),
)

# --- zero or nothing? -------------------------------------------------------------------------------------------------

_ARRIVED = {
    "number": "A gradient with entries other than zero",
    "zero": "A gradient, and every entry is exactly zero",
    "non_finite": "A gradient with entries that are no numbers",
    "nothing": "Nothing: there is no gradient",
}


def _at_the_input_end(result: ExperimentResult) -> OutputGradient:
    return next(record for record in result.outputs if record.module_type == "Linear")


def _kind(record: OutputGradient) -> str:
    if record.statistics is None:
        return "nothing"
    return {Status.ALL_ZERO: "zero", Status.NON_FINITE: "non_finite"}.get(record.status, "number")


def _reading_at_the_input_end(result: ExperimentResult) -> str:
    record = _at_the_input_end(result)
    of = record.statistics
    numbers = f"norm {short_number(of.norm)}, min {short_number(of.min)}, max {short_number(of.max)}" if of else "no numbers"
    broken = f", {of.nonfinite_count} of {of.numel} entries not finite" if of and of.nonfinite_count else ""
    return f"`{record.layer}`, shape {_dimensions(record.shape or ())}: {numbers}{broken}."


def _arrived_options(result: ExperimentResult) -> tuple[Option, ...]:
    thoughts = {
        "number": "You may think that a gradient that arrives always carries something. Dead units or a saturated activation"
        " pass on zeros, and what grows beyond the largest number is none any more.",
        "zero": "You may think that a small number is as good as zero. A gradient of 1e-12 still has a direction; an exact zero"
        " has none.",
        "non_finite": "You may think that extreme settings must end in infinities. A number can be very small or very large and"
        " still be a number.",
        "nothing": "You may think that nothing arrives where the signal is weakest. A layer on the path to the loss gets a"
        " gradient, and be it zero; there is none only where no path leads.",
    }
    found = _reading_at_the_input_end(result)
    return tuple(Option(key=key, text=text, refutation=f"{thoughts[key]} {found}") for key, text in _ARRIVED.items())


ZERO_OR_NONE = Question(
    key="zero_or_none",
    page="outputs",
    covers=("B6",),
    text=lambda result: f"What arrived at the output of `{_at_the_input_end(result).layer}`, next to the input?",
    options=_arrived_options,
    scorer=lambda result: frozenset({_kind(_at_the_input_end(result))}),
    explanation=_reading_at_the_input_end,
    why_not=lambda result: "",
    never_right={"nothing": "Every layer of the lab's networks lies on the path to the loss."},
)


@cache
def _cut_off_and_dead() -> tuple[OutputGradient, OutputGradient]:
    """What is captured at a layer the loss does not depend on, and at one whose gradient a dead ReLU swallows."""
    generator = torch.Generator().manual_seed(0)
    path, aside, dead = linear(3, 3, generator), linear(3, 3, generator), nn.ReLU()
    network = nn.ModuleDict({"path": path, "aside": aside, "dead": dead})
    with capture_gradients(network) as capture:
        x = torch.ones(1, 3)
        aside(x)
        dead(path(x) - 1e3).sum().backward()
    records = {record.layer: record for record in capture.passes[0].outputs}
    return records["aside"], records["path"]


def _none_explained(result: ExperimentResult) -> str:
    aside, dead = _cut_off_and_dead()
    largest = short_number(dead.statistics.max_abs) if dead.statistics else "none"
    return (
        f"Measured on a small network: a layer whose output the loss does not use has status `{aside.status}` and no numbers; a"
        f" layer in front of a dead ReLU has status `{dead.status}` and a largest entry of {largest}."
    )


def _none_options(result: ExperimentResult) -> tuple[Option, ...]:
    found = _none_explained(result)
    return (
        Option(
            key="no_path",
            text="No gradient came there: it is not on the path to the loss, or not tracked",
            refutation=f"You may think that `None` always means no path. It means no gradient, whatever the reason. {found}",
        ),
        Option(
            key="zero",
            text="The gradient is zero",
            refutation="You may think that no gradient and a gradient of zero are the same. A zero was computed: the path is"
            f" there and passes nothing on. With `None` nothing was computed. {found}",
        ),
        Option(
            key="vanished",
            text="The gradient became too small",
            refutation="You may think that `None` is where shrinking ends. What shrinks below the smallest number becomes an"
            f" exact zero, never `None`. {found}",
        ),
    )


NONE_MEANS = Question(
    key="none_means",
    page="outputs",
    covers=("B6",),
    text=fixed("The gradient of some layer's output is `None`. What does that tell you?"),
    options=_none_options,
    scorer=lambda result: frozenset({"no_path"} if _cut_off_and_dead()[0].statistics is None else ()),
    explanation=_none_explained,
    why_not=lambda result: "",
    never_right={
        "zero": "A gradient of zero is a tensor of zeros.",
        "vanished": "What becomes too small is rounded to zero.",
    },
)
