"""Questions about the backward order, and the worked example: a printed list read in four steps."""

from __future__ import annotations

from dataclasses import dataclass

from gradlab.diagnosis import CutOffs, Verdict
from gradlab.experiment import ExperimentResult
from gradlab.lessons.question import Option, Question, fixed
from gradlab.lessons.trend import (
    Reading,
    Trend,
    diagnosis_of,
    hidden,
    listing,
    readings,
    trend,
    why_no_trend,
)
from gradlab.text import share_left, short_number
from gradlab.trail import layer_of

# --- in which order? --------------------------------------------------------------------------------------------------


def arrivals(result: ExperimentResult) -> tuple[str, ...]:
    """The layers in the order in which a gradient first arrived at them, as it was recorded."""
    return tuple(dict.fromkeys(layer_of(name) for name in result.arrival_order if name.startswith("layers.")))


def _printed(result: ExperimentResult) -> tuple[str, ...]:
    return tuple(f"layers.{depth}" for depth in range(result.spec.network.depth))


def _why_no_order(result: ExperimentResult) -> str:
    if result.spec.network.depth < 3:
        return f"This needs at least 3 layers; the network has {result.spec.network.depth}."
    arrived = arrivals(result)
    if len(arrived) < result.spec.network.depth:
        return f"A gradient arrived at only {len(arrived)} of {result.spec.network.depth} layers."
    return ""


def _recorded(result: ExperimentResult) -> str:
    names = [f"`{name}`" for name in arrivals(result)]
    return f"The gradients arrived one after another, first at {names[0]} and last at {names[-1]}: {listing(names)}."


_WHY_BACKWARD = "The loss is computed from the output, so what a layer gets is first known where the output is made."

VISIT_ORDER = Question(
    key="visit_order",
    page="trail",
    covers=("A4",),
    text=fixed("In which order does the gradient visit the layers?"),
    options=lambda result: (
        Option(
            key="output_first",
            text="From the output end to the input end",
            refutation=f"You may think that backward always starts at the output. {_WHY_BACKWARD} {_recorded(result)}",
        ),
        Option(
            key="input_first",
            text="From the input end to the output end",
            refutation="You may think so because the list is printed from the first layer to the last. That is the order in"
            f" which the layers were built. {_WHY_BACKWARD} {_recorded(result)}",
        ),
        Option(
            key="at_once",
            text="All layers at the same time",
            refutation="You may think so because one call fills every `.grad`. Within that call a layer can only pass on what"
            f" the layer behind it has handed over. {_recorded(result)}",
        ),
    ),
    scorer=lambda result: frozenset(
        {"output_first"} if arrivals(result) == _printed(result)[::-1] else {"input_first"} if arrivals(result) else ()
    ),
    explanation=_recorded,
    why_not=_why_no_order,
    never_right={
        "input_first": "The loss is computed from the output, so the backward run starts there.",
        "at_once": "Arrivals are recorded one after another.",
    },
)


def _last(result: ExperimentResult) -> frozenset[str]:
    printed, last = _printed(result), arrivals(result)[-1]
    places = {"input_end": printed[0], "middle": printed[len(printed) // 2], "output_end": printed[-1]}
    return frozenset(key for key, name in places.items() if name == last)


def _which_last(result: ExperimentResult) -> tuple[Option, ...]:
    printed = _printed(result)
    return (
        Option(
            key="output_end",
            text=f"`{printed[-1]}`, the last one of the network",
            refutation="You may think that the last layer of the list comes last. It stands next to the loss, so it comes"
            f" first. {_recorded(result)}",
        ),
        Option(
            key="middle",
            text=f"`{printed[len(printed) // 2]}`, in the middle",
            refutation="You may think of a signal that runs in from both ends. It enters at one end alone, at the output."
            f" {_recorded(result)}",
        ),
        Option(
            key="input_end",
            text=f"`{printed[0]}`, the one next to the input",
            refutation="You may think that the input end must come last. That is so wherever the loss is computed from the"
            f" output. {_recorded(result)}",
        ),
    )


LAST_LAYER = Question(
    key="last_layer",
    page="trail",
    covers=("A4",),
    text=fixed("Which of these layers does the gradient reach last?"),
    options=_which_last,
    scorer=_last,
    explanation=_recorded,
    why_not=_why_no_order,
    never_right={
        "output_end": "The layer next to the loss is reached first.",
        "middle": "Layers nearer to the input are reached after it.",
    },
)

# --- the worked example -----------------------------------------------------------------------------------------------

WORKED_DIRECTION = Question(
    key="worked_direction",
    page="trail",
    covers=("A5",),
    text=lambda result: (
        f"The list is printed from `{_printed(result)[0]}` down to `{_printed(result)[-1]}`. From which end do you read it?"
    ),
    options=lambda result: (
        Option(
            key="bottom",
            text="From the bottom up",
            refutation=f"You may think that bottom up is always right. It is where the gradient arrived first."
            f" {_recorded(result)}",
        ),
        Option(
            key="top",
            text="From the top down",
            refutation="You may think so because every list is read that way. This one is printed in the order in which the"
            f" layers were built, and the signal travels against it. {_recorded(result)}",
        ),
    ),
    scorer=lambda result: frozenset({"bottom" if arrivals(result)[0] == _printed(result)[-1] else "top"}),
    explanation=_recorded,
    why_not=_why_no_order,
    never_right={"top": "The gradient arrives first at the layer that is printed last."},
)


def _start_and_rest(result: ExperimentResult) -> tuple[Reading, Reading, Reading]:
    trail = readings(result)
    inner = [reading for reading in trail[1:-1] if not reading.mark]
    return trail[0], max(inner, key=lambda reading: reading.value) if inner else trail[1], trail[-1]


def _where_it_starts(result: ExperimentResult) -> str:
    first, _, _ = _start_and_rest(result)
    return f"The first gradient arrived at `{arrivals(result)[0]}`, so the reading to start from is {first}."


def _starts(result: ExperimentResult) -> tuple[Option, ...]:
    first, inner, last = _start_and_rest(result)
    return (
        Option(
            key="output_end",
            text=str(first),
            refutation=f"You may think that the output end is always the start. {_WHY_BACKWARD} {_where_it_starts(result)}",
        ),
        Option(
            key="largest_inside",
            text=str(inner),
            refutation="You may think that reading starts where something stands out. A trail is followed from where the signal"
            f" enters, whatever the sizes. {_where_it_starts(result)}",
        ),
        Option(
            key="input_end",
            text=str(last),
            refutation="You may think that the first line of the list is the start. It is the end of the way: the gradient"
            f" reaches it last. {_where_it_starts(result)}",
        ),
    )


WORKED_START = Question(
    key="worked_start",
    reads_a_chart=True,
    page="trail",
    covers=("A5",),
    text=fixed("At which reading do you start?"),
    options=_starts,
    scorer=lambda result: frozenset(
        key
        for key, reading in zip(("output_end", "largest_inside", "input_end"), _start_and_rest(result), strict=True)
        if reading.layer == arrivals(result)[0]
    ),
    explanation=_where_it_starts,
    why_not=_why_no_order,
    never_right={
        "largest_inside": "The gradient enters at the output end, not where it is largest.",
        "input_end": "The gradient reaches the input end last.",
    },
)


def _what_is_left(result: ExperimentResult) -> str:
    found, inside = diagnosis_of(result), hidden(result)
    left = found.attenuation or 0.0
    amount = share_left(left) if left < 1 else f"{short_number(left)} times the start"
    return (
        f"From {inside[0]} to {inside[-1]} the readings of the hidden layers run"
        f" {listing([short_number(reading.value) for reading in inside])}. A line through"
        f" the root mean squares of these gradients leaves {amount} at the input end."
    )


_HALF, _DOUBLE = CutOffs().weakening, CutOffs().growing
_LEFT = {
    Trend.SMALLER: (f"Less than {_HALF:g} of it", "one small reading is enough to speak of a fall"),
    Trend.SAME: (f"Between {_HALF:g} and {_DOUBLE:g} times as much", "steps up and down cancel out"),
    Trend.GROWS: (f"More than {_DOUBLE:g} times as much", "one large reading is enough to speak of growth"),
}

WORKED_TREND = Question(
    key="worked_trend",
    reads_a_chart=True,
    page="trail",
    covers=("A5",),
    text=lambda result: (
        f"Follow the hidden layers from {hidden(result)[0]} to {hidden(result)[-1]}, over several layers, not"
        " one step. What is left of the signal at the input end?"
    ),
    options=lambda result: tuple(
        Option(
            key=key,
            text=text,
            refutation=f"You may think that {thought}. What counts is the product of all ratios along the way, with an odd"
            f" layer left aside. {_what_is_left(result)}",
        )
        for key, (text, thought) in _LEFT.items()
    ),
    scorer=lambda result: frozenset({str(trend(result))}),
    explanation=_what_is_left,
    why_not=why_no_trend,
)

_PATTERNS = {
    Verdict.VANISHING: ("Vanishing", "less than a tenth is left"),
    Verdict.WEAKENING: ("Weakening", "less than half is left, but a tenth or more"),
    Verdict.STEADY: ("Steady", "between half and double is left"),
    Verdict.GROWING: ("Growing", "more than double is left, up to tenfold"),
    Verdict.EXPLODING: ("Exploding", "more than tenfold is left"),
}


def _name(result: ExperimentResult) -> str:
    found = diagnosis_of(result)
    word, meaning = _PATTERNS[found.verdict]
    return f"{found.sentence} That is called {word.lower()}: {meaning} at the input end of the hidden layers."


WORKED_NAME = Question(
    key="worked_name",
    reads_a_chart=True,
    page="trail",
    covers=("A5",),
    text=fixed("Taken over several layers, from the output end to the input end: what is this pattern called?"),
    options=lambda result: tuple(
        Option(
            key=key,
            text=f"{word}: {meaning}",
            refutation=f"You may think that the size of a single reading gives the pattern its name. It is {word.lower()} where"
            f" {meaning} after all the hidden layers; a single reading depends on the scale of the loss. {_name(result)}",
        )
        for key, (word, meaning) in _PATTERNS.items()
    ),
    scorer=lambda result: frozenset({str(diagnosis_of(result).verdict)}),
    explanation=_name,
    why_not=why_no_trend,
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the worked example: what to do with the list, and the question that checks it."""

    instruction: str
    question: str


WORKED_EXAMPLE = (
    Step(instruction="Turn the reading direction round.", question=WORKED_DIRECTION.key),
    Step(instruction="Start at the output end.", question=WORKED_START.key),
    Step(instruction="Follow the trend over several layers, not one step.", question=WORKED_TREND.key),
    Step(instruction="Name the pattern if the trend is sustained.", question=WORKED_NAME.key),
)
