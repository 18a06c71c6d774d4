"""Every question of the course, by key."""

from __future__ import annotations

from gradlab.lessons.about_methods import METHOD_FIRST_LAYER, METHOD_INPLACE, METHOD_ONE_TENSOR, METHOD_SAME_NUMBER
from gradlab.lessons.about_order import (
    LAST_LAYER,
    VISIT_ORDER,
    WORKED_DIRECTION,
    WORKED_EXAMPLE,
    WORKED_NAME,
    WORKED_START,
    WORKED_TREND,
)
from gradlab.lessons.about_outputs import NONE_MEANS, STORED, TWO_TRENDS, WHICH_IS_WHICH, ZERO_OR_NONE
from gradlab.lessons.about_shortcuts import CHALLENGE_DIRECTION, CHALLENGE_LAYER, WHAT_DIFFERS, WHERE_THEY_PART
from gradlab.lessons.about_stages import BACKWARD_HANDS_ON, FORWARD_HANDS_ON, LOSS_HANDS_ON, ONE_NUMBER
from gradlab.lessons.about_trends import SEEN, SEEN_LARGEST, STEEPEST_STEP, TREND_OF_OUTPUTS, TREND_QUESTION
from gradlab.lessons.question import Question

__all__ = ["QUESTIONS", "WORKED_EXAMPLE", "questions_on"]

QUESTIONS: dict[str, Question] = {
    question.key: question
    for question in (
        TREND_QUESTION,
        SEEN,
        SEEN_LARGEST,
        TREND_OF_OUTPUTS,
        FORWARD_HANDS_ON,
        LOSS_HANDS_ON,
        BACKWARD_HANDS_ON,
        ONE_NUMBER,
        VISIT_ORDER,
        LAST_LAYER,
        STEEPEST_STEP,
        WORKED_DIRECTION,
        WORKED_START,
        WORKED_TREND,
        WORKED_NAME,
        WHAT_DIFFERS,
        WHERE_THEY_PART,
        WHICH_IS_WHICH,
        STORED,
        TWO_TRENDS,
        ZERO_OR_NONE,
        NONE_MEANS,
        METHOD_INPLACE,
        METHOD_SAME_NUMBER,
        METHOD_FIRST_LAYER,
        METHOD_ONE_TENSOR,
        CHALLENGE_LAYER,
        CHALLENGE_DIRECTION,
    )
}
"""In the order of the course."""


def questions_on(page: str) -> tuple[Question, ...]:
    """The questions that belong to a page, in the order in which they are asked."""
    return tuple(question for question in QUESTIONS.values() if question.page == page)
