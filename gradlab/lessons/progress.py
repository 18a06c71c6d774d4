"""What a learner has answered in this session: an immutable record, and what follows from it.

Nothing is kept beyond the record. Free text is no part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from gradlab.errors import GradlabError, listed, shorten
from gradlab.experiment import ExperimentResult
from gradlab.lessons.course import position
from gradlab.lessons.predictions import FactorQuestion, FactorScore
from gradlab.lessons.question import Posed
from gradlab.lessons.questions import QUESTIONS
from gradlab.spec import MAX_SEED, ExperimentSpec
from gradlab.trail import Quantity


class Confidence(StrEnum):
    """How sure a learner says they are, given with the answer and before the reveal."""

    UNSURE = "unsure"
    FAIRLY_SURE = "fairly_sure"
    CERTAIN = "certain"


CONFIDENCE_TITLES = {
    Confidence.UNSURE: "Unsure",
    Confidence.FAIRLY_SURE: "Fairly sure",
    Confidence.CERTAIN: "Certain",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer to one question about one measurement, and what the measurement bore out."""

    question: str
    page: str
    """Where it was asked: a missed question returns on a later page than its own."""
    option: str
    confidence: Confidence
    specs: tuple[ExperimentSpec, ...]
    right: frozenset[str]

    @property
    def is_right(self) -> bool:
        return self.option in self.right

    @property
    def seed(self) -> int:
        return self.specs[0].seed


@dataclass(frozen=True, kw_only=True)
class Guess:
    """One guessed factor per layer, and the measured one."""

    quantity: Quantity
    spec: ExperimentSpec
    guess: float
    measured: float
    log_error: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """All answers and guesses of a session in the order in which they were given."""

    answers: tuple[Answer, ...] = ()
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Due:
    """A missed question, to be asked again about the same networks with another seed."""

    question: str
    specs: tuple[ExperimentSpec, ...]


def answer(posed: Posed, option: str, confidence: Confidence | str, page: str | None = None) -> Answer:
    """The answer to a posed question; `page` is where it is asked, the question's own page if left out.

    Raises GradlabError for an option that was not offered, an unknown confidence or page, and where nothing could be asked.
    """
    chosen = posed.option(option)
    if confidence not in list(Confidence):
        raise GradlabError(f"{shorten(confidence)} is no confidence; allowed: {listed(Confidence)}")
    page = page or posed.question.page
    position(page)
    return Answer(
        question=posed.question.key,
        page=page,
        option=chosen.key,
        confidence=Confidence(confidence),
        specs=posed.specs,
        right=posed.right,
    )


def guess(question: FactorQuestion, score: FactorScore) -> Guess | None:
    """The guess for the record; None where it was no factor or nothing was measured."""
    if score.guess is None or score.log_error is None or question.measured is None:
        return None
    return Guess(
        quantity=question.quantity,
        spec=question.spec,
        guess=score.guess,
        measured=question.measured,
        log_error=score.log_error,
    )


def commit(progress: Progress, given: Answer | Guess) -> Progress:
    """The record with one more answer or guess. The first one about a measurement stands: a later one changes nothing."""
    if isinstance(given, Guess):
        known = guessed(progress, given.quantity, given.spec)
        return progress if known else replace(progress, guesses=(*progress.guesses, given))
    if answered(progress, given.question, *given.specs):
        return progress
    return replace(progress, answers=(*progress.answers, given))


def answered(progress: Progress, question: str, *specs: ExperimentSpec) -> Answer | None:
    """The answer to a question about these experiments; None while there is none, and the reveal stays locked."""
    found = (given for given in progress.answers if (given.question, given.specs) == (question, specs))
    return next(found, None)


def guessed(progress: Progress, quantity: Quantity, spec: ExperimentSpec) -> Guess | None:
    """The guess about this experiment; None while there is none."""
    found = (given for given in progress.guesses if (given.quantity, given.spec) == (quantity, spec))
    return next(found, None)


# --- what returns -----------------------------------------------------------------------------------------------------


def open_miss(progress: Progress, question: str) -> Answer | None:
    """The latest wrong answer to a question that no right one, given on a later page, has made up for; None without."""
    missed = None
    for given in progress.answers:
        if given.question != question:
            continue
        if not given.is_right:
            missed = given
        elif missed and position(given.page) > position(missed.page):
            missed = None
    return missed


def due(progress: Progress, page: str) -> tuple[Due, ...]:
    """The questions to ask again on a page, each with a seed it was not asked with: those missed on earlier pages.

    Raises GradlabError for a page that is not in the course.
    """
    here = position(page)
    misses = (open_miss(progress, question) for question in QUESTIONS)
    return tuple(
        _again(progress, missed.question, missed.specs) for missed in misses if missed and position(missed.page) < here
    )


def pose_due(again: Due, measure: Callable[[ExperimentSpec], ExperimentResult], tries: int = 10) -> Posed | None:
    """The question about the first of the next seeds it can be asked about; None where `tries` seeds allow none."""
    question, specs = QUESTIONS[again.question], again.specs
    for _ in range(tries):
        posed = question.pose(*(measure(spec) for spec in specs))
        if posed.can_be_asked:
            return posed
        specs = _with_next_seed(specs)
    return None


def _again(progress: Progress, question: str, specs: tuple[ExperimentSpec, ...]) -> Due:
    used = {seed for given in progress.answers if given.question == question for seed in _seeds(given.specs)}
    specs = _with_next_seed(specs)
    while used.intersection(_seeds(specs)):
        specs = _with_next_seed(specs)
    return Due(question=question, specs=specs)


def _seeds(specs: tuple[ExperimentSpec, ...]) -> set[int]:
    return {spec.seed for spec in specs}


def _with_next_seed(specs: tuple[ExperimentSpec, ...]) -> tuple[ExperimentSpec, ...]:
    """The same experiments with the next seed, the same for all of them if it was."""
    return tuple(spec.replace(seed=0 if spec.seed == MAX_SEED else spec.seed + 1) for spec in specs)
