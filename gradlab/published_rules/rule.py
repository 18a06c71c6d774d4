"""A rule compares one statistic with one fixed number; a rule set asks several, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gradlab.experiment import ExperimentResult, with_loss_times
from gradlab.published_rules.measures import Measured
from gradlab.text import short_number


class RuleWord(StrEnum):
    """What a rule set calls a measurement."""

    VANISHING = "vanishing"
    EXPLODING = "exploding"
    DEAD = "dead"
    SATURATED = "saturated"
    NON_FINITE = "non-finite"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One comparison: it fires where a number is beyond the threshold."""

    word: RuleWord
    statistic: str
    """What is measured, as it reads in a sentence."""
    measure: Callable[[ExperimentResult], Sequence[Measured]]
    below: float | None = None
    above: float | None = None
    inclusive: bool = False
    """Whether the threshold itself counts."""

    @property
    def threshold(self) -> float:
        """The number the statistic is compared with."""
        return self.below if self.below is not None else self.above or 0.0

    @property
    def sign(self) -> str:
        """How the comparison is written: <, ≤, > or ≥."""
        return ("≤" if self.inclusive else "<") if self.below is not None else ("≥" if self.inclusive else ">")

    def fires(self, value: float) -> bool:
        """Whether a number is beyond the threshold; NaN never is."""
        if self.inclusive and value == self.threshold:
            return True
        return value < self.threshold if self.below is not None else value > self.threshold


@dataclass(frozen=True, kw_only=True)
class RuleVerdict:
    """What one rule set says about one measurement: the first of its rules that fires."""

    rule_set: str
    verdict: RuleWord
    layers: tuple[str, ...]
    """What the rule fires at, as the measurement names it; empty for a rule about the whole network."""
    value: float | None
    """The number farthest beyond the threshold; None where no rule fires."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """A published or packaged detector: where it comes from, and its rules in the order in which they are asked."""

    name: str
    title: str
    source: str
    year: int | None
    """None where it is not known."""
    link: str
    rules: tuple[Rule, ...]
    on_non_finite: RuleWord
    """Its word for NaN or infinity among the weights' and biases' gradients."""
    note: str = ""

    @property
    def statistic(self) -> str:
        """What its rules on the size of gradients measure."""
        return "; ".join(dict.fromkeys(rule.statistic for rule in self.rules))

    @property
    def thresholds(self) -> tuple[str, ...]:
        """One line for each rule, such as `vanishing: mean |gradient| of each parameter < 1e-07`."""
        return tuple(f"{rule.word}: {rule.statistic} {rule.sign} {rule.threshold:g}" for rule in self.rules)

    def judge(self, result: ExperimentResult, loss_factor: float = 1.0) -> RuleVerdict:
        """What the rule set says about the measurement with its loss multiplied by a factor above 0."""
        if loss_factor != 1:
            result = with_loss_times(result, loss_factor)
        broken = [record.parameter for record in result.parameters if record.statistics and record.statistics.nonfinite_count]
        if broken:
            return self._verdict(self.on_non_finite, broken, None, f"NaN or infinity in the gradient of {_named(broken)}.")
        for rule in self.rules:
            hits = [number for number in rule.measure(result) if rule.fires(number.value)]
            if hits:
                worst = (min if rule.below is not None else max)(hits, key=lambda number: number.value)
                sentence = f"{rule.statistic}: {short_number(worst.value)} {rule.sign} {rule.threshold:g}"
                names = [hit.of for hit in hits if hit.of]
                where = f", at {_named([worst.of, *(name for name in names if name != worst.of)])}" if names else ""
                return self._verdict(rule.word, names, worst.value, f"{sentence}{where}.")
        return self._verdict(RuleWord.NONE, [], None, "No number is beyond its threshold.")

    def _verdict(self, word: RuleWord, layers: Sequence[str], value: float | None, sentence: str) -> RuleVerdict:
        return RuleVerdict(rule_set=self.name, verdict=word, layers=tuple(layers), value=value, sentence=sentence)


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
