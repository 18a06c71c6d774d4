"""By what factor per layer? A number is predicted, and held against the measured one by its error in powers of ten."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gradlab.errors import shorten
from gradlab.experiment import ExperimentResult
from gradlab.lessons.trend import NOUNS, diagnosis_of, why_no_trend
from gradlab.spec import ExperimentSpec
from gradlab.text import short_number
from gradlab.trail import Quantity

LARGEST_GUESS = 1e12
"""A factor per layer beyond it, or below its inverse, is out of any network's range."""
NO_POINTS_FROM = math.log10(3)
"""From threefold off per layer on a guess gets no points."""
_NUMBER = re.compile(r"[+-]?(\d{1,30}([.,]\d{0,30})?|[.,]\d{1,30})([eE][+-]?\d{1,4})?")


@dataclass(frozen=True, kw_only=True)
class FactorQuestion:
    """What is asked for, and what was measured; `measured` is None where there is no trend, and `why_not` says why."""

    text: str
    quantity: Quantity
    spec: ExperimentSpec
    measured: float | None
    layers: int
    """The hidden layers the factor was measured over."""
    why_not: str


@dataclass(frozen=True, kw_only=True)
class FactorScore:
    """A guess held against the measurement; all None where the guess is no factor, and `sentence` says why."""

    guess: float | None
    measured: float
    log_error: float | None
    """|log10 guess − log10 measured|: powers of ten per layer."""
    points: float | None
    """1 for the measured number itself, 0 from threefold off per layer on, and a straight line in the error between."""
    sentence: str


def factor_question(result: ExperimentResult, quantity: Quantity = Quantity.WEIGHTS) -> FactorQuestion:
    """The question for the per-layer factor of one of the two gradients."""
    found = diagnosis_of(result, quantity)
    return FactorQuestion(
        text=f"By what factor does the {NOUNS[quantity]} change per layer toward the input? 1 is no change, 0.5 is half of it"
        " at each layer, 2 is double.",
        quantity=quantity,
        spec=result.spec,
        measured=found.factor,
        layers=len(found.fitted_layers),
        why_not=why_no_trend(result, quantity),
    )


def score_factor(guess: object, measured: float, layers: int = 2) -> FactorScore:
    """How far a guess is from the measured factor per layer, in powers of ten, and what that makes over all layers.

    `guess` is a number or what a learner typed: `0.3`, `0,3`, `30 %`. What is no factor is answered with a sentence, not
    with an error.
    """
    number, complaint = _read(guess)
    if number is None or not (math.isfinite(measured) and measured > 0):
        sentence = complaint or "There is no measured factor to compare with."
        return FactorScore(guess=None, measured=measured, log_error=None, points=None, sentence=sentence)
    error = abs(math.log10(number) - math.log10(measured))
    return FactorScore(
        guess=number,
        measured=measured,
        log_error=error,
        points=max(0.0, 1 - error / NO_POINTS_FROM),
        sentence=_sentence(number, measured, error, layers),
    )


def _read(guess: object) -> tuple[float | None, str]:
    """The guess as a factor, or None and why it is none."""
    text = guess.strip() if isinstance(guess, str) else repr(guess) if _is_number(guess) else ""
    percent = text.endswith("%")
    text = text.removesuffix("%").strip()
    if not text:
        return None, "Give a number, such as 0.3 or 2."
    if not _NUMBER.fullmatch(text):
        return None, f"{shorten(guess)} is no number I can read. Give one such as 0.3, 0,3 or 30 %."
    number = float(text.replace(",", ".")) / (100 if percent else 1)
    if number <= 0:
        return None, f"{shorten(guess)} cannot be: a factor between two strengths is above zero. 0.1 is a tenth per layer."
    if not 1 / LARGEST_GUESS <= number <= LARGEST_GUESS:
        return None, f"{shorten(guess)} is out of range: give a factor from {1 / LARGEST_GUESS:g} to {LARGEST_GUESS:g}."
    return number, ""


def _is_number(guess: object) -> bool:
    return isinstance(guess, int | float) and not isinstance(guess, bool)


def _sentence(number: float, measured: float, error: float, layers: int) -> str:
    said = f"You said {short_number(number)} per layer, measured is {short_number(measured)}"
    fold = 10**error
    if fold < 1.01:
        return f"{said}: less than a hundredth apart."
    side = "more" if number > measured else "less"
    steps = max(layers - 1, 1)
    whole = f"{short_number(10 ** min(error * steps, 300))}-fold" if error * steps < 300 else "beyond any number"
    return f"{said}: {short_number(fold)}-fold {side} per layer. Over the {layers} layers of the trend that makes {whole}."
