"""Widespread claims about gradients: each with a prediction, a measurement on the spot, and the published figure.

Not all of them are wrong: whether a claim holds is decided by the measurement, not here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas

from gradlab.errors import GradlabError, shorten
from gradlab.lessons import myth_runs
from gradlab.lessons.myth_trails import MythResult, Run, claim_frame, layer_names
from gradlab.spec import MAX_SEED

AGREE, DISAGREE = "agree", "disagree"
OPTIONS = {AGREE: "I agree", DISAGREE: "I disagree"}


@dataclass(frozen=True, kw_only=True)
class Myth:
    """A claim, what it comes down to as a factor per layer, and how it is measured."""

    title: str
    """The claim, as one hears it."""
    menu: str
    """Its short name."""
    setup: str
    """What is measured, and what the claim comes down to there."""
    reading: str
    """What is drawn, relative to the output end."""
    claimed: float
    """The factor per layer toward the input that the claim comes down to."""
    hidden: int
    """The hidden layers that are compared."""
    published: float
    """The published factor per layer."""
    published_as: str
    """How it is written there, and under which condition."""
    source: str
    """Who found it, where, and when."""
    link: str
    why: str
    """The reason, to be read once the measurement is on the screen."""
    measure: Run
    seed_count: int

    @property
    def options(self) -> dict[str, str]:
        """What can be answered: key -> text."""
        return OPTIONS

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that are compared, in order of arrival."""
        return layer_names(self.hidden)

    @property
    def claim(self) -> pandas.DataFrame:
        """The claim as a line along the layers, with the columns of `MythResult.frame`."""
        return claim_frame(self.layers, self.claimed)

    def run(self, seed: int = 0) -> MythResult:
        """The claim held against `seed_count` measurements, at this seed and those after it.

        Takes about half a second. Raises GradlabError for a seed that is no whole number from 0 to 2³² − 1.
        """
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            raise GradlabError(f"seed = {shorten(seed)} is not possible; a whole number from 0 to {MAX_SEED}")
        return self.measure([(seed + place) % (MAX_SEED + 1) for place in range(self.seed_count)])

    def is_right(self, option: str, result: MythResult) -> bool:
        """Whether the answer is what was measured; raises GradlabError for an option that is none."""
        if option not in OPTIONS:
            raise GradlabError(f"there is no answer {shorten(option)} here; there are {AGREE} and {DISAGREE}")
        return (option == AGREE) == result.holds


MYTHS: dict[str, Myth] = {
    "batch_norm": Myth(
        title="BatchNorm keeps gradients from exploding.",
        menu="BatchNorm",
        setup="Sixteen ReLU layers before any training, He initialisation, 256 samples. If the claim holds, the gradient does"
        " not grow toward the input: factor 1 per layer.",
        reading="output gradient",
        claimed=1.0,
        hidden=15,
        published=math.sqrt(math.pi / (math.pi - 1)),
        published_as="√(π/(π − 1)) per layer, in wide layers and large batches",
        source="Yang, Pennington, Rao, Sohl-Dickstein & Schoenholz: A Mean Field Theory of Batch Normalization, ICLR 2019",
        link="https://arxiv.org/abs/1902.08129",
        why="ReLU passes the gradient at half of the units, but only 34 % of the signal's variance. BatchNorm divides by the"
        " root of what is left of the signal, forward and backward: that gives the gradient more than ReLU took. The scale of"
        " the weights cancels, so no scale at initialisation prevents it; training can. Only the first layer, whose input"
        " no ReLU has cut, takes a smaller step.",
        measure=myth_runs.batch_norm,
        seed_count=3,
    ),
    "shortcuts": Myth(
        title="With shortcuts the gradient stays the same in every layer.",
        menu="Shortcuts",
        setup="Twenty ReLU layers with shortcuts, PyTorch's default initialisation. If the claim holds: factor 1 per layer.",
        reading="output gradient",
        claimed=1.0,
        hidden=19,
        published=math.sqrt(1 + 1 / 6),
        published_as="√(1 + χ₁) per layer with χ₁ = 1/6, for a layer taken as independent of its shortcut",
        source="Yang & Schoenholz: Mean Field Residual Networks: On the Edge of Chaos, NeurIPS 2017",
        link="https://arxiv.org/abs/1712.08969",
        why="A shortcut hands the gradient on unchanged, and the layer beside it adds its own share."
        " With small weights it grows slowly, with He initialisation by about one half per layer.",
        measure=myth_runs.shortcuts,
        seed_count=3,
    ),
    "he": Myth(
        title="He initialisation holds the gradient's size through ReLU layers.",
        menu="He",
        setup="Twenty ReLU layers of 512 units. If the claim holds: factor 1 per layer.",
        reading="output gradient",
        claimed=1.0,
        hidden=19,
        published=1.0,
        published_as="σ_w² = 2 makes the factor √(σ_w²/2) = 1",
        source="He, Zhang, Ren & Sun: Delving Deep into Rectifiers, ICCV 2015",
        link="https://arxiv.org/abs/1502.01852",
        why="ReLU lets the gradient through at half of the units. Weights with twice the variance make up for that half. It"
        " holds on average over seeds; in a narrow and deep network one seed can drift far from it.",
        measure=myth_runs.he,
        seed_count=3,
    ),
    "width": Myth(
        title="Wider layers cure vanishing gradients.",
        menu="Width",
        setup="Twenty ReLU layers, PyTorch's default initialisation, once with 64 and once with 256 units per layer. If the"
        " claim holds, the wide network comes near factor 1.",
        reading="output gradient",
        claimed=1.0,
        hidden=19,
        published=math.sqrt(1 / 6),
        published_as="√(1/6) per layer at any width; the scatter of its logarithm falls like 1/√width",
        source="Hanin & Nica: Products of Many Large Random Matrices and Gradients in Deep Neural Networks, 2018",
        link="https://arxiv.org/abs/1812.05994",
        why="The initialisation divides the weights' variance by the width, so a wider layer adds up more terms that are"
        " smaller: the factor per layer stays. With more terms chance averages out, and seeds differ less.",
        measure=myth_runs.width,
        seed_count=20,
    ),
    "critical": Myth(
        title="At the critical point the gradient is flat.",
        menu="Critical point",
        setup="Twenty tanh layers of 512 units at σ_w = 1, σ_b = 0, where mean-field theory has χ₁ = 1. If the claim holds:"
        " factor 1 per layer.",
        reading="output gradient",
        claimed=1.0,
        hidden=19,
        published=1.0,
        published_as="√χ₁ = 1, in the limit of many layers",
        source="Schoenholz, Gilmer, Ganguli & Sohl-Dickstein: Deep Information Propagation, ICLR 2017",
        link="https://arxiv.org/abs/1611.01232",
        why="χ₁ = 1 belongs to the variance the signal settles at. At this critical point that variance is 0 and the signal"
        " falls toward it more and more slowly. Until it is there the slope of tanh is below 1, and every layer takes"
        " some away.",
        measure=myth_runs.critical,
        seed_count=3,
    ),
    "adam": Myth(
        title="A tiny gradient means that the layer does not learn.",
        menu="Adam",
        setup="Six sigmoid layers, one optimiser step. If the claim holds, the step shrinks toward the input as the"
        " gradient does, by the factor √(1/48) = 0.144 per layer, under Adam too.",
        reading="relative step of the weights",
        claimed=math.sqrt(1 / 48),
        hidden=5,
        published=1.0,
        published_as="the size of a step does not depend on the scale of the gradient",
        source="Kingma & Ba: Adam: A Method for Stochastic Optimization, ICLR 2015",
        link="https://arxiv.org/abs/1412.6980",
        why="Adam divides each gradient by its own recent size, so the step is about the learning rate, however small the"
        " gradient is. That ends near 1e-8, the ε it adds: gradients far below it move nothing under Adam either. And a step"
        " of full size need not be a step in a useful direction.",
        measure=myth_runs.adam,
        seed_count=4,
    ),
    "weights": Myth(
        title="Where output gradients shrink, weight gradients shrink too.",
        menu="Weight gradients",
        setup="Twelve ReLU layers without biases, one sample, σ_w² = 1/3 as PyTorch has it. The output gradients shrink by"
        " √(1/6) = 0.408 per layer. If the claim holds, so do the weight gradients.",
        reading="gradient",
        claimed=math.sqrt(1 / 6),
        hidden=11,
        published=1.0,
        published_as="⟨W, ∂L/∂W⟩ is the same in every layer",
        source="Du, Hu & Lee: Algorithmic Regularization in Learning Deep Homogeneous Models, NeurIPS 2018",
        link="https://arxiv.org/abs/1806.00900",
        why="A weight gradient is the output gradient times what went into the layer. Without biases, multiplying one layer's"
        " weights by a number multiplies the network's output by it, whichever layer it is: all layers have the same say."
        " What shrinks backward was larger forward.",
        measure=myth_runs.weights,
        seed_count=4,
    ),
}
"""Key -> claim, in the order of the page."""
