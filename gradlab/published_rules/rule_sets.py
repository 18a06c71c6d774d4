"""The rule sets, each with its source; their figures were read in the paper, the documentation or the source code."""

from __future__ import annotations

from gradlab.published_rules.measures import (
    first_over_last,
    first_over_last_if_small,
    global_norm,
    nonzero_global_norm,
    of_parameters,
    of_units,
    of_weights,
    silent,
    zeros,
)
from gradlab.published_rules.rule import Rule, RuleSet, RuleWord
from gradlab.spec import Activation

MEAN_ABS = "mean |gradient| of a weight or bias"
MAX_ABS = "largest |gradient| in a weight or bias"
NORM = "gradient norm of a weight or bias"
RATIO = "gradient norm of the first weight over that of the last"

RULE_SETS: dict[str, RuleSet] = {
    rule_set.name: rule_set
    for rule_set in (
        RuleSet(
            name="sagemaker",
            title="SageMaker Debugger",
            source="Amazon SageMaker Developer Guide: built-in rules VanishingGradient, ExplodingTensor, DeadRelu, "
            "SaturatedActivation",
            year=2019,
            link="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-rules.html",
            on_non_finite=RuleWord.EXPLODING,
            rules=(
                Rule(word=RuleWord.VANISHING, statistic=MEAN_ABS, measure=of_parameters("mean_abs"), below=1e-7),
                Rule(
                    word=RuleWord.DEAD,
                    statistic="share of a layer's ReLU units active at less than 1 % of the samples",
                    measure=of_units("rarely_active_fraction", Activation.RELU),
                    above=0.5,
                ),
                Rule(
                    word=RuleWord.SATURATED,
                    statistic="share of a layer's activation inputs where tanh (beyond ±9.4999) or sigmoid (below −23 or "
                    "above 16.99999) is flat",
                    measure=of_units("saturated_fraction", Activation.TANH, Activation.SIGMOID),
                    above=0.5,
                ),
            ),
            note="ExplodingTensor asks for NaN or infinity only. The rules are documented, their source is not public.",
        ),
        RuleSet(
            name="autotrainer",
            title="AUTOTRAINER",
            source="Zhang, Zhai, Ma, Shen: AUTOTRAINER: An Automatic DNN Training Problem Detection and Repair System, "
            "ICSE 2021",
            year=2021,
            link="https://github.com/shiningrain/AUTOTRAINER",
            on_non_finite=RuleWord.EXPLODING,
            rules=(
                Rule(
                    word=RuleWord.DEAD,
                    statistic="share of exact zeros among all entries",
                    measure=zeros,
                    above=0.7,
                    inclusive=True,
                ),
                Rule(word=RuleWord.EXPLODING, statistic=RATIO, measure=first_over_last, above=70),
                Rule(
                    word=RuleWord.VANISHING,
                    statistic=f"{RATIO} (where the first is below 1e-4)",
                    measure=first_over_last_if_small,
                    below=1e-3,
                ),
            ),
            note="The tool asks these only while the accuracy stays low. Its ratio alone would not depend on the loss; the "
            "second condition of vanishing does.",
        ),
        RuleSet(
            name="deepdiagnosis",
            title="DeepDiagnosis",
            source="Wardat, Cruz, Le, Rajan: DeepDiagnosis: Automatically Diagnosing Faults and Recommending Actionable "
            "Fixes in Deep Learning Programs, ICSE 2022",
            year=2022,
            link="https://github.com/DeepDiagnosis/ICSE2022",
            on_non_finite=RuleWord.EXPLODING,
            rules=(
                Rule(
                    word=RuleWord.VANISHING,
                    statistic="mean |gradient| of a weight",
                    measure=of_weights("mean_abs"),
                    below=1e-7,
                ),
                Rule(
                    word=RuleWord.DEAD,
                    statistic="share of a layer's ReLU outputs that are zero",
                    measure=silent,
                    above=0.7,
                    inclusive=True,
                ),
            ),
            note="Its rules on saturation and on the range and variance of outputs are left out.",
        ),
        RuleSet(
            name="torchdiag",
            title="torchdiag 0.1",
            source="torchdiag 0.1.0 on PyPI: check_gradients, check_dead_neurons",
            year=2026,
            link="https://pypi.org/project/torchdiag/0.1.0/",
            on_non_finite=RuleWord.NON_FINITE,
            rules=(
                Rule(word=RuleWord.EXPLODING, statistic=MAX_ABS, measure=of_parameters("max_abs"), above=100),
                Rule(word=RuleWord.VANISHING, statistic=MAX_ABS, measure=of_parameters("max_abs"), below=1e-7),
                Rule(
                    word=RuleWord.DEAD,
                    statistic="share of a layer's ReLU units that are zero at every sample (critical from 0.5)",
                    measure=of_units("dead_fraction", Activation.RELU),
                    above=0.2,
                ),
            ),
            note="In the package NaN passes both comparisons unnoticed and infinity counts as exploding; here both are named.",
        ),
        RuleSet(
            name="trainpulse",
            title="trainpulse 0.4",
            source="trainpulse 0.4.0 on PyPI: GradientDetector",
            year=2026,
            link="https://pypi.org/project/trainpulse/0.4.0/",
            on_non_finite=RuleWord.NON_FINITE,
            rules=(
                Rule(word=RuleWord.EXPLODING, statistic="norm of all gradients together", measure=global_norm, above=100),
                Rule(
                    word=RuleWord.VANISHING,
                    statistic="norm of all gradients together (if not zero)",
                    measure=nonzero_global_norm,
                    below=1e-7,
                ),
            ),
            note="Its detectors of changes over training steps need more than one measurement and are left out.",
        ),
        RuleSet(
            name="gradscope",
            title="gradscope 0.1",
            source="gradscope 0.1.0 on PyPI: default alert thresholds",
            year=2026,
            link="https://pypi.org/project/gradscope/0.1.0/",
            on_non_finite=RuleWord.NON_FINITE,
            rules=(
                Rule(word=RuleWord.EXPLODING, statistic=NORM, measure=of_parameters("norm"), above=1e3),
                Rule(word=RuleWord.VANISHING, statistic=NORM, measure=of_parameters("norm"), below=1e-8),
            ),
            note="Its alerts on changes over training steps are left out.",
        ),
        RuleSet(
            name="traintools",
            title="traintools 0.6",
            source="traintools 0.6.2 on PyPI: gradient health",
            year=2026,
            link="https://pypi.org/project/traintools/0.6.2/",
            on_non_finite=RuleWord.NON_FINITE,
            rules=(
                Rule(word=RuleWord.EXPLODING, statistic=NORM, measure=of_parameters("norm"), above=1e3, inclusive=True),
                Rule(word=RuleWord.VANISHING, statistic=NORM, measure=of_parameters("norm"), below=1e-12, inclusive=True),
            ),
            note="Its rules on updates need a learning rate and are left out.",
        ),
        RuleSet(
            name="tensight",
            title="tensight",
            source="tensight on GitHub: GradientDetector",
            year=None,
            link="https://github.com/JonathanDray/tensight",
            on_non_finite=RuleWord.NON_FINITE,
            rules=(
                Rule(
                    word=RuleWord.EXPLODING,
                    statistic="largest |gradient| in a weight",
                    measure=of_weights("max_abs"),
                    above=1e3,
                ),
                Rule(
                    word=RuleWord.VANISHING,
                    statistic="mean |gradient| of a weight",
                    measure=of_weights("mean_abs"),
                    below=1e-7,
                ),
            ),
        ),
    )
}
"""Name -> rule set, in the order of a table."""
