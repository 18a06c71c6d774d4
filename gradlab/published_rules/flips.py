"""Which verdicts change when the loss is multiplied by a constant."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from gradlab.diagnosis import diagnose
from gradlab.experiment import ExperimentResult, with_loss_times
from gradlab.published_rules.rule_sets import RULE_SETS


def flips(result: ExperimentResult, factors: Sequence[float] = (1e-4, 1.0, 1e4)) -> pandas.DataFrame:
    """One row per rule set, the lab's own last: what it says with the loss multiplied by each factor.

    Columns: `rule_set`, `title`, one per factor under its number (`0.0001`, `1.0`, …) and `flips`, whether the words
    differ. The lab's own is computed from the multiplied readings too.
    """
    rows = []
    measured = [with_loss_times(result, factor) for factor in factors]
    for rule_set in RULE_SETS.values():
        rows.append([rule_set.name, rule_set.title, *(str(rule_set.judge(one).verdict) for one in measured)])
    rows.append(["gradlab", "This lab", *(str(diagnose(one).verdict) for one in measured)])
    table = pandas.DataFrame(rows, columns=["rule_set", "title", *(str(float(factor)) for factor in factors)])
    table["flips"] = [len(set(row[2:])) > 1 for row in rows]
    return table
