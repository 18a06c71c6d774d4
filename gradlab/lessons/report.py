"""What a learner got right and wrong, how sure they were, and what to look at again."""

from __future__ import annotations

from dataclasses import dataclass

from gradlab.lessons.course import PAGES, TOPICS
from gradlab.lessons.progress import CONFIDENCE_TITLES, Answer, Confidence, Progress, open_miss
from gradlab.lessons.questions import QUESTIONS
from gradlab.sizes import sizes_to_text
from gradlab.text import short_number


@dataclass(frozen=True, kw_only=True)
class CalibrationRow:
    """How many of the answers given with one confidence were right."""

    confidence: Confidence
    answered: int
    right: int

    @property
    def share(self) -> float | None:
        """Right answers among those given; None where none was given."""
        return self.right / self.answered if self.answered else None


@dataclass(frozen=True, kw_only=True)
class LookAgain:
    """A question that is still missed, the page to look at, and whether the learner was certain."""

    question: str
    page: str
    page_title: str
    topics: tuple[str, ...]
    confidence: Confidence


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The record in numbers."""

    answered: int
    right: int
    wrong: int
    calibration: tuple[CalibrationRow, ...]
    """One row per confidence, the surest first."""
    look_again: tuple[LookAgain, ...]
    """The surest first: a misconception held for certain is worth the most."""
    median_log_error: float | None
    """Of the guessed factors, in powers of ten per layer; None without a guess."""
    sentences: tuple[str, ...]


def summary(progress: Progress) -> Summary:
    """What the record says."""
    right = sum(given.is_right for given in progress.answers)
    calibration = tuple(_row(progress, confidence) for confidence in _SUREST_FIRST)
    misses = [missed for question in QUESTIONS if (missed := open_miss(progress, question))]
    misses.sort(key=lambda missed: _SUREST_FIRST.index(missed.confidence))  # stable: then in the order of the course
    errors = sorted(given.log_error for given in progress.guesses)
    middle = (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2 if errors else None
    return Summary(
        answered=len(progress.answers),
        right=right,
        wrong=len(progress.answers) - right,
        calibration=calibration,
        look_again=tuple(_look_again(missed) for missed in misses),
        median_log_error=middle,
        sentences=_sentences(progress, right, calibration, middle),
    )


_SUREST_FIRST = tuple(Confidence)[::-1]


def _row(progress: Progress, confidence: Confidence) -> CalibrationRow:
    given = [given for given in progress.answers if given.confidence is confidence]
    return CalibrationRow(confidence=confidence, answered=len(given), right=sum(one.is_right for one in given))


def _look_again(missed: Answer) -> LookAgain:
    question = QUESTIONS[missed.question]
    return LookAgain(
        question=missed.question,
        page=question.page,
        page_title=PAGES[question.page].title,
        topics=tuple(TOPICS[topic] for topic in question.covers),
        confidence=missed.confidence,
    )


def _sentences(
    progress: Progress, right: int, calibration: tuple[CalibrationRow, ...], median_log_error: float | None
) -> tuple[str, ...]:
    count = len(progress.answers)
    if not count and median_log_error is None:
        return ("You have answered no question yet.",)
    answers = "1 answer" if count == 1 else f"{count} answers"
    found = [f"{right} of {answers} agree{'s' * (right == 1)} with the measurement."] if count else []
    for row in calibration:
        if row.answered:
            title = CONFIDENCE_TITLES[row.confidence].lower()
            found.append(f"When you were {title}, {row.right} of {row.answered} did.")
    certain_and_wrong = calibration[0].answered - calibration[0].right
    if certain_and_wrong:
        found.append(f"Begin with what you were certain of and was measured otherwise: {certain_and_wrong}.")
    if median_log_error is not None:
        found.append(
            f"Your guesses of the factor per layer are off by {short_number(10**median_log_error)}-fold in the median"
            f" ({len(progress.guesses)} in all; 1 is exact)."
        )
    return tuple(found)


def to_markdown(progress: Progress) -> str:
    """The record as Markdown: what was answered about which network, how sure, what was measured, what to look at again."""
    found = summary(progress)
    lines = ["# What you predicted and what was measured", "", *found.sentences, ""]
    if progress.answers:
        lines += ["| question | network | your answer | how sure | measured | agrees |", "|---|---|---|---|---|---|"]
        lines += [_table_row(given) for given in progress.answers] + [""]
    if progress.guesses:
        lines += ["| factor per layer of | network | your guess | measured |", "|---|---|---|---|"]
        lines += [
            f"| {guess.quantity} gradients | {sizes_to_text(guess.spec.network.layer_sizes)}, seed {guess.spec.seed}"
            f" | {short_number(guess.guess)} | {short_number(guess.measured)} |"
            for guess in progress.guesses
        ] + [""]
    if found.look_again:
        lines += ["## To look at again", ""]
        lines += [
            f"- {PAGES[item.page].menu}: {item.page_title} ({', '.join(item.topics)};"
            f" you were {CONFIDENCE_TITLES[item.confidence].lower()})"
            for item in found.look_again
        ] + [""]
    return "\n".join(lines)


def _table_row(given: Answer) -> str:
    network = f"{sizes_to_text(given.specs[0].network.layer_sizes)}, seed {given.seed}"
    cells = [
        given.question,
        network,
        given.option,
        CONFIDENCE_TITLES[given.confidence].lower(),
        " or ".join(sorted(given.right)),
        "yes" if given.is_right else "no",
    ]
    return f"| {' | '.join(cell.replace('_', ' ') for cell in cells)} |"
