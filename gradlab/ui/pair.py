"""Two experiments side by side: the one chosen without and with shortcuts, or a pinned run A and what is chosen now, B."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from gradlab import charts
from gradlab.capture import Status
from gradlab.comparison import FIELD_TITLES, Comparison, Difference, Value
from gradlab.lessons.question import Posed
from gradlab.lessons.trend import departure
from gradlab.spec import ExperimentSpec
from gradlab.text import in_words
from gradlab.trail import Quantity
from gradlab.ui import cache, in_turn, numbers, panels, questions, state, take_home
from gradlab.ui.links import VIEWS, text_of

WHAT_DIFFERS, WHERE_THEY_PART = "what_differs", "where_they_part"
_SEEN_WITHOUT_ANSWER = "shortcuts_seen_without_answer"


class Pair(NamedTuple):
    """Two experiments and what they are called; pinned, or one experiment without and with shortcuts."""

    a: ExperimentSpec
    b: ExperimentSpec
    names: tuple[str, str]
    short_names: tuple[str, str]
    is_pinned: bool


def of(spec: ExperimentSpec) -> Pair:
    """The pair that is shown while these settings are chosen."""
    pinned = state.pinned()
    if pinned is not None:
        names = [f"{name}, {_kind(each)}" for name, each in (("A", pinned), ("B", spec))]
        return Pair(pinned, spec, (names[0], names[1]), ("A", "B"), True)
    plain, shortcut = (spec.replace(use_shortcut=flag) for flag in (False, True))
    return Pair(plain, shortcut, ("Without shortcuts", "With shortcuts"), ("without", "with"), False)


def _kind(spec: ExperimentSpec) -> str:
    return "with shortcuts" if spec.network.use_shortcut else "without shortcuts"


# --- what is asked, and what is hidden until then ---------------------------------------------------------------------


def ask(pair: Pair, quantity: Quantity) -> None:
    """The question that is next about this pair; a second pair can also be looked at without an answer."""
    parting = _where_they_part(pair)
    before = [] if pair.is_pinned else in_turn.posed([WHAT_DIFFERS], pair.a, pair.b, once=[WHAT_DIFFERS])
    of_outputs = quantity is Quantity.OUTPUTS and is_open(pair)
    left_out = of_outputs or _is_seen(parting) or (pair.is_pinned and not parting.can_be_asked)
    in_turn.ask(before if left_out else [*before, parting], "shortcuts")
    if not says_what_differs(pair):
        _settings(pair)
    if not is_open(pair) or in_turn.answered(before) < len(before):
        return
    if of_outputs:
        st.markdown("Where they part is asked about **weight gradients**. Switch to them to answer.")
    elif in_turn.answered_once(WHERE_THEY_PART):
        st.button("Show this pair without an answer", on_click=_look, args=(parting,), key="shortcuts_look")


def _settings(pair: Pair) -> None:
    """Every setting of both, to look up what differs."""
    first, second = pair.a.to_dict(), pair.b.to_dict()
    titles = FIELD_TITLES | {"seed": "seed"}
    lines = [f"- **{titles[name]}**: {_value(first[name])} and {_value(second[name])}" for name in first]
    with st.expander("Look up the settings of both"):
        st.markdown("\n".join(lines))


def is_open(pair: Pair) -> bool:
    """Whether there is still a question about where this pair parts: its sentence and its verdicts stay hidden."""
    posed = _where_they_part(pair)
    return posed.can_be_asked and not questions.answered(posed) and not _is_seen(posed)


def says_what_differs(pair: Pair) -> bool:
    """Whether the list of what differs can be shown: it is the answer to the first question."""
    return pair.is_pinned or in_turn.answered_once(WHAT_DIFFERS)


def _where_they_part(pair: Pair) -> Posed:
    plain, shortcut = sorted((pair.a, pair.b), key=lambda spec: spec.network.use_shortcut)
    return cache.posed(WHERE_THEY_PART, plain, shortcut)


def _seen() -> frozenset[str]:
    return frozenset(st.session_state.get(_SEEN_WITHOUT_ANSWER, ()))


def _is_seen(posed: Posed) -> bool:
    return questions.identity(posed) in _seen()


def _look(posed: Posed) -> None:
    st.session_state[_SEEN_WITHOUT_ANSWER] = _seen() | {questions.identity(posed)}


# --- the pictures and sentences ---------------------------------------------------------------------------------------


def show(pair: Pair, quantity: Quantity) -> None:
    """Both trails in one chart; once it is no longer asked, where they part and what each is called."""
    picture = cache.river(dict(zip(pair.names, (pair.a, pair.b), strict=True)), quantity, None, panels.dark())
    found = comparison(pair, quantity)
    lines = [f"**✗ {found.word}**"] if pair.is_pinned and not found.is_controlled else []
    if not is_open(pair):
        lines += [
            f"**Where they part.** {found.sentence}",
            *_two_ways_to_part(pair, found),
            panels.headline(found.diagnosis_a, pair.names[0]),
            panels.headline(found.diagnosis_b, pair.names[1]),
        ]
    if pair.a.network.depth != pair.b.network.depth:
        lines.append(
            "The two differ in depth. In the picture layers of the same name stand under each other; the sentence and the"
            " table pair them from the output end."
        )
    panels.show(picture, "shortcuts_river", *lines)


def _two_ways_to_part(pair: Pair, found: Comparison) -> list[str]:
    """A remark where the answer to the question and the sentence name different layers, as they measure different things."""
    if not in_turn.is_answered(_where_they_part(pair)):
        return []
    plain, shortcut = sorted((found.a, found.b), key=lambda result: result.spec.network.use_shortcut)
    asked = departure(plain, shortcut).layer
    if asked == (found.parting.layer_b or ""):
        return []
    return [
        "This names another layer than the question. The question follows the weight gradients of the hidden layers alone and"
        " compares them with a line; this sentence starts at the output end and compares the two trails."
    ]


def comparison(pair: Pair, quantity: Quantity) -> Comparison:
    """The two measured and held against each other, with the field under study."""
    names = pair.short_names if pair.is_pinned else None
    return cache.compared(pair.a, pair.b, quantity, under_study(pair), names)


def under_study(pair: Pair) -> str:
    """The field that is meant to differ: the shortcuts, or in a pinned pair whatever was chosen."""
    return str(state.chosen()["under_study"]) if pair.is_pinned else VIEWS["under_study"][0]


# --- what differs -----------------------------------------------------------------------------------------------------


def guard(pair: Pair, quantity: Quantity) -> None:
    """Everything in which the two differ, and whether that makes a comparison."""
    found = comparison(pair, quantity)
    st.header("What differs?")
    if found.differences:
        st.markdown("\n".join(_line(difference, found.under_study) for difference in found.differences))
    else:
        st.markdown("Nothing: both have the same settings.")
    if found.is_controlled:
        st.markdown(f"**✓ A comparison.** One thing differs: {FIELD_TITLES[found.under_study]}.")
    elif not pair.is_pinned:  # of a pinned pair it stands under the picture
        st.markdown(f"**✗ {found.word}**")
    if not pair.is_pinned:
        st.markdown(
            "The seed is set again before each network is built, so both get the same weights and biases. Sizes, input, target,"
            " loss and the measuring function are the same too."
        )


def _line(difference: Difference, studied: str) -> str:
    """One difference with both values and what it means for the comparison, in words."""
    sign, remark = ("✗", "not under study") if difference.field != studied else ("✓", "under study")
    if not difference.has_effect:
        sign, remark = "○", "without effect on these numbers"
    return f"- {sign} **{difference.title}**: {_value(difference.a)} → {_value(difference.b)} ({remark})"


def _value(value: Value) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else f"`{value}`"


# --- pin a run --------------------------------------------------------------------------------------------------------


def pin(spec: ExperimentSpec) -> None:
    """The button that keeps the chosen experiment as A, or lets go of it, and the choice of what is studied."""
    pinned, locked = state.pinned(), state.controls() != "open"
    if pinned is None:
        st.button(
            "Pin this run as A, change B", on_click=state.choose, args=({"pinned": text_of(spec)},), key="shortcuts_pin",
            help="Keeps the experiment that the controls show now, and holds whatever you change against it.", disabled=locked,
        )  # fmt: skip
        return
    st.markdown(f"**A is pinned:** `{text_of(pinned)}`, the rest as it is by default. The controls change **B**.")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button("Unpin A", on_click=state.choose, args=({"pinned": ""},), key="shortcuts_unpin", disabled=locked)
        studied = state.widget("under_study")
        st.selectbox("Under study", VIEWS["under_study"], format_func=FIELD_TITLES.__getitem__, key=studied, width=260)
    state.view("under_study")


# --- the numbers ------------------------------------------------------------------------------------------------------


def table(pair: Pair, quantity: Quantity) -> None:
    """Both readings of every layer, paired from the output end, with their ratio."""
    rows, (a, b) = charts.rows_of(comparison(pair, quantity).table()), pair.short_names
    same_layers = all(row["layer_a"] == row["layer_b"] for row in rows)
    titles = {
        "layer_a": "layer" if same_layers else f"layer, {a}",
        **({} if same_layers else {"layer_b": f"layer, {b}"}),
        "reading_a": f"RMS, {a}",
        "reading_b": f"RMS, {b}",
        "ratio": f"{b} / {a}",
        "relative_ratio": f"kept, {b} / {a}",
    }
    if any(status != Status.OK for row in rows for status in (row["status_a"], row["status_b"])):
        titles |= {"status_a": f"status, {a}", "status_b": f"status, {b}"}
    shown = [{name: in_words(row[name]) if name.startswith("status") else row[name] for name in titles} for row in rows]
    sizes, ratios = ("reading_a", "reading_b"), ("ratio", "relative_ratio")
    digits = dict.fromkeys(sizes, numbers.SIZE) | dict.fromkeys(ratios, numbers.FACTOR)
    numbers.table(cache.arrow(shown), digits, titles=titles)
    st.markdown(
        "The output end stands first. RMS is the root mean square of the entries; the picture shows mean absolute values."
        " *Kept* is a reading over the same network's reading at the output end."
    )


def take_along(pair: Pair, quantity: Quantity) -> None:
    """The second of the two to take along, and the readings of the first."""
    found, a = comparison(pair, quantity), pair.short_names[0]
    take_home.take_home("shortcuts", found.b)
    what = ("A", "B") if pair.is_pinned else ("the network without shortcuts", "the network with shortcuts")
    st.markdown(f"Fingerprint, readings and script are those of {what[1]}; the link opens both. The readings of {what[0]}:")
    label = f"The readings of {what[0]} (CSV)"
    take_home.download(found.a, "shortcuts_csv_a", label, f"gradients_{a.lower()}")
