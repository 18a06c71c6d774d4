"""The common-mistakes checklist: why each reading fails, what to do instead, and a demonstration that is run live."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gradlab.errors import GradlabError, listed, shorten
from gradlab.lessons.demonstrations import Demonstration, capturing, demonstrate, reading
from gradlab.lessons.demonstrations.base import Show
from gradlab.spec import ExperimentSpec


class Lesson(StrEnum):
    """Where a mistake is made."""

    READING = "reading"
    CAPTURING = "capturing"


LESSON_TITLES = {
    Lesson.READING: "Reading the measurement",
    Lesson.CAPTURING: "Capturing gradients",
}


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A common mistake: why it fails and what to do instead, in plain text."""

    title: str
    lesson: Lesson
    why: str
    instead: str
    show: Show

    def demonstrate(self, spec: ExperimentSpec) -> Demonstration:
        """The mistake made live on the experiment, or on the reference where `Demonstration.note` says why."""
        return demonstrate(self.show, spec)


MISTAKES: dict[str, Mistake] = {
    "top_to_bottom": Mistake(
        title="Reading the list from top to bottom",
        lesson=Lesson.READING,
        why="The list is printed from the first layer to the last. The gradient starts at the loss and travels the other way.",
        instead="Start at the last line and go up: that is the order in which gradients arrive.",
        show=reading.top_to_bottom,
    ),
    "large_last_layer": Mistake(
        title="Taking a large gradient at the output end for a problem",
        lesson=Lesson.READING,
        why="The last layer stands next to the loss and tends to have a larger gradient, with shortcuts too.",
        instead="Judge the trend over the hidden layers toward the first one.",
        show=reading.large_last_layer,
    ),
    "sign_as_strength": Mistake(
        title="Reading the sign as strength",
        lesson=Lesson.READING,
        why="The sign says in which direction the loss changes. In a mean with signs, positive and negative entries cancel.",
        instead="Take absolute values first, then the mean.",
        show=reading.sign_as_strength,
    ),
    "zero_target_as_task": Mistake(
        title="Taking the zero target for a task",
        lesson=Lesson.READING,
        why="The target is there to make an error signal. Another target gives other numbers for the same network.",
        instead="Read the numbers as sensitivity to this one error signal, and keep the target when you compare networks.",
        show=reading.zero_target_as_task,
    ),
    "two_changes_at_once": Mistake(
        title="Changing two things between two runs",
        lesson=Lesson.READING,
        why="Two networks built after one seeding have different weights: the second goes on where the first stopped drawing.",
        instead="Set the seed again before each network, and keep input, target, sizes and measuring function.",
        show=reading.two_changes_at_once,
    ),
    "weight_gradient_for_output": Mistake(
        title="Reading weight.grad as the output gradient",
        lesson=Lesson.CAPTURING,
        why="A weight gradient says how the loss changes with the weights. It has the weight's shape and another size.",
        instead="Capture the gradient at the layer's output with a hook, and compare its shape with the output's.",
        show=capturing.weight_gradient_for_output,
    ),
    "non_leaf_gradient": Mistake(
        title="Reading .grad of a hidden tensor without retain_grad()",
        lesson=Lesson.CAPTURING,
        why="Backward fills .grad for leaf tensors, such as weights. What flows through a hidden tensor is let go.",
        instead="Call retain_grad() on the tensor before backward, or put a tensor hook on it.",
        show=capturing.non_leaf_gradient,
    ),
    "hooks_left_behind": Mistake(
        title="Registering hooks and never removing them",
        lesson=Lesson.CAPTURING,
        why="A hook stays on its module. Each run that registers another one adds a report and holds its tensors in memory.",
        instead="Keep the handles and remove them after the run, also when the run fails: in a finally or a with block.",
        show=capturing.hooks_left_behind,
    ),
    "off_the_path": Mistake(
        title="Expecting a gradient where the loss does not depend",
        lesson=Lesson.CAPTURING,
        why="Backward walks from the loss to what it was computed from. Nothing arrives anywhere else, and hooks do not fire.",
        instead="Read None as: not on the path to this loss. Follow the tensor forward and see where it leaves the path.",
        show=capturing.off_the_path,
    ),
    "gradients_add_up": Mistake(
        title="Letting gradients add up over backward calls",
        lesson=Lesson.CAPTURING,
        why="Backward adds to what .grad already holds: k calls on the same loss give k times the value.",
        instead="Call zero_grad() before each backward call you want to read.",
        show=capturing.gradients_add_up,
    ),
    "sum_for_mean": Mistake(
        title="Summing the loss instead of averaging it",
        lesson=Lesson.CAPTURING,
        why="A sum is the mean times the number of elements, and so is every gradient of it.",
        instead="Check the reduction of the loss before you compare sizes. A trend over layers does not change with it.",
        show=capturing.sum_for_mean,
    ),
    "read_too_late": Mistake(
        title="Reading after zeroing or clipping, or while the loss is scaled",
        lesson=Lesson.CAPTURING,
        why="Clipping and zeroing change .grad itself. A scaled loss scales every gradient until it is unscaled.",
        instead="Read right after backward, before optimiser and clipping, and divide by the scale.",
        show=capturing.read_too_late,
    ),
}


def checklist_markdown(done: Mapping[str, Demonstration]) -> str:
    """The checklist as a Markdown document; an item is ticked, with its numbers, where `done` holds its demonstration.

    Raises GradlabError for a key that is not in MISTAKES.
    """
    for key in done:
        if key not in MISTAKES:
            raise GradlabError(f"there is no mistake {shorten(key)}; there are {listed(MISTAKES)}")
    ran = sum(key in done for key in MISTAKES)
    lines = ["# Common mistakes with gradients", "", f"{ran} of {len(MISTAKES)} demonstrations run. A tick: you ran it."]
    for lesson in Lesson:
        lines += ["", f"## {LESSON_TITLES[lesson]}", ""]
        for key, mistake in MISTAKES.items():
            if mistake.lesson is lesson:
                lines += _item(mistake, done.get(key))
    return "\n".join(lines) + "\n"


def _item(mistake: Mistake, demonstration: Demonstration | None) -> list[str]:
    box = " " if demonstration is None else "x"
    lines = [f"- [{box}] **{escaped(mistake.title)}**", f"  - Why it fails: {escaped(mistake.why)}"]
    lines.append(f"  - Instead: {escaped(mistake.instead)}")
    if demonstration is not None:
        wrong, right = demonstration.wrong, demonstration.right
        lines += [
            f"  - Mistaken: {escaped(f'{wrong.label}: {wrong.text}')}",
            f"  - Right: {escaped(f'{right.label}: {right.text}')}",
            f"  - {escaped(demonstration.damage)}",
        ]
        lines += [f"  - {escaped(demonstration.note)}"] if demonstration.note else []
        settings = ", ".join(f"{name} {value}" for name, value in demonstration.spec.to_dict().items())
        lines.append(f"  - Experiment: {escaped(settings)}")
    return lines


def escaped(text: str) -> str:
    """The text on one line, with every character that Markdown or HTML would take for a mark made literal."""
    literal = re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([#+.)-])", r"\1\\\2", literal)  # at the beginning these make headings and lists
