"""A question about a measurement: what is asked, what can be answered, and which answers the numbers bear out.

Nothing about a question is settled in prose: its text, its options and its right answers are computed from the results it
is posed on, so that it stays true for another network, another seed, another depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gradlab.errors import GradlabError, listed, shorten
from gradlab.experiment import ExperimentResult
from gradlab.spec import ExperimentSpec


@dataclass(frozen=True, kw_only=True)
class Option:
    """One answer to choose. `refutation` is what to say when it was chosen and is not right.

    It has three parts: what one may think, why that fails, what is so instead.
    """

    key: str
    text: str
    refutation: str


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question with one function for each of its parts, all of them called with the results it is posed on.

    `why_not` is a sentence where the results leave nothing to ask, else "". A `pair` question takes the result without and
    the result with shortcuts, the others take one. `never_right` names the options that no measurement can make right, each
    with the reason.
    """

    key: str
    page: str
    covers: tuple[str, ...]
    text: Callable[..., str]
    options: Callable[..., tuple[Option, ...]]
    scorer: Callable[..., frozenset[str]]
    explanation: Callable[..., str]
    why_not: Callable[..., str]
    pair: bool = False
    reads_a_chart: bool = False
    """Whether a chart is needed to answer it; the others ask for a prediction, which a chart would give away."""
    never_right: Mapping[str, str] = field(default_factory=dict)

    def pose(self, *results: ExperimentResult) -> Posed:
        """This question about these results.

        Raises GradlabError where one result is given and two are needed, or the other way round.
        """
        if len(results) != 1 + self.pair:
            wanted = "two results, without and with shortcuts" if self.pair else "one result"
            raise GradlabError(f"The question {self.key!r} is posed on {wanted}; it was given {len(results)}.")
        why_not = self.why_not(*results)
        return Posed(
            question=self,
            specs=tuple(result.spec for result in results),
            text="" if why_not else self.text(*results),
            options=() if why_not else self.options(*results),
            right=frozenset() if why_not else self.scorer(*results),
            explanation="" if why_not else self.explanation(*results),
            why_not=why_not,
        )


@dataclass(frozen=True, kw_only=True)
class Posed:
    """A question about one measurement, with everything the page shows before and after the answer."""

    question: Question
    specs: tuple[ExperimentSpec, ...]
    text: str
    options: tuple[Option, ...]
    right: frozenset[str]
    """The keys of all options that the measurement bears out."""
    explanation: str
    """What was measured, in one or a few sentences: for after the answer."""
    why_not: str
    """Why the question cannot be asked about this measurement; "" where it can."""

    @property
    def can_be_asked(self) -> bool:
        return not self.why_not

    def option(self, key: str) -> Option:
        """The option of that key; raises GradlabError where there is none."""
        for option in self.options:
            if option.key == key:
                return option
        allowed = listed(option.key for option in self.options) if self.options else f"none: {self.why_not}"
        raise GradlabError(f"{shorten(key)} is no answer to {self.question.key!r}; allowed: {allowed}")

    def is_right(self, key: str) -> bool:
        """Whether the measurement bears this answer out; raises GradlabError for an answer that was not offered."""
        return self.option(key).key in self.right

    def refutation(self, key: str) -> str:
        """What to say to this answer: "" if it is right."""
        return "" if self.is_right(key) else self.option(key).refutation

    def reply(self, key: str) -> str:
        """What to show after this answer: its refutation, or the explanation if it is right. Both carry the numbers."""
        return self.refutation(key) or self.explanation


def fixed(value: str) -> Callable[..., str]:
    """A part of a question that is the same for every measurement."""
    return lambda *results: value
