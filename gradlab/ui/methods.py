"""The capture page's parts: what each method finds in each situation, and the lines that do it by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow
import streamlit as st

from gradlab.capture import CAPTURE_METHODS
from gradlab.charts import OutcomeCell
from gradlab.charts.outcomes import ASKED
from gradlab.lessons.methods import OUTCOME_HELP, SITUATIONS, Cell, Outcome
from gradlab.lessons.snippets import CAPTURES
from gradlab.presets import PRESETS
from gradlab.spec import CaptureMethod
from gradlab.text import counted, short_number
from gradlab.ui import cache, code, in_turn, numbers, panels

SPEC = PRESETS["two_layer_regression"].spec
NAMES = {"layers.0.0": "fc1", "layers.0.1": "relu", "layers.1.0": "fc2"}
"""What the lines of code call the layers of that network."""
SAME_NUMBER, IN_PLACE = "method_same_number", "method_inplace"
ASKED_FOR_LINES = {
    CaptureMethod.FULL_BACKWARD_HOOKS: "method_first_layer",
    CaptureMethod.RETAIN_GRAD: "method_one_tensor",
}
LAB, BY_HAND = WAYS = ("Lab's capture", "Lines by hand")
SIGNS = {
    Outcome.EQUAL: "= equal",
    Outcome.ABSENT: "∅ none there",
    Outcome.WITHHELD: "□ withheld",
    Outcome.ERROR: "✗ error",
    Outcome.INCOMPLETE: "◐ in part",
    Outcome.WRONG: "≠ wrong",
}
_GROUPS = {Outcome.EQUAL: "right", Outcome.INCOMPLETE: "silent", Outcome.WRONG: "silent"}
_NUMBER, _UNTRIED = "• a number", "?"
_TRIED = "methods_situations_tried"


class View(NamedTuple):
    """What is looked at: the situation at hand, those that were tried, and whose lines are measured."""

    situation: str
    tried: tuple[str, ...]
    by_hand: bool


def controls() -> View:
    """The switch over the situations and the one over whose lines are measured; what was tried stays in the picture."""
    first = next(iter(SITUATIONS))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "Situation", list(SITUATIONS), format_func=lambda name: SITUATIONS[name].title, key="methods_situation", width=260
        )
        way = st.segmented_control("Whose lines", WAYS, default=LAB, required=True, key="methods_way")
        st.button("Measure all", on_click=_try_all, key="methods_all")
    situation = chosen or first
    before = st.session_state.get(_TRIED, (first,))
    tried = tuple(name for name in SITUATIONS if name in before or name == situation)
    st.session_state[_TRIED] = tried
    return View(situation, tried, way == BY_HAND)


def _try_all() -> None:
    st.session_state[_TRIED] = tuple(SITUATIONS)


def measure(view: View) -> None:
    """Measure what is to be shown; the first checkpointed run of a process takes a second, so something says so."""
    with st.spinner("Measuring …"):
        for situation in view.tried:
            cache.capture_cells(situation, view.by_hand)


def is_open(question: str) -> bool:
    """Whether the question is still to be answered: until then the page does not say it."""
    return not in_turn.answered_once(question)


# --- the situations ---------------------------------------------------------------------------------------------------


def show(view: View) -> None:
    """The grid of methods and situations, filled with what was tried, and what came out of the one at hand."""
    grid = tuple(cell for situation in SITUATIONS for cell in _row(situation, view))
    picture = cache.outcomes_picture(grid, SITUATIONS[view.situation].title, panels.dark())
    panels.show(picture, "methods_grid", _headline(view))


def _row(situation: str, view: View) -> list[OutcomeCell]:
    title = SITUATIONS[situation].title
    if situation not in view.tried:
        return [OutcomeCell(title, _name(method), _UNTRIED, "", "Not measured yet: choose it.") for method in CaptureMethod]
    if _is_hidden(situation):
        return [OutcomeCell(title, _name(method), ASKED, "", "A question below asks for this.") for method in CaptureMethod]
    return [
        OutcomeCell(title, _name(cell.method), _sign(cell), "" if _is_covered(cell) else _group(cell), _words(cell))
        for cell in cache.capture_cells(situation, view.by_hand)
    ]


def _is_hidden(situation: str) -> bool:
    return situation == "in_place" and is_open(IN_PLACE)


def _is_covered(cell: Cell) -> bool:
    """Whether the cell would answer how the methods' numbers compare: then it says that there is one, no more."""
    return cell.outcome is Outcome.EQUAL and is_open(SAME_NUMBER)


def _sign(cell: Cell) -> str:
    return _NUMBER if _is_covered(cell) else SIGNS[cell.outcome]


def _group(cell: Cell) -> str:
    return _GROUPS.get(cell.outcome, "open")


def _words(cell: Cell) -> str:
    return "A gradient was captured." if _is_covered(cell) else cell.words


def _name(method: CaptureMethod) -> str:
    return CAPTURE_METHODS[method].title


def _headline(view: View) -> str:
    situation = SITUATIONS[view.situation]
    if _is_hidden(view.situation):
        return f"**{situation.title}.** {situation.help} What each method gives then is asked below."
    return f"**{situation.title}.** {situation.help} {_counted(cache.capture_cells(view.situation, view.by_hand))}"


def _counted(cells: Sequence[Cell]) -> str:
    """How many methods give what, without the names of the methods."""
    counts: dict[str, int] = {}
    for cell in cells:
        counts[_sign(cell)] = counts.get(_sign(cell), 0) + 1
    if len(counts) == 1:
        return f"All {len(cells)} methods: {next(iter(counts))[2:]}."
    return "; ".join(f"{counted(count, 'method')}: {sign[2:]}" for sign, count in counts.items()) + "."


def cards(view: View) -> None:
    """For each method what it gave in the situation at hand, in words, beside what autograd gives without any hook."""
    if _is_hidden(view.situation):
        return
    for column, cell in zip(st.columns(len(CaptureMethod)), cache.capture_cells(view.situation, view.by_hand), strict=True):
        number = "" if cell.value is None else f"\n\nNorm **{short_number(cell.value)}**"
        with column.container(border=True, height="stretch"):
            st.markdown(f"**{_name(cell.method)}: {_sign(cell)}**\n\n{_words(cell)}{number}")
    truth = cache.true_norm(view.situation)
    there = "no gradient there" if truth is None else f"norm **{short_number(truth)}**"
    st.markdown(
        f"`torch.autograd.grad`, without any hook: {there}. Watched is the output of `middle` in a network of `first`, tanh,"
        " `middle`, tanh, `last`, which each situation changes in its own way."
    )
    with st.expander("What do the signs mean?"):
        meanings = [f"- **{SIGNS[outcome]}**: {text}" for outcome, text in OUTCOME_HELP.items() if not is_open(SAME_NUMBER)]
        st.markdown("\n".join(meanings) or "The signs compare with what autograd gives; they stand here after the question.")


def ask() -> None:
    """The questions about the situations, one after the other."""
    in_turn.ask(in_turn.posed((SAME_NUMBER, IN_PLACE), SPEC), "methods")


# --- the lines by hand ------------------------------------------------------------------------------------------------


def lines() -> None:
    """The lines of PyTorch for a chosen method, and what the lab's capture reads with it on the same network."""
    st.header("Which lines do it by hand?")
    st.markdown(
        "On a network of two layers: `fc1 = Linear(4, 8)`, `relu`, `fc2 = Linear(8, 1)`, three samples, mean squared error."
        " The lines run as they stand."
    )
    titles = {method: snippet.title for method, snippet in CAPTURES.items()}
    default = next(iter(CAPTURES))
    chosen = st.segmented_control(
        "Method", list(titles), default=default, required=True, format_func=titles.__getitem__, key="methods_lines"
    )
    method = CaptureMethod(chosen or default)
    if not _question_on(method):
        return
    code.show(CAPTURES[method])
    st.markdown(f"What the lab reads with this method on the same network, seed {SPEC.seed}:")
    numbers.table(_readings(method), {}, key="methods_table")
    if method is CaptureMethod.RETAIN_GRAD:
        st.markdown("The lines keep one tensor, `fc1`. The lab keeps every output, and lets go of them afterwards.")


def _question_on(method: CaptureMethod) -> bool:
    """Ask what these lines would give away; whether they can be shown."""
    question = ASKED_FOR_LINES.get(method)
    if question is None:
        return True
    if is_open(question) and (is_open(SAME_NUMBER) or is_open(IN_PLACE)):
        st.markdown("A question comes before these lines. It appears here once those above are answered.")
        return False
    in_turn.ask(in_turn.posed((question,), SPEC), "methods")
    return not is_open(question)


def _readings(method: CaptureMethod) -> pyarrow.Table:
    """Layer, shape and norm of every output gradient, the norm in the digits that the lines print."""
    records = cache.measured(SPEC.replace(capture_method=method)).outputs
    return pyarrow.table(
        {
            "layer": [f"{NAMES[record.layer]} ({record.layer})" for record in records],
            "shape": [" × ".join(map(str, record.shape or ())) for record in records],
            "norm": [f"{record.statistics.norm:.7e}" if record.statistics else str(record.status) for record in records],
        }
    )
