"""The seeds page: bands over many seeds with one seed's line in them, and how much of what it shows is the seed's doing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import streamlit as st

from gradlab import charts
from gradlab.lessons.many_seeds import ManySeeds, Standing
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.trail import Quantity
from gradlab.ui import cache, choices, ensembles, panels, state
from gradlab.ui.cache import Picture, hues_of, kept, picture_of
from gradlab.ui.ensembles import Measured
from gradlab.ui.links import VIEWS

KEY = "seeds_bands"
WITHOUT, WITH, ALONE = "Without shortcuts", "With shortcuts", "This network"
TENTHS = range(11)
CLOSE = 1.0
"""A guess in tenths counts as right if it is off by no more."""
FEWEST = 20
"""Seeds it takes to speak of so many in ten."""
_SAID = "seeds_said"

Found = Mapping[str, tuple[ManySeeds, Measured]]


def count() -> int:
    """Draw the choice of how many seeds; the chosen number."""
    st.segmented_control(
        "How many seeds", VIEWS["seed_count"], required=True, format_func=lambda text: f"{int(text):,}",
        key=state.widget("seed_count"),
    )  # fmt: skip
    return int(state.view("seed_count"))


def networks(spec: ExperimentSpec) -> dict[str, ExperimentSpec]:
    """The experiment without and with shortcuts; alone where no layer is as wide as its input."""
    sizes = spec.network.layer_sizes
    if not any(fan_in == fan_out for fan_in, fan_out in pairwise(sizes)):
        return {ALONE: spec}
    return {WITHOUT: spec.replace(use_shortcut=False), WITH: spec.replace(use_shortcut=True)}


def chosen(spec: ExperimentSpec) -> str:
    """The name of the network that the controls describe."""
    return next(name for name, each in networks(spec).items() if each == spec)


@kept(max_entries=200)
def _picture(
    specs: dict[str, ExperimentSpec], quantity: Quantity, measured: dict[str, Measured], seed: int, dark: bool
) -> Picture:
    hues = hues_of(list(specs.values()))
    series = {}
    for (name, spec), hue in zip(specs.items(), hues, strict=True):
        over = ensembles.summary(ensembles.without_seed(spec), *measured[name], quantity).band if name in measured else None
        series[name] = charts.Band(own=cache.trail(spec, quantity), over_seeds=over, hue=hue)
    return picture_of(charts.bands(series, y_title=f"mean |{quantity.singular}|", seed=seed, dark=dark))


# --- measuring, and what it shows ---------------------------------------------------------------------------------------


def show(spec: ExperimentSpec, quantity: Quantity, asked: int) -> dict[str, tuple[ManySeeds, Measured]]:
    """Measure, draw the bands, say what they show; what was found for each network."""
    specs = networks(spec)
    total = min(ensembles.affordable_seeds(each, asked) for each in specs.values())

    def picture(measured: dict[str, Measured]) -> Picture:
        return _picture(specs, quantity, measured, spec.seed, panels.dark())

    place = st.container()
    with place:
        measured = ensembles.measure(specs, total, "seeds", picture)
    found = {
        name: (ensembles.summary(ensembles.without_seed(specs[name]), *each, quantity), each) for name, each in measured.items()
    }
    lines = [_headline(name, summary) for name, (summary, _) in found.items()]
    with place:
        panels.show(picture(measured), KEY, *lines, *_own_line(spec, quantity, found), *_limits(found, asked, total))
        ensembles.ask_for_the_rest("seeds")
    return found


def _headline(name: str, found: ManySeeds) -> str:
    start = f"**{name}, {found.quantity.singular}s:"
    verdicts = ", ".join(f"{panels.SIGNS[verdict]} at {number:,}" for verdict, number in found.verdicts.items())
    if found.factors is None:
        return f"{start} no factor at {ensembles.any_seed(found)}.** Verdicts: {verdicts}."
    low, median, high = map(short_number, found.factors)
    of = f"{found.judged:,} seeds" if found.judged == found.seeds else f"the {found.judged:,} of {found.seeds:,} seeds with one"
    return (
        f"{start} γ = {median} at the median of {of}, 8 of 10 from {low} to {high}.** Verdicts: {verdicts}. {_opposite(found)}"
    )


def _opposite(found: ManySeeds) -> str:
    """How many seeds lie on the other side of 1, and how many of them far enough for the opposite verdict."""
    if found.opposite is None:
        return "The median is 1: no seed shows the opposite of that."
    if not found.opposite:
        return "At none of them γ lies on the other side of 1."
    start = f"At {found.opposite:,} of them γ lies on the other side of 1"
    if not found.opposite_verdicts:
        return f"{start}, at none far enough for the opposite verdict."
    return f"{start}; at {found.opposite_verdicts:,}, one run alone shows the opposite trend."


def _own_line(spec: ExperimentSpec, quantity: Quantity, found: Found) -> list[str]:
    """Where the chosen seed lies, in words."""
    name = chosen(spec)
    if name not in found:
        return []
    where = standing(spec, quantity, found[name][1])
    all_judged = found[name][0].judged == found[name][0].seeds
    if where.factor is None or where.factor_below is None:
        return [f"**Your seed {spec.seed}** ({name.lower()}) has no γ to compare with other seeds."]
    return [
        f"**Your seed {spec.seed}** ({name.lower()}): γ = {short_number(where.factor)}, larger than at"
        f" {_percent(where.factor_below)} of the other seeds{'' if all_judged else ' with one'}. {_place(where.factor_below)}"
    ]


def standing(spec: ExperimentSpec, quantity: Quantity, measured: Measured) -> Standing:
    """Where the experiment's own seed lies among those that were measured."""
    return ensembles.standing(spec, *measured, quantity)


def _place(below: float) -> str:
    if 0.1 <= below <= 0.9:
        return "It lies among the middle 8 of 10."
    return f"It lies among the {'lowest' if below < 0.1 else 'highest'} tenth."


def _percent(share: float) -> str:
    """Never 0 or 100 for what is only close to it."""
    if 0 < share < 0.01:
        return "less than 1 %"
    return "more than 99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def _limits(found: Found, asked: int, total: int) -> list[str]:
    """What was not measured, and why, in one paragraph; none where everything was."""
    lines = []
    if ALONE in found:
        lines.append("No layer is as wide as its input: with shortcuts it would be the same network.")
    if total < asked:
        lines.append(
            f"{asked:,} seeds of a network of this size would keep everybody else on this server waiting: {total:,} are"
            f" measured instead{', too few for a band to mean much' if total < FEWEST else ''}."
        )
    unfinished = {name: (each.seeds, _why(measured)) for name, (each, measured) in found.items() if each.seeds < total}
    if len(unfinished) == len(found) and len(set(unfinished.values())) == 1:
        unfinished = {"Of each network" if len(found) > 1 else ALONE: next(iter(unfinished.values()))}
    lines += [f"{name}: {seeds:,} of {total:,} seeds are measured; {why}." for name, (seeds, why) in unfinished.items()]
    if not found:
        lines.append("It was stopped before a seed was measured: what you see is your own seed.")
    return [" ".join(lines)] if lines else []


def _why(measured: Measured) -> str:
    return "each takes longer than most" if measured.stopped is None else "the rest waits until you ask for it"


# --- the question -------------------------------------------------------------------------------------------------------


def said() -> dict[str, Any] | None:
    """What was guessed and what was measured then; None before."""
    kept: dict[str, Any] | None = st.session_state.get(_SAID)
    return kept


def can_be_asked(spec: ExperimentSpec, found: Found) -> bool:
    """Whether enough was measured, of enough layers, to ask how often the list falls at every step."""
    name = chosen(spec)
    return name in found and found[name][0].seeds >= FEWEST and spec.network.depth >= 3


def ask(spec: ExperimentSpec, found: Found) -> None:
    """In how many of ten seeds is the list strictly falling? Or, once answered: what was measured."""
    name = chosen(spec)
    with st.container(border=True):
        answer = said()
        if answer is not None:
            _reveal(answer)
            return
        if not can_be_asked(spec, found):
            st.markdown(
                "With three or more layers and enough seeds there is a question here: how often does a list of gradients fall"
                " at every step?"
            )
            return
        summary = found[name][0]
        st.markdown(
            f"**Take ten other seeds of this network ({name.lower()}). In how many of them do the"
            f" {summary.quantity.singular}s fall at every single step from the output end to the input end?**"
        )
        choices.form(
            "seeds_form", "seeds_option", TENTHS, partial(_commit, name, summary),
            label="Your answer: so many of ten", horizontal=True, missing="Choose a number before you commit.",
        )  # fmt: skip


def _commit(name: str, summary: ManySeeds, guess: int) -> None:
    if said() is None:
        st.session_state[_SAID] = {"guess": guess, "name": name, "summary": summary}


def _reveal(answer: Mapping[str, Any]) -> None:
    summary: ManySeeds = answer["summary"]
    share = summary.falling / summary.seeds
    right = abs(answer["guess"] - 10 * share) <= CLOSE
    st.markdown(f"You said: *{answer['guess']} of 10*, of the {summary.quantity.singular}s {answer['name'].lower()}.")
    st.markdown("**✓ That is what was measured, within one of ten.**" if right else "**✗ That is not what was measured.**")
    verdict, number = max(summary.verdicts.items(), key=lambda item: item[1])
    rising = summary.seeds - summary.falling
    others = f" At the other {rising:,} some step goes the other way." if rising else ""
    st.markdown(
        f"At {summary.falling:,} of {summary.seeds:,} seeds, {short_number(10 * share)} of ten, the list falls at every step."
        f"{others} The verdict looks at the trend over several layers:"
        f" {panels.SIGNS[verdict]} at {number:,} of {summary.seeds:,}."
        + (" So a single step says little, and the trend says more." if number / summary.seeds > share + 0.1 else "")
    )
