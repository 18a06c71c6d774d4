"""Questions about the trend: what is predicted before, and what is seen after."""

from __future__ import annotations

from itertools import pairwise

from gradlab.experiment import ExperimentResult
from gradlab.lessons.question import Option, Question, fixed
from gradlab.lessons.trend import (
    NOUNS,
    TREND_WORDS,
    Reading,
    Trend,
    diagnosis_of,
    hidden,
    readings,
    trend,
    why_gaps,
    why_no_trend,
)
from gradlab.text import short_number
from gradlab.trail import Quantity

# --- predict: which way does it go? -----------------------------------------------------------------------------------

_ONE_MAY_THINK = {
    Trend.GROWS: "You may think that a signal gathers strength on its way.",
    Trend.SAME: "You may think that every layer passes on what it receives.",
    Trend.SMALLER: "You may think that a signal always fades on its way.",
}
_TREND_TITLES = {
    Trend.GROWS: "It grows",
    Trend.SAME: "It stays about the same",
    Trend.SMALLER: "It becomes smaller",
}


def _what_it_does(result: ExperimentResult, quantity: Quantity) -> str:
    direction = trend(result, quantity)
    words = TREND_WORDS[direction] if direction else "has no trend"
    return f"Here the {NOUNS[quantity]} {words} toward the input end. {diagnosis_of(result, quantity).sentence}"


def _why_it_fails(result: ExperimentResult, quantity: Quantity) -> str:
    shortcut = ", and a shortcut adds what arrived once more" if result.spec.network.use_shortcut else ""
    own_input = ", and the weight gradient takes in the layer's input too" if quantity is Quantity.WEIGHTS else ""
    return (
        f"Each layer multiplies what arrives by its weights and by the slope of its activation{shortcut}{own_input}: whether"
        " that comes to more or less than before depends on this network."
    )


def _trend_question(key: str, quantity: Quantity, covers: tuple[str, ...]) -> Question:
    def text(result: ExperimentResult) -> str:
        network = result.spec.network
        shortcuts = "with shortcuts" if network.use_shortcut else "without shortcuts"
        return (
            f"A network of {network.depth} layers {shortcuts}, one backward pass. Going from the layer nearest the output to"
            f" the layer nearest the input: what does the {NOUNS[quantity]} do, taken over the hidden layers?"
        )

    def options(result: ExperimentResult) -> tuple[Option, ...]:
        so_instead = f"{_why_it_fails(result, quantity)} {_what_it_does(result, quantity)}"
        return tuple(
            Option(key=key, text=title, refutation=f"{_ONE_MAY_THINK[key]} {so_instead}")
            for key, title in _TREND_TITLES.items()
        )

    def scorer(result: ExperimentResult) -> frozenset[str]:
        return frozenset({str(trend(result, quantity))})

    def explanation(result: ExperimentResult) -> str:
        layers, last = hidden(result, quantity), readings(result, quantity)[0]
        name = " Sustained shrinking is what is called the vanishing gradient problem."
        return (
            f"{_what_it_does(result, quantity)} Of the {len(layers)} layers the trend is read from, the first the gradient"
            f" reaches is {layers[0]} and the last is {layers[-1]}, in mean absolute values. The last layer of the network,"
            f" {last}, is left out: it tends to be larger than its neighbours, with and without shortcuts."
            + (name if trend(result, quantity) is Trend.SMALLER else "")
        )

    return Question(
        key=key,
        page="predict",
        covers=covers,
        text=text,
        options=options,
        scorer=scorer,
        explanation=explanation,
        why_not=lambda result: why_no_trend(result, quantity),
    )


TREND_QUESTION = _trend_question("trend", Quantity.WEIGHTS, ("A1",))
TREND_OF_OUTPUTS = _trend_question("trend_outputs", Quantity.OUTPUTS, ("A1", "B1"))

# --- what did you see? ------------------------------------------------------------------------------------------------


def falls_at_every_step(trail: tuple[Reading, ...]) -> bool:
    """Whether each reading is below the one before it, without exception."""
    return all(later.value < earlier.value for earlier, later in pairwise(trail))


def _exception(trail: tuple[Reading, ...]) -> str:
    for earlier, later in pairwise(trail):
        if later.value >= earlier.value:
            return f"There is no fall from {earlier} to {later}."
    return "Every step falls."


def _why_not_seen(result: ExperimentResult) -> str:
    return why_gaps(result, fewest=3) or why_no_trend(result)


def _seen_options(result: ExperimentResult) -> tuple[Option, ...]:
    exception, instead = _exception(readings(result)), _what_it_does(result, Quantity.WEIGHTS)
    return (
        Option(
            key="falls_every_step",
            text="It falls at every single step",
            refutation="You may think that a trend leaves no exceptions. One layer can stand out of its row, as every layer"
            f" has weights of its own. {exception} {instead}",
        ),
        Option(
            key="falls_on_the_whole",
            text="It falls on the whole, with at least one step that does not",
            refutation="You may think that there is always an odd step and always a fall behind it. Both are to be looked for"
            f" in the chart, one by one. {exception} {instead}",
        ),
        Option(
            key="holds",
            text="Over the hidden layers it holds its level",
            refutation="You may think that what goes up and down a little holds its level. Small steps in one direction add up,"
            f" so compare the two ends of the hidden layers. {instead}",
        ),
        Option(
            key="grows",
            text="Over the hidden layers it grows",
            refutation="You may think so when you read the chart the wrong way round, or when one step up catches the eye."
            f" The gradient travels from the output end to the input end, and a trend is more than one step. {instead}",
        ),
    )


def _seen(result: ExperimentResult) -> frozenset[str]:
    strict, direction = falls_at_every_step(readings(result)), trend(result)
    found = {
        "falls_every_step": strict,
        "falls_on_the_whole": direction is Trend.SMALLER and not strict,
        "holds": direction is Trend.SAME,
        "grows": direction is Trend.GROWS,
    }
    return frozenset(key for key, so in found.items() if so)


def _what_was_to_be_seen(result: ExperimentResult) -> str:
    trail = readings(result)
    falling = sum(later.value < earlier.value for earlier, later in pairwise(trail))
    return f"Of {len(trail) - 1} steps {falling} fall. {_exception(trail)} {_what_it_does(result, Quantity.WEIGHTS)}"


SEEN = Question(
    key="seen",
    reads_a_chart=True,
    page="predict",
    covers=("A1",),
    text=fixed("What did you see in the chart, from the output end to the input end?"),
    options=_seen_options,
    scorer=_seen,
    explanation=_what_was_to_be_seen,
    why_not=_why_not_seen,
)

_PLACES = {"output_end": "At the output end", "in_between": "Somewhere in between", "input_end": "At the input end"}


def _largest(result: ExperimentResult) -> frozenset[str]:
    trail = readings(result)
    top = max(reading.value for reading in trail)
    places = {"output_end": trail[:1], "in_between": trail[1:-1], "input_end": trail[-1:]}
    return frozenset(key for key, part in places.items() if any(reading.value == top for reading in part))


def _why_no_largest(result: ExperimentResult) -> str:
    gaps = why_gaps(result, fewest=3)
    return gaps or ("All parts of the chart reach the same height here." if len(_largest(result)) == len(_PLACES) else "")


def _largest_reading(result: ExperimentResult) -> str:
    trail = readings(result)
    largest = max(trail, key=lambda reading: reading.value)
    return (
        f"The largest reading is {largest}; the output end is {trail[0]}, the input end {trail[-1]}."
        " Where the largest one stands says nothing about a trend: it is one layer."
    )


def _largest_options(result: ExperimentResult) -> tuple[Option, ...]:
    may_think = {
        "output_end": "You may think that the layer next to the loss always gets the most, as it mostly does.",
        "in_between": "You may think that the largest value must hide among the hidden layers.",
        "input_end": "You may think that the first layer of the list is where the gradient starts.",
    }
    how = "It depends on each layer's input and on what arrives at its output, so it has to be looked up."
    return tuple(
        Option(key=key, text=text, refutation=f"{may_think[key]} {how} {_largest_reading(result)}")
        for key, text in _PLACES.items()
    )


SEEN_LARGEST = Question(
    key="seen_largest",
    reads_a_chart=True,
    page="predict",
    covers=("A1", "A8"),
    text=fixed("Where in the chart did the largest weight gradient stand?"),
    options=_largest_options,
    scorer=_largest,
    explanation=_largest_reading,
    why_not=_why_no_largest,
)

# --- trail: a look at single steps ------------------------------------------------------------------------------------


def _ratios(result: ExperimentResult) -> list[float]:
    trail = readings(result)
    return [later.value / earlier.value for earlier, later in pairwise(trail)]


def _steepest(result: ExperimentResult) -> frozenset[str]:
    ratios = _ratios(result)
    lowest = min(ratios)
    if lowest >= 1:
        return frozenset({"no_fall"})
    places = {"output_end": ratios[:1], "in_between": ratios[1:-1], "input_end": ratios[-1:]}
    return frozenset(key for key, part in places.items() if lowest in part)


def _steepest_step(result: ExperimentResult) -> str:
    trail, ratios = readings(result), _ratios(result)
    step = ratios.index(min(ratios))
    found = f"The lowest ratio is {short_number(ratios[step])}, from {trail[step]} to {trail[step + 1]}."
    return found + (" No step falls." if ratios[step] >= 1 else "")


def _steepest_options(result: ExperimentResult) -> tuple[Option, ...]:
    texts = {
        "output_end": ("At the first step, from the output end", "the step away from the large last layer is the steepest"),
        "in_between": ("At a step in between", "it must thin out most in the middle of the way"),
        "input_end": ("At the last step, to the input end", "what is smallest must have lost the most on its last step"),
        "no_fall": ("At none: no step falls", "a signal that does not vanish cannot fall anywhere"),
    }
    return tuple(
        Option(
            key=key,
            text=text,
            refutation=f"You may think that {thought}. Sizes do not tell it: a step is measured by its ratio, the reading over"
            f" the one before. {_steepest_step(result)}",
        )
        for key, (text, thought) in texts.items()
    )


STEEPEST_STEP = Question(
    key="steepest_step",
    reads_a_chart=True,
    page="trail",
    covers=("A4",),
    text=fixed("Each reading over the one before it is a ratio: below 1 the signal thins out. Where does it fall the most?"),
    options=_steepest_options,
    scorer=_steepest,
    explanation=_steepest_step,
    why_not=lambda result: why_gaps(result, fewest=4),
)
