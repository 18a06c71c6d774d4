"""Questions about a pair of networks, without and with shortcuts: what differs, and where their trails part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gradlab.comparison import FIELD_TITLES
from gradlab.experiment import ExperimentResult
from gradlab.lessons.question import Option, Question, fixed
from gradlab.lessons.trend import (
    DIRECTION_TITLES,
    Departure,
    Direction,
    Reading,
    departure,
    differing,
    listing,
    why_no_departure,
)
from gradlab.text import short_number

NOWHERE = "nowhere"

# --- what differs? ----------------------------------------------------------------------------------------------------


def _shortcuts_added(result: ExperimentResult) -> int:
    network = result.spec.network
    same = [first == second for first, second in pairwise(network.layer_sizes)]
    return sum(same) if network.use_shortcut else 0


def _what_differs(first: ExperimentResult, second: ExperimentResult) -> str:
    names = differing(first, second)
    added = [_shortcuts_added(result) for result in (first, second)]
    if not names:
        return "All settings are the same."
    shortcuts = f" Shortcuts are added at {added[0]} layers of the first network and at {added[1]} of the second."
    titles = [FIELD_TITLES[name] for name in names]
    return f"The settings that differ: {listing(titles)}.{shortcuts if 'use_shortcut' in names else ''}"


def _difference(first: ExperimentResult, second: ExperimentResult) -> frozenset[str]:
    names = set(differing(first, second))
    if names == {"use_shortcut"} and _shortcuts_added(first) == _shortcuts_added(second):
        return frozenset({"nothing"})
    if len(names) > 1:
        return frozenset({"several"})
    return frozenset({"shortcuts" if names == {"use_shortcut"} else "another" if names else "nothing"})


def _differences(first: ExperimentResult, second: ExperimentResult) -> tuple[Option, ...]:
    found = _what_differs(first, second)
    return (
        Option(
            key="shortcuts",
            text="The shortcuts, and nothing else",
            refutation="You may think that two networks with and without shortcuts differ in nothing else. It has to be looked"
            f" up: seed, sizes, input and target must be the same too, and shortcuts need layers that keep their width."
            f" {found}",
        ),
        Option(
            key="another",
            text="One other setting",
            refutation="You may think that other weights or another input are needed to get other readings. The seed is set"
            f" again before each network is built, so what is the same in the settings is the same in the network. {found}",
        ),
        Option(
            key="several",
            text="Two settings or more",
            refutation="You may think that a second network is another one in every respect. Each setting can stay as it is,"
            f" and a comparison is worth something if one thing differs. {found}",
        ),
        Option(
            key="nothing",
            text="Nothing",
            refutation="You may think so because sizes, weights and input are the same. A shortcut has no weights of its own:"
            f" it changes the way the signal takes. {found}",
        ),
    )


WHAT_DIFFERS = Question(
    key="what_differs",
    page="shortcuts",
    covers=("A7", "A8"),
    text=fixed("You see two networks. What differs between them?"),
    options=_differences,
    scorer=_difference,
    explanation=_what_differs,
    why_not=lambda first, second: "",
    pair=True,
)

# --- where do they part? ----------------------------------------------------------------------------------------------


def told(found: Departure) -> str:
    """Where the trail with shortcuts leaves the line, with its numbers."""
    rate = short_number(found.rate)
    line = f"Shrinking as the plain network's mean absolute values do, {rate} per layer from {found.hidden[0]} on"
    last = len(found.hidden) - 1
    if found.place is None:
        return (
            f"{line}, {found.hidden[last].layer} would be at {short_number(found.line[last])}. Measured:"
            f" {found.hidden[last]}, less than twofold off. The two trails do not part here."
        )
    here = found.place
    return (
        f"{line}, `{found.layer}` would be at {short_number(found.line[here])}. Measured: {found.hidden[here]}, and from there"
        f" on every reading is more than twofold off the line, at the input end {_fold(found, last)}."
        f" With shortcuts the trend over the hidden layers is {short_number(found.shortcut.factor)} per layer."
    )


def _fold(found: Departure, place: int) -> str:
    ratio = found.hidden[place].value / found.line[place] if found.line[place] else float("inf")
    return f"{short_number(ratio)}-fold above it" if ratio > 1 else f"{short_number(1 / ratio)}-fold below it"


def _told(plain: ExperimentResult, shortcut: ExperimentResult) -> str:
    return told(departure(plain, shortcut))


def thirds(candidates: Sequence[Reading]) -> tuple[tuple[Reading, ...], ...]:
    """The layers in up to three runs of about the same length, the output end first."""
    count = min(3, len(candidates))
    ends = [round(len(candidates) * part / count) for part in range(count + 1)]
    return tuple(tuple(candidates[start:stop]) for start, stop in pairwise(ends))


_PARTS = {2: ("near_output", "near_input"), 3: ("near_output", "middle", "near_input")}


def _parts(found: Departure) -> dict[str, tuple[Reading, ...]]:
    runs = thirds(found.hidden[1:])  # at the first one the line begins
    return dict(zip(_PARTS[len(runs)], runs, strict=True))


def _where_options(plain: ExperimentResult, shortcut: ExperimentResult) -> tuple[Option, ...]:
    found = departure(plain, shortcut)
    thoughts = {
        "near_output": "You may think that shortcuts must show at once. One reading next to the output end can still lie near"
        " the line.",
        "middle": "You may think that it takes a while until a difference shows. It can show at the first step that counts.",
        "near_input": "You may think that shortcuts matter where the plain network has the least. They work at every layer, and"
        " what they keep adds up from the output end on.",
    }
    options = [
        Option(
            key=key,
            text=f"At `{run[0].layer}`" if len(run) == 1 else f"From `{run[0].layer}` to `{run[-1].layer}`",
            refutation=f"{thoughts[key]} {told(found)}",
        )
        for key, run in _parts(found).items()
    ]
    nowhere = Option(
        key=NOWHERE,
        text="They do not part",
        refutation="You may think so because both begin with a fall, away from a large last layer. One step is no trend:"
        f" follow them to the input end. {told(found)}",
    )
    return (*options, nowhere)


def _where(plain: ExperimentResult, shortcut: ExperimentResult) -> frozenset[str]:
    found = departure(plain, shortcut)
    here = [key for key, run in _parts(found).items() if any(reading.layer == found.layer for reading in run)]
    return frozenset(here or [NOWHERE])


WHERE_THEY_PART = Question(
    key="where_they_part",
    reads_a_chart=True,
    page="shortcuts",
    covers=("A7",),
    text=fixed(
        "Both trails in one chart, from the output end on: where does the one with shortcuts leave the steady shrinking of the"
        " other for good, by more than twofold?"
    ),
    options=_where_options,
    scorer=_where,
    explanation=_told,
    why_not=why_no_departure,
    pair=True,
)

# --- the challenge: which layer, which direction? ---------------------------------------------------------------------


def _layer_options(plain: ExperimentResult, shortcut: ExperimentResult) -> tuple[Option, ...]:
    found = departure(plain, shortcut)
    wrong_layer = (
        "You may think that a single step up or down is the break. Every layer has weights of its own, so single steps vary:"
        f" the break is where the readings leave the line and stay off it. {told(found)}"
    )
    wrong_nowhere = (
        "You may think that a trail that starts with a fall goes on falling. The step away from the large last layer is no"
        f" trend. {told(found)}"
    )
    layers = [Option(key=reading.layer, text=f"`{reading.layer}`", refutation=wrong_layer) for reading in found.hidden]
    return (*layers, Option(key=NOWHERE, text="Nowhere: both shrink along the line", refutation=wrong_nowhere))


def accepted_layers(found: Departure) -> frozenset[str]:
    """Both names of the bend: the last layer on the line and the first one off it."""
    if found.place is None:
        return frozenset({NOWHERE})
    return frozenset({found.layer, found.hidden[found.place - 1].layer})


CHALLENGE_LAYER = Question(
    key="challenge_layer",
    reads_a_chart=True,
    page="challenge",
    covers=("A9",),
    text=fixed(
        "Prediction: both networks shrink steadily from the output end to the input end. At which layer does the network with"
        " shortcuts depart from that?"
    ),
    options=_layer_options,
    scorer=lambda plain, shortcut: accepted_layers(departure(plain, shortcut)),
    explanation=_told,
    why_not=why_no_departure,
    pair=True,
)

_THOUGHTS = {
    Direction.LEVELS_OFF: "You may think that shortcuts always hold a gradient level. They add a way around each layer, and"
    " what the layers themselves hand back is added to it.",
    Direction.GROWS: "You may think that adding a second way must make the gradient grow. Over one layer it may, over all of"
    " them the trend decides.",
    Direction.SHRINKS_SLOWER: "You may think that shortcuts only slow the shrinking down. Past a layer with a shortcut the"
    " gradient arrives whole, with the layer's own part added.",
    Direction.SHRINKS_FASTER: "You may think that a second way takes something away from the first. It is added; only opposite"
    " signs could cancel.",
    Direction.GOES_ON: "You may think that nothing changed because the readings begin with a fall. That fall is the step away"
    " from the large last layer.",
}


def _direction_options(plain: ExperimentResult, shortcut: ExperimentResult) -> tuple[Option, ...]:
    found = _told(plain, shortcut)
    return tuple(Option(key=key, text=title, refutation=f"{_THOUGHTS[key]} {found}") for key, title in DIRECTION_TITLES.items())


CHALLENGE_DIRECTION = Question(
    key="challenge_direction",
    reads_a_chart=True,
    page="challenge",
    covers=("A9",),
    text=fixed("The line is steady shrinking as in the plain network. Which way does the trail with shortcuts depart from it?"),
    options=_direction_options,
    scorer=lambda plain, shortcut: frozenset({str(departure(plain, shortcut).direction)}),
    explanation=_told,
    why_not=why_no_departure,
    pair=True,
)
