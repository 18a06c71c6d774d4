"""The verdicts page: published detectors beside the lab's own, with the loss multiplied, and cut-offs that can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import partial

import streamlit as st

from gradlab.charts.verdict_grid import WORDS
from gradlab.cut_offs import CUT_OFF_REASONS, CutOffs
from gradlab.diagnosis import disagreement
from gradlab.errors import SpecError, listed
from gradlab.published_rules import RULE_SETS, RuleWord
from gradlab.spec import ExperimentSpec
from gradlab.trail import Quantity
from gradlab.ui import cache, choices, panels, state
from gradlab.ui.cache import LOSS_POWERS

KEY = "verdicts_grid"
OWN = {Quantity.OUTPUTS: "This lab: outputs", Quantity.WEIGHTS: "This lab: weights"}
ANSWERS = {"0": (0, 0), "1 to 3": (1, 3), "4 to 6": (4, 6), "7 or 8": (7, 8)}
QUESTION = (
    f"The loss is multiplied by some power of ten, from 10⁻⁸ to 10⁸. Nothing about the network changes. How many of the"
    f" {len(RULE_SETS)} published rule sets change their verdict somewhere in between?"
)
_SAID, _CUT_OFFS = "verdicts_said", "verdicts_cut_offs"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(power: int | str) -> str:
    """A power of ten as it is written: `10⁻⁸`."""
    return f"10{str(power).translate(_RAISED)}"


# --- the question -------------------------------------------------------------------------------------------------------


def said() -> tuple[ExperimentSpec, str] | None:
    """What was answered, and about which experiment; None before."""
    kept: tuple[ExperimentSpec, str] | None = st.session_state.get(_SAID)
    return kept


def ask(spec: ExperimentSpec) -> None:
    """The question, or what was answered to it beside what was measured."""
    with st.container(border=True):
        st.markdown(f"**{QUESTION}**")
        answer = said()
        if answer is not None:
            _reveal(*answer, now=spec)
            return
        choices.form("verdicts_form", "verdicts_option", ANSWERS, partial(_commit, spec), horizontal=True)


def _commit(spec: ExperimentSpec, option: str) -> None:
    if said() is None:
        st.session_state[_SAID] = (spec, option)


def _reveal(spec: ExperimentSpec, option: str, now: ExperimentSpec) -> None:
    changed = flipping(cache.published_words(spec))
    low, high = ANSWERS[option]
    right = low <= len(changed) <= high
    where = "" if spec == now else " for the experiment you answered about"
    st.markdown(f"You said: *{option}*. **{'✓' if right else '✗'} {len(changed)} of {len(RULE_SETS)} change{where}.**")
    steady = [rule_set.title for rule_set in RULE_SETS.values() if rule_set.title not in changed]
    kept = (
        f" {listed(steady, 'and')} {'says' if len(steady) == 1 else 'say'} the same throughout." if changed and steady else ""
    )
    st.markdown(
        "A gradient is linear in the loss: every reading is multiplied by the same number. A rule that compares a size with a"
        " fixed number can change its mind. The lab compares layers with each other, and the number drops out of that ratio."
        + kept
    )


# --- the picture --------------------------------------------------------------------------------------------------------


def power(revealed: bool) -> int:
    """Draw the slider of the power of ten once the question is answered; the chosen power."""
    if revealed:
        st.select_slider(
            "Multiply the loss by", list(map(str, LOSS_POWERS)), format_func=power_of_ten, key=state.widget("loss_power")
        )
    return int(state.view("loss_power"))


def show(spec: ExperimentSpec, cut_offs: CutOffs, power: int, revealed: bool) -> None:
    """The grid of verdicts."""
    own = cache.own_words(spec, cut_offs)
    rows = {OWN[kind]: own[kind] for kind in OWN} | cache.published_words(spec)
    panels.show(cache.verdict_picture(rows, power, not revealed, panels.dark()), KEY)


def headlines(spec: ExperimentSpec, cut_offs: CutOffs, power: int, revealed: bool) -> None:
    """What changes in the grid, once the question is answered, and the lab's verdict on either gradient."""
    published = cache.published_words(spec)
    if revealed:
        st.markdown(_changes(published, cache.own_words(spec, cut_offs), cut_offs))
        st.markdown(_now(published, power))
    for line in _verdicts(spec, cut_offs):
        st.markdown(line)


def flipping(words: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The detectors whose verdict is not the same at every power."""
    return [name for name, each in words.items() if len(set(each)) > 1]


def _changes(published: Mapping[str, tuple[str, ...]], own: Mapping[str, tuple[str, ...]], cut_offs: CutOffs) -> str:
    ends = f"between {power_of_ten(LOSS_POWERS[0])} and {power_of_ten(LOSS_POWERS[-1])}"
    ours = f"ours{_with_yours(cut_offs)} {'does too' if flipping(own) else 'does not'}"
    return f"**{len(flipping(published))} of {len(published)} published rule sets change their verdict {ends}; {ours}.**"


def _now(published: Mapping[str, tuple[str, ...]], power: int) -> str:
    if power == 0:
        return "Move the slider: it multiplies the loss, and nothing is run again."
    here, there = LOSS_POWERS.index(power), LOSS_POWERS.index(0)
    changed = [name for name, words in published.items() if words[here] != words[there]]
    what = (
        f"{listed(changed, 'and')} {'says' if len(changed) == 1 else 'say'} something else"
        if changed
        else "none says anything else"
    )
    return f"With the loss times {power_of_ten(power)}, {what} than with the loss as it is."


def _verdicts(spec: ExperimentSpec, cut_offs: CutOffs) -> list[str]:
    outputs, weights = (cache.diagnosed(spec, kind, cut_offs) for kind in OWN)
    name = f"this lab{_with_yours(cut_offs).rstrip(',')}"
    remark = disagreement(outputs, weights)
    return [panels.headline(outputs, name), panels.headline(weights, name), *([remark] if remark else [])]


def _with_yours(cut_offs: CutOffs) -> str:
    return "" if cut_offs == CutOffs() else ", with your cut-offs,"


def _say(names: list[str]) -> str:
    return f"{listed(names, 'and')} {'says' if len(names) == 1 else 'say'}"


# --- the table and the sources ------------------------------------------------------------------------------------------


def table(spec: ExperimentSpec, cut_offs: CutOffs, power: int) -> None:
    """What every published rule set says at this power, and why; those that report nothing share a row."""
    st.header("Who says what, and why?")
    verdicts = cache.published_verdicts(spec, power)
    rows: list[tuple[str, RuleWord, str]] = [
        (RULE_SETS[one.rule_set].title, one.verdict, one.sentence) for one in verdicts if one.verdict is not RuleWord.NONE
    ]
    if silent := [one for one in verdicts if one.verdict is RuleWord.NONE]:
        rows.append((", ".join(RULE_SETS[one.rule_set].title for one in silent), RuleWord.NONE, silent[0].sentence))
    head = [f"| rule set | verdict at {power_of_ten(power)} | why |", "|:---|:---|:---|"]
    lines = [f"| {names} | {WORDS[word].sign} {WORDS[word].title} | {_cell(why)} |" for names, word, why in rows]
    st.markdown("\n".join(head + lines))
    with st.expander("The rules, their thresholds and sources"):
        st.markdown("\n\n".join(map(_rules, RULE_SETS)))
    for kind in OWN:
        diagnosis = cache.diagnosed(spec, kind, cut_offs)
        if diagnosis.flags:
            with st.expander(f"Flags on single layers: {kind.singular}s"):
                panels.flags(diagnosis)


def _rules(name: str) -> str:
    rule_set = RULE_SETS[name]
    year = rule_set.year or "year not known"
    lines = [f"**{rule_set.title}** ({year}). [{rule_set.source}]({rule_set.link})", ""]
    lines += [f"- {threshold}" for threshold in rule_set.thresholds]
    return "\n".join([*lines, *([f"- Note: {rule_set.note}"] if rule_set.note else [])])


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


# --- the cut-offs -------------------------------------------------------------------------------------------------------


def cut_offs() -> CutOffs:
    """Draw the lab's cut-offs, each with its reason; the last ones that go together."""
    kept: CutOffs = st.session_state.get(_CUT_OFFS, CutOffs())
    drawer = panels.drawer("The lab's own cut-offs, to be changed", "cut_offs_drawer")
    if drawer.open:
        with drawer:
            kept = st.session_state[_CUT_OFFS] = _changed(kept)
    return kept


def _changed(kept: CutOffs) -> CutOffs:
    values: dict[str, float] = {}
    st.markdown("A is what is left of the gradient at the input end of the hidden layers of one width: 1 is all of it.")
    problem = st.container()
    for name, reason in CUT_OFF_REASONS.items():
        number, why = st.columns([1, 2], vertical_alignment="center")
        with number:
            values[name] = _number(name, kept)
        why.markdown(reason)
    try:
        kept = CutOffs(**values)  # type: ignore[arg-type]
    except SpecError as error:
        problem.error("These cut-offs do not go together. You still see the verdicts of the last ones that did.")
        problem.text(str(error))
    st.button("Back to the lab's own", key="verdicts_reset", on_click=_reset, disabled=values == asdict(CutOffs()))
    return kept


def _number(name: str, kept: CutOffs) -> float:
    key, value = f"verdicts_cut_off_{name}", getattr(kept, name)
    if key not in st.session_state:
        st.session_state[key] = value
    whole = isinstance(value, int)
    return float(st.number_input(name, step=1 if whole else value / 10, format="%d" if whole else "%.4g", key=key))


def _reset() -> None:
    st.session_state[_CUT_OFFS] = CutOffs()
    for cut_off in fields(CutOffs):
        st.session_state[f"verdicts_cut_off_{cut_off.name}"] = cut_off.default
