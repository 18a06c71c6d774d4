"""The challenge: where does the prediction break that both networks shrink steadily?"""

from __future__ import annotations

from dataclasses import dataclass

from gradlab.experiment import ExperimentResult
from gradlab.lessons.about_shortcuts import CHALLENGE_DIRECTION, CHALLENGE_LAYER
from gradlab.lessons.question import Posed

HINTS = (
    "Start at the output end, and go toward the input end layer by layer.",
    "See whether the trend goes on shrinking or levels off. One step up or down is not a trend.",
    "A large value at the output end is expected, with and without shortcuts. Leave the last layer out.",
)
"""To be opened one at a time."""


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """The two things the learner names, as questions about this pair of measurements."""

    layer: Posed
    direction: Posed

    @property
    def why_not(self) -> str:
        """Why the challenge cannot be posed on this pair; "" where it can."""
        return self.layer.why_not

    @property
    def can_be_posed(self) -> bool:
        return not self.why_not


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """What the measurement says to an answer, with the learner's own words as they were given."""

    layer_right: bool
    direction_right: bool
    sentences: tuple[str, ...]
    free_text: str


def challenge(plain: ExperimentResult, shortcut: ExperimentResult) -> Challenge:
    """The challenge on a pair of results, without and with shortcuts, of whatever seed and depth."""
    return Challenge(layer=CHALLENGE_LAYER.pose(plain, shortcut), direction=CHALLENGE_DIRECTION.pose(plain, shortcut))


def check(posed: Challenge, layer: str, direction: str, free_text: str = "") -> Feedback:
    """The answer held against the measurement. `free_text` is not read: it comes back as it is.

    Where the challenge cannot be posed nothing is right, and the one sentence says why. Raises GradlabError for a layer or a
    direction that was not offered.
    """
    if not posed.can_be_posed:
        return Feedback(layer_right=False, direction_right=False, sentences=(posed.why_not,), free_text=free_text)
    layer_right, direction_right = posed.layer.is_right(layer), posed.direction.is_right(direction)
    return Feedback(
        layer_right=layer_right,
        direction_right=direction_right,
        sentences=(
            f"The layer: {_verdict(layer_right)}. You named {posed.layer.option(layer).text}.",
            f"The direction: {_verdict(direction_right)}. You said: {posed.direction.option(direction).text}.",
            posed.layer.explanation,
        ),
        free_text=free_text,
    )


def _verdict(right: bool) -> str:
    return "as measured" if right else "not as measured"
