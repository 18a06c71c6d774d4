"""Results and pictures, computed once for everybody: the key is the specification, the value plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import pandas
import pyarrow
import streamlit as st
from streamlit.dataframe_util import convert_arrow_table_to_arrow_bytes

from gradlab import charts
from gradlab.comparison import Comparison, compare_results
from gradlab.cut_offs import CutOffs
from gradlab.diagnosis import Diagnosis, diagnose
from gradlab.experiment import ExperimentResult, run_experiment, with_loss_times
from gradlab.lessons import both_kinds as lesson_both_kinds
from gradlab.lessons import methods
from gradlab.lessons import signs as lesson_signs
from gradlab.lessons.both_kinds import Both
from gradlab.lessons.challenge import Challenge, challenge
from gradlab.lessons.demonstrations import Demonstration
from gradlab.lessons.demonstrations.base import RUNS
from gradlab.lessons.learning import OPTIMIZERS, Movement, Optimizer, weight_movement
from gradlab.lessons.matrices import Matrix, weight_gradient
from gradlab.lessons.mistakes import MISTAKES
from gradlab.lessons.myth_trails import MythResult
from gradlab.lessons.myths import MYTHS
from gradlab.lessons.predictions import FactorQuestion, factor_question
from gradlab.lessons.question import Posed
from gradlab.lessons.questions import QUESTIONS
from gradlab.lessons.signs import Sign
from gradlab.lessons.takeaways import TAKEAWAYS, Evidence
from gradlab.published_rules import RULE_SETS, RuleVerdict, flips
from gradlab.spec import ExperimentSpec
from gradlab.text import in_words
from gradlab.trail import Quantity, backward_trail, layer_of
from gradlab.ui.links import VIEWS, products_of
from gradlab.ui.turns import step_aside, taking_turns

P = ParamSpec("P")
R = TypeVar("R")
# Field by field, as Streamlit hashes a specification, takes a millisecond for each call.
_HASHED: dict[str | type, Callable[[Any], Any]] = {ExperimentSpec: repr}


def kept(*, max_entries: int, max_size: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keeps what a function returns; each visitor gets a copy."""
    return st.cache_data(max_entries=max_entries, max_size=max_size, show_spinner=False, hash_funcs=_HASHED)


def shared(*, max_entries: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keeps what a function returns and hands out the thing itself: for frozen values, which to copy only costs time."""
    return st.cache_resource(max_entries=max_entries, show_spinner=False, hash_funcs=_HASHED)


class Picture(NamedTuple):
    """A chart ready to be sent: its Vega-Lite specification with the data as Arrow bytes, its alt text, how to read it."""

    vega_lite: dict[str, Any]
    alt_text: str
    how_to_read: str


LOSS_POWERS = tuple(sorted(map(int, VIEWS["loss_power"])))
"""The powers of ten that a loss is multiplied by."""


@shared(max_entries=80)
def measured(spec: ExperimentSpec) -> ExperimentResult:
    """The result; of two hundred layers it takes half a megabyte, so not many are kept, here and in what holds them."""
    with taking_turns(products_of(spec)):
        return run_experiment(spec)


@shared(max_entries=500)
def diagnosed(spec: ExperimentSpec, quantity: str, cut_offs: CutOffs | None = None) -> Diagnosis:
    return diagnose(measured(spec), cut_offs, gradient=quantity)


@shared(max_entries=200)
def table(spec: ExperimentSpec, quantity: str) -> pyarrow.Table:
    """The readings of every weight or every layer output, first layer first, in the columns that a page shows.

    As Arrow, which a page sends: from pandas Streamlit would make it on every run.
    """
    of_weights = quantity == Quantity.WEIGHTS
    frame = measured(spec).weight_table() if of_weights else measured(spec).output_table()
    first = ["parameter"] if of_weights else ["layer", "module_type"]
    frame = frame[[*first, "shape", "mean_abs", "norm", "min", "max", "zero_fraction", "backward_index", "status"]]
    shapes, statuses = [" × ".join(map(str, shape)) for shape in frame["shape"]], map(in_words, frame["status"])
    frame = frame.assign(shape=shapes, status=list(statuses))
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


@shared(max_entries=300)
def trail(spec: ExperimentSpec, quantity: str) -> pandas.DataFrame:
    """The trail; nobody changes it."""
    return backward_trail(measured(spec), Quantity(quantity))


@kept(max_entries=300)
def river(specs: dict[str, ExperimentSpec], quantity: str, arrived: int | None, dark: bool) -> Picture:
    trails = {name: trail(spec, quantity) for name, spec in specs.items()}
    return picture_of(charts.river(trails, hues=hues_of(list(specs.values())), arrived=arrived, dark=dark))


@kept(max_entries=300)
def readings(spec: ExperimentSpec, quantity: str, printed_order: bool, dark: bool) -> Picture:
    title = "mean |weight gradient|" if quantity == Quantity.WEIGHTS else "mean |output gradient|"
    (hue,) = hues_of([spec])
    readings = trail(spec, quantity)
    return picture_of(charts.readings(readings, title=title, printed_order=printed_order, hue=hue, dark=dark))


@shared(max_entries=500)
def posed(question: str, *specs: ExperimentSpec) -> Posed:
    """The question about these experiments: frozen, and shared as it is, because its functions cannot be copied."""
    return QUESTIONS[question].pose(*map(measured, specs))


@kept(max_entries=300)
def factor_asked(spec: ExperimentSpec) -> FactorQuestion:
    return factor_question(measured(spec))


@kept(max_entries=200)
def unmeasured(depth: int, dark: bool) -> Picture:
    return picture_of(charts.unmeasured([f"layers.{place}" for place in reversed(range(depth))], dark=dark))


@kept(max_entries=300)
def river_and_prediction(spec: ExperimentSpec, name: str, direction: int, factor: float | None, dark: bool) -> Picture:
    readings = trail(spec, Quantity.WEIGHTS)
    fitted = set(map(layer_of, diagnosed(spec, Quantity.WEIGHTS).fitted_layers))
    river = charts.river({name: readings}, hues=hues_of([spec]), dark=dark)
    layers = [layer for layer in readings["layer"] if layer in fitted]
    return picture_of(charts.with_prediction(river, layers=layers, direction=direction, factor=factor, dark=dark))


@kept(max_entries=300)
def matrix(spec: ExperimentSpec, layer: str) -> Matrix:
    with taking_turns(products_of(spec)):
        return weight_gradient(spec, layer)


@kept(max_entries=300)
def matrix_pictures(spec: ExperimentSpec, layer: str, dark: bool) -> tuple[Picture, Picture]:
    """A layer's gradient as a matrix, and its absolute values, in the same unit."""
    entries = matrix(spec, layer)
    unit = charts.unit_of(entries.absolute)
    signed = charts.cells(entries.values, unit=unit, kind=charts.Cells.SIGNED, name=layer, what="Gradient", dark=dark)
    absolute = charts.cells(
        entries.absolute, unit=unit, kind=charts.Cells.ABSOLUTE, name=layer, what="Absolute gradient", dark=dark
    )
    return picture_of(signed), picture_of(absolute)


@kept(max_entries=300)
def mean_picture(spec: ExperimentSpec, layer: str, mean: float, dark: bool) -> Picture:
    """The mean of a layer's absolute gradient as one cell, on the scale of its matrix."""
    unit, what = charts.unit_of(matrix(spec, layer).absolute), "Mean absolute gradient"
    return picture_of(charts.cells(((mean,),), unit=unit, kind=charts.Cells.MEAN, name=layer, what=what, dark=dark))


@kept(max_entries=200)
def demonstration(mistake: str, spec: ExperimentSpec) -> Demonstration:
    with taking_turns(RUNS * products_of(spec)):
        return MISTAKES[mistake].demonstrate(spec)


@kept(max_entries=200)
def demonstration_picture(mistake: str, spec: ExperimentSpec, dark: bool) -> Picture:
    found = demonstration(mistake, spec)
    return picture_of(charts.two_numbers(found.wrong, found.right, dark=dark))


@kept(max_entries=2)
def nothing_demonstrated(dark: bool) -> Picture:
    return picture_of(charts.no_numbers_yet(dark=dark))


@shared(max_entries=40)
def challenge_on(plain: ExperimentSpec, shortcut: ExperimentSpec) -> Challenge:
    """The two questions of the challenge: shared as they are, because their functions cannot be copied."""
    return challenge(measured(plain), measured(shortcut))


@kept(max_entries=200)
def evidence(plain: ExperimentSpec, shortcut: ExperimentSpec) -> dict[str, Evidence]:
    """What these two measurements say to each takeaway, by its key."""
    return {key: takeaway.check(measured(plain), measured(shortcut)) for key, takeaway in TAKEAWAYS.items()}


@kept(max_entries=300)
def movement(spec: ExperimentSpec, steps: int, optimizer: Optimizer) -> tuple[Movement, ...]:
    with taking_turns(steps * products_of(spec)):
        return weight_movement(spec, steps, optimizer)


@kept(max_entries=200)
def movement_picture(spec: ExperimentSpec, steps: int, dark: bool) -> Picture:
    rows = {entry.title: movement(spec, steps, optimizer) for optimizer, entry in OPTIMIZERS.items()}
    (hue,) = hues_of([spec])
    return picture_of(charts.movement(rows, hue=hue, dark=dark))


@shared(max_entries=40)
def compared(
    a: ExperimentSpec, b: ExperimentSpec, quantity: str, under_study: str, names: tuple[str, str] | None
) -> Comparison:
    """Frozen, and shared as it is: a copy of two whole measurements for every visitor takes longer than the page."""
    return compare_results(measured(a), measured(b), under_study=under_study, gradient=quantity, names=names)


@kept(max_entries=200)
def both_kinds(spec: ExperimentSpec) -> tuple[Both, ...]:
    return lesson_both_kinds.both_kinds(measured(spec))


@kept(max_entries=300)
def both_kinds_picture(spec: ExperimentSpec, dark: bool) -> Picture:
    (hue,) = hues_of([spec])
    return picture_of(charts.both_kinds(both_kinds(spec), hue=hue, dark=dark))


@kept(max_entries=1)
def signs() -> tuple[Sign, ...]:
    return lesson_signs.signs()


@kept(max_entries=32)
def capture_cells(situation: str, by_hand: bool) -> tuple[methods.Cell, ...]:
    return methods.by_hand(situation) if by_hand else methods.side_by_side(situation)


@kept(max_entries=16)
def true_norm(situation: str) -> float | None:
    return methods.true_norm(situation)


@kept(max_entries=300)
def outcomes_picture(cells: tuple[charts.OutcomeCell, ...], at_hand: str, dark: bool) -> Picture:
    return picture_of(charts.outcomes(cells, at_hand=at_hand, dark=dark))


@kept(max_entries=300)
def published_verdicts(spec: ExperimentSpec, power: int) -> tuple[RuleVerdict, ...]:
    """What each published rule set says with the loss multiplied by that power of ten."""
    multiplied = with_loss_times(measured(spec), 10.0**power)
    return tuple(rule_set.judge(multiplied) for rule_set in RULE_SETS.values())


@kept(max_entries=200)
def published_words(spec: ExperimentSpec) -> dict[str, tuple[str, ...]]:
    """Title of a rule set -> its verdict at each of `LOSS_POWERS`."""
    result = measured(spec)
    with taking_turns(len(LOSS_POWERS) * products_of(spec)):
        table = flips(result, [10.0**power for power in LOSS_POWERS])
    published = table[table["rule_set"].isin(list(RULE_SETS))]
    return {row[1]: tuple(row[2:-1]) for row in published.itertuples(index=False)}


@kept(max_entries=300)
def own_words(spec: ExperimentSpec, cut_offs: CutOffs) -> dict[str, tuple[str, ...]]:
    """Gradient -> the lab's own verdict at each of `LOSS_POWERS`, each from readings that were multiplied."""
    multiplied = [with_loss_times(measured(spec), 10.0**power) for power in LOSS_POWERS]
    return {str(kind): tuple(str(diagnose(one, cut_offs, gradient=kind).verdict) for one in multiplied) for kind in Quantity}


@kept(max_entries=300)
def verdict_picture(rows: dict[str, tuple[str, ...]], power: int, hidden: bool, dark: bool) -> Picture:
    return picture_of(charts.verdict_grid(rows, powers=LOSS_POWERS, current=power, hidden=hidden, dark=dark))


def myth(name: str, seed: int) -> MythResult:
    step_aside()  # half a second, whichever claim it is, also for those who wait for the same
    return _myth(name, seed)


@kept(max_entries=100)
def _myth(name: str, seed: int) -> MythResult:
    with taking_turns(math.inf):
        return MYTHS[name].run(seed)


@kept(max_entries=200)
def myth_picture(name: str, seed: int | None, dark: bool) -> Picture:
    """The claim beside what is measured from that seed on; without a seed the claim alone."""
    claim = MYTHS[name]
    frame = claim.claim if seed is None else myth(name, seed).frame
    return picture_of(charts.against_claim(frame, reading=claim.reading, dark=dark))


def hues_of(specs: Sequence[ExperimentSpec]) -> list[int]:
    """Colour is identity: a plain network has the first hue, one with shortcuts the second; two alike are told apart."""
    hues = [int(spec.network.use_shortcut) for spec in specs]
    return hues if len(set(hues)) == len(hues) else list(range(len(hues)))


def picture_of(figure: charts.Figure) -> Picture:
    """The figure, ready to be sent."""
    # Streamlit would turn the data into Arrow on every run of a page; here it is done once.
    data = {name: convert_arrow_table_to_arrow_bytes(arrow(rows)) for name, rows in figure.data.items()}
    return Picture({**figure.vega_lite, "datasets": data}, figure.alt_text, figure.how_to_read)


def arrow(rows: charts.Rows) -> pyarrow.Table:
    """The rows as an Arrow table, which a page sends; what is NaN is missing. From pandas it takes five times as long."""
    columns = rows[0] if rows else {}
    return pyarrow.table({name: pyarrow.array([row[name] for row in rows], from_pandas=True) for name in columns})
