"""The capture methods side by side: what each finds where they agree, and where they part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor, nn

from gradlab.capture import STATUS_HELP, OutputGradient, Status, capture_gradients
from gradlab.errors import CaptureError, GradlabError, listed, shorten
from gradlab.lessons.situations import SITUATIONS, WATCHED, Setting, Situation
from gradlab.spec import CaptureMethod

__all__ = ["OUTCOME_HELP", "SITUATIONS", "Cell", "Outcome", "Situation", "by_hand", "side_by_side", "true_norm"]


class Outcome(StrEnum):
    """What a method gives for the output gradients of the watched layer."""

    EQUAL = "equal"
    ABSENT = "absent"
    WITHHELD = "withheld"
    ERROR = "error"
    INCOMPLETE = "incomplete"
    WRONG = "wrong"


OUTCOME_HELP = {
    Outcome.EQUAL: "Every gradient, equal to the last bit to what torch.autograd.grad gives.",
    Outcome.ABSENT: "There is no gradient at this output, and none is reported.",
    Outcome.WITHHELD: "No number, with the reason why the method cannot give the right one.",
    Outcome.ERROR: "The run is broken off with an error.",
    Outcome.INCOMPLETE: "A right gradient, but not all of them, and nothing says so.",
    Outcome.WRONG: "Another gradient, or none although one passed, and nothing says so.",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one method found in one situation."""

    method: CaptureMethod
    situation: str
    outcome: Outcome
    words: str
    value: float | None
    """The L2 norm of what was found, all tensors taken as one vector; None where nothing was."""


def true_norm(situation: str) -> float | None:
    """The L2 norm of the watched layer's output gradients by `torch.autograd.grad`; None where there are none.

    Raises GradlabError for an unknown situation.
    """
    return _norm([gradient for gradient in _build(situation).gradients() if gradient is not None])


def side_by_side(situation: str) -> tuple[Cell, ...]:
    """What the lab's own capture gives for the watched layer, one cell per method, measured now.

    Raises GradlabError for an unknown situation.
    """
    return tuple(_captured(situation, method) for method in CaptureMethod)


def _captured(situation: str, method: CaptureMethod) -> Cell:
    setting = _build(situation)
    try:
        with capture_gradients(setting, method, layers=["first", WATCHED, "last"], keep_gradients=True) as capture:
            setting().backward()
    except CaptureError as error:
        return Cell(method=method, situation=situation, outcome=Outcome.ERROR, words=_sentence(str(error)), value=None)
    records = sorted((r for r in capture.passes[-1].outputs if r.layer == WATCHED), key=lambda r: (r.call, r.output))
    outcome, words = _judged(records, setting.gradients())
    found = [record.gradient for record in records if record.gradient is not None]
    return Cell(method=method, situation=situation, outcome=outcome, words=words, value=_norm(found))


def _judged(records: Sequence[OutputGradient], truth: Sequence[Tensor | None]) -> tuple[Outcome, str]:
    withheld = [record for record in records if record.status is Status.UNSUPPORTED]
    if withheld:
        return Outcome.WITHHELD, _sentence(withheld[0].note)
    if not any(gradient is not None for gradient in [*truth, *(record.gradient for record in records)]):
        return Outcome.ABSENT, STATUS_HELP[records[0].status]
    return _compared([record.gradient for record in records], truth)


# --- by hand ----------------------------------------------------------------------------------------------------------

Found = dict[str, Tensor | None]


def by_hand(situation: str) -> tuple[Cell, ...]:
    """What the usual lines for each method give for the watched layer, one cell per method, measured now.

    They are those that every tutorial has: one entry per layer, the output taken for a tensor. Raises GradlabError for an
    unknown situation.
    """
    return tuple(_tried(situation, method, pattern) for method, pattern in _PATTERNS.items())


def _tensor_hook(setting: Setting, found: Found) -> Callable[[], None]:
    def tensor_hook(gradient: Tensor) -> None:
        found[WATCHED] = gradient.clone()

    def forward_hook(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.register_hook(tensor_hook)

    setting.middle.register_forward_hook(forward_hook)
    return lambda: None


def _retained(setting: Setting, found: Found) -> Callable[[], None]:
    kept: dict[str, Tensor] = {}

    def forward_hook(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        kept[WATCHED] = output

    setting.middle.register_forward_hook(forward_hook)
    return lambda: found.update({name: tensor.grad for name, tensor in kept.items()})


def _full_backward_hook(setting: Setting, found: Found) -> Callable[[], None]:
    def backward_hook(module: nn.Module, grad_input: object, grad_output: tuple[Tensor, ...]) -> None:
        found[WATCHED] = grad_output[0].clone()

    setting.middle.register_full_backward_hook(backward_hook)
    return lambda: None


_PATTERNS: dict[CaptureMethod, Callable[[Setting, Found], Callable[[], None]]] = {
    CaptureMethod.TENSOR_HOOKS: _tensor_hook,
    CaptureMethod.RETAIN_GRAD: _retained,
    CaptureMethod.FULL_BACKWARD_HOOKS: _full_backward_hook,
}


def _tried(situation: str, method: CaptureMethod, pattern: Callable[[Setting, Found], Callable[[], None]]) -> Cell:
    setting, found = _build(situation), Found()
    read = pattern(setting, found)
    try:
        setting().backward()
    except (RuntimeError, AttributeError) as error:
        return Cell(method=method, situation=situation, outcome=Outcome.ERROR, words=_in_plain_words(error), value=None)
    read()
    gradient = found.get(WATCHED)
    outcome, words = _compared([gradient], setting.gradients())
    became = setting.became()
    if outcome is Outcome.WRONG and gradient is not None and became is not None and torch.equal(gradient, became):
        words = "The gradient of what the tensor became in place, not of what the layer returned; nothing says so."
    value = None if gradient is None else _norm([gradient])
    return Cell(method=method, situation=situation, outcome=outcome, words=words, value=value)


_PLAIN_WORDS = {
    "BackwardHookFunction": "The forward fails: the hook has wrapped the output, and nothing may change it in place then.",
    "has no attribute": "The forward fails: the layer returns a tuple, and a tuple takes no hook and retains no gradient.",
    "cannot register a hook": "The forward fails: the output is not tracked, and PyTorch puts no hook on such a tensor.",
    "can't retain_grad": "The forward fails: the output is not tracked, so it has no gradient to retain.",
}


def _in_plain_words(error: Exception) -> str:
    return next((words for sign, words in _PLAIN_WORDS.items() if sign in str(error)), f"The run fails: {error}")


# --- comparing --------------------------------------------------------------------------------------------------------


def _compared(found: Sequence[Tensor | None], truth: Sequence[Tensor | None]) -> tuple[Outcome, str]:
    """The outcome of a comparison to the last bit, and what it means."""
    wanted = [gradient for gradient in truth if gradient is not None]
    got = [gradient for gradient in found if gradient is not None]
    if not got and not wanted:
        return Outcome.ABSENT, "Nothing is captured, as there is no gradient; nothing says why."
    if not got:
        return Outcome.WRONG, "None, although a gradient passed."
    if len(got) == len(wanted) and all(map(torch.equal, got, wanted)):
        return Outcome.EQUAL, OUTCOME_HELP[Outcome.EQUAL]
    place = next((place for place, gradient in enumerate(wanted, start=1) if torch.equal(gradient, got[0])), None)
    if len(got) < len(wanted) and place is not None:
        return Outcome.INCOMPLETE, f"The gradient of tensor {place} of {len(wanted)}; nothing says that there are more."
    return Outcome.WRONG, "Another gradient than that of the layer's output, and nothing says so."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _norm(gradients: Sequence[Tensor]) -> float | None:
    return math.hypot(*(float(gradient.double().norm()) for gradient in gradients)) if gradients else None


def _build(situation: str) -> Setting:
    if situation not in SITUATIONS:
        raise GradlabError(f"there is no situation {shorten(situation)}; there are {listed(SITUATIONS)}")
    return SITUATIONS[situation].build()
