"""Questions about the measurement: the three stages, and how a matrix of gradients becomes one number."""

from __future__ import annotations

from math import isclose, isfinite, prod

from gradlab.capture import ParameterGradient
from gradlab.experiment import ExperimentResult
from gradlab.lessons.question import Option, Question, fixed
from gradlab.text import short_number
from gradlab.trail import layer_of

# --- what each stage hands on -----------------------------------------------------------------------------------------


def _always(result: ExperimentResult) -> str:
    return ""


def _shape(result: ExperimentResult) -> str:
    return f"{len(result.output)} × {len(result.output[0])}"


def _forward(result: ExperimentResult) -> str:
    return (
        f"Forward handed on an output of shape {_shape(result)}. At that point {result.filled_before} of"
        f" {len(result.parameters)} parameters had a `.grad`: `None` everywhere means that nothing is computed yet."
    )


FORWARD_HANDS_ON = Question(
    key="forward_hands_on",
    page="measure",
    covers=("A2",),
    text=fixed("The input has gone forward through the network. What does this stage hand to the next one?"),
    options=lambda result: (
        Option(
            key="output",
            text="The network's output",
            refutation=f"You may think that more must exist by now. Forward and backward are separate steps."
            f" {_forward(result)}",
        ),
        Option(
            key="loss",
            text="How far off the output is",
            refutation="You may think that the network knows what it should have put out. The target takes no part in the"
            f" forward run; the comparison is the next stage. {_forward(result)}",
        ),
        Option(
            key="gradients",
            text="A gradient for every layer",
            refutation="You may think that each layer leaves its gradient as it is passed. Forward only keeps what backward"
            f" will need; gradients come with `loss.backward()`. {_forward(result)}",
        ),
    ),
    scorer=lambda result: frozenset({"gradients" if result.filled_before else "output"}),
    explanation=_forward,
    why_not=_always,
    never_right={
        "loss": "The forward run has not seen the target.",
        "gradients": "Every experiment starts with a network whose gradients are `None`.",
    },
)


def _loss(result: ExperimentResult) -> str:
    samples = len(result.output)
    loss = short_number(result.loss) if isfinite(result.loss) else "it is not finite here"
    rows = "1 sample" if samples == 1 else f"{samples} samples"
    return f"The comparison of {rows} with the target gave one number, the loss: {loss}."


LOSS_HANDS_ON = Question(
    key="loss_hands_on",
    page="measure",
    covers=("A2",),
    text=fixed("The output is compared with the target. What does this stage hand to the backward run?"),
    options=lambda result: (
        Option(
            key="one_number",
            text="One number",
            refutation=f"You may think that one number is too little to go on. It is where the backward run starts."
            f" {_loss(result)}",
        ),
        Option(
            key="number_per_entry",
            text="One number for each entry of the output",
            refutation="You may think of the single errors, one for each entry. They exist on the way, but they are averaged or"
            f" added up: `backward()` without arguments starts from one scalar. {_loss(result)}",
        ),
        Option(
            key="accuracy",
            text="How good the network is at its task",
            refutation="You may think that the target is a task. It is one fixed error signal: the readings show how sensitive"
            f" the loss is to each weight, not how good the network is. {_loss(result)}",
        ),
    ),
    scorer=lambda result: frozenset({"one_number"}),
    explanation=_loss,
    why_not=_always,
    never_right={
        "number_per_entry": "Every loss of the lab is one scalar.",
        "accuracy": "The target is an error signal, not a task.",
    },
)


def _backward(result: ExperimentResult) -> str:
    filled, all_of_them = result.filled_after, len(result.parameters)
    first = result.parameters[0]
    shape = " × ".join(map(str, first.shape or ()))
    return (
        f"Backward left a `.grad` at {filled} of {all_of_them} parameters, each in its parameter's own shape: that of"
        f" `{first.parameter}` is {shape}. The weights are what they were; changing them is the optimiser's step."
    )


BACKWARD_HANDS_ON = Question(
    key="backward_hands_on",
    page="measure",
    covers=("A2",),
    text=fixed("`loss.backward()` has run. What does it leave behind for what comes next?"),
    options=lambda result: (
        Option(
            key="gradients",
            text="A gradient of the loss for every parameter that needs one",
            refutation=f"You may think that every parameter gets one. Some were left without. {_backward(result)}",
        ),
        Option(
            key="one_gradient",
            text="One gradient for each layer, a single number",
            refutation="You may think so because the chart shows one number for each layer. The lab makes that number"
            f" afterwards, from many. {_backward(result)}",
        ),
        Option(
            key="new_weights",
            text="Better weights",
            refutation="You may think that backward trains the network. It computes and stores, and changes no weight."
            f" {_backward(result)}",
        ),
    ),
    scorer=lambda result: frozenset({"gradients"} if result.filled_after == len(result.parameters) else ()),
    explanation=_backward,
    why_not=lambda result: (
        ""
        if result.filled_after == len(result.parameters)
        else f"Backward reached only {result.filled_after} of {len(result.parameters)} parameters here."
    ),
    never_right={
        "one_gradient": "A gradient has the shape of its parameter.",
        "new_weights": "Backward changes no weight; only an optimiser's step does.",
    },
)

# --- one number per layer ---------------------------------------------------------------------------------------------

_WAYS = {
    "mean_abs": "The absolute value of every entry, then their mean",
    "mean": "The mean of all entries, signs and all",
    "norm": "The length of all entries taken as one vector",
    "max_abs": "The largest absolute value",
}
_TOO_CLOSE = 1e-2
"""Numbers that differ by less than a hundredth cannot be told apart at the three digits a page shows."""


def _values(record: ParameterGradient) -> dict[str, float]:
    return {key: float(getattr(record.statistics, key)) for key in _WAYS}


def _telling(result: ExperimentResult) -> ParameterGradient | None:
    """The first weight whose four numbers all differ, so that only one of them is its reading."""
    for record in result.parameters:
        if record.role != "weight" or len(record.shape or ()) != 2 or record.statistics is None:
            continue
        if record.statistics.nonfinite_count or not record.statistics.mean_abs:
            continue
        reading, *others = _values(record).values()
        if not any(isclose(abs(reading), abs(other), rel_tol=_TOO_CLOSE) for other in others):
            return record
    return None


def _matrix(record: ParameterGradient) -> str:
    shape = record.shape or ()
    return f"`{layer_of(record.parameter)}` has {prod(shape)} gradient entries ({' × '.join(map(str, shape))})"


def _which_number(result: ExperimentResult) -> str:
    record = _telling(result)
    return f"The weight of {_matrix(record)}, and the chart shows one number. How is it made?" if record else ""


def _made(result: ExperimentResult) -> str:
    record = _telling(result)
    if record is None:
        return ""
    of = {key: short_number(value) for key, value in _values(record).items()}
    return (
        f"The weight of {_matrix(record)}. The chart shows {of['mean_abs']}, the mean of the absolute values. The mean with"
        f" signs is {of['mean']}, the length as one vector {of['norm']}, the largest absolute value {of['max_abs']}."
    )


def _ways(result: ExperimentResult) -> tuple[Option, ...]:
    thoughts = {
        "mean_abs": "You may think that absolute values throw too much away. They leave out the direction and keep the"
        " strength.",
        "mean": "You may think that the mean is the plain summary of many numbers. Entries of opposite sign cancel in it: the"
        " sign is a direction, and strong gradients can average to nothing.",
        "norm": "You may think of the length of the whole gradient. It grows with the number of entries, so a wide layer looks"
        " stronger than a narrow one with the same entries.",
        "max_abs": "You may think that the strongest entry stands for the layer. It is one entry, and the others may be far"
        " below.",
    }
    return tuple(Option(key=key, text=text, refutation=f"{thoughts[key]} {_made(result)}") for key, text in _WAYS.items())


def _way(result: ExperimentResult) -> frozenset[str]:
    record = _telling(result)
    if record is None:
        return frozenset()
    shown = result.weight_table().set_index("parameter").loc[record.parameter, "mean_abs"]
    return frozenset(key for key, value in _values(record).items() if value == shown)


ONE_NUMBER = Question(
    key="one_number",
    page="measure",
    covers=("A3",),
    text=_which_number,
    options=_ways,
    scorer=_way,
    explanation=_made,
    why_not=lambda result: (
        ""
        if _telling(result)
        else "No weight of this network has a gradient whose mean, length and largest entry can be told apart from its reading."
    ),
    never_right={
        "mean": "The lab's reading is the mean of absolute values, whatever the network.",
        "norm": "The lab's reading is the mean of absolute values, whatever the network.",
        "max_abs": "The lab's reading is the mean of absolute values, whatever the network.",
    },
)
