"""How published and packaged detectors judge the same measurement: rule sets as data, next to the lab's own verdict.

Each was read in its paper, documentation or source. All but one part compare a size with a fixed number, so a constant
factor on the loss, which changes nothing about the network, can change what they say. A gradient is linear in the loss:
a factor needs no second run.
"""

from gradlab.published_rules.flips import flips
from gradlab.published_rules.rule import Rule, RuleSet, RuleVerdict, RuleWord
from gradlab.published_rules.rule_sets import RULE_SETS

__all__ = ["RULE_SETS", "Rule", "RuleSet", "RuleVerdict", "RuleWord", "flips"]
