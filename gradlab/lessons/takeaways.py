"""What to take home: each claim with a measurement beside it that says whether it holds here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from gradlab.capture import Status
from gradlab.diagnosis import Verdict
from gradlab.experiment import ExperimentResult
from gradlab.lessons.about_methods import METHOD_INPLACE, METHOD_ONE_TENSOR
from gradlab.lessons.about_order import arrivals
from gradlab.lessons.about_outputs import two_shapes
from gradlab.lessons.about_stages import ONE_NUMBER
from gradlab.lessons.trend import Trend, diagnosis_of, readings, trend
from gradlab.spec import CaptureMethod
from gradlab.text import short_number


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was measured, and whether it bears the claim out; `holds` is None where it cannot tell."""

    holds: bool | None
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Takeaway:
    """A claim, and the check of it on a pair of results, without and with shortcuts."""

    key: str
    text: str
    covers: str
    check: Callable[[ExperimentResult, ExperimentResult], Evidence]


def _one_number(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    posed = ONE_NUMBER.pose(plain)
    return Evidence(
        holds=posed.is_right("mean_abs") if posed.can_be_asked else None, sentence=posed.explanation or posed.why_not
    )


def _last_to_first(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    order = arrivals(plain)
    depths = [int(layer.split(".")[1]) for layer in order]
    if len(depths) < 2:
        return Evidence(holds=None, sentence="One layer has no order.")
    return Evidence(
        holds=depths == sorted(depths, reverse=True),
        sentence=f"The first gradient arrived at `{order[0]}`, the last at `{order[-1]}`.",
    )


def _trend_is(result: ExperimentResult, wanted: Trend) -> Evidence:
    found = trend(result)
    return Evidence(holds=None if found is None else found is wanted, sentence=diagnosis_of(result).sentence)


def _large_at_the_output_end(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    if trend(plain) is None or trend(shortcut) is None:
        return Evidence(holds=None, sentence="There is no trend to hold it against.")
    sentences, larger = [], []
    for name, result in (("Without", plain), ("With", shortcut)):
        last, neighbour = readings(result)[:2]
        larger.append(last.value > neighbour.value)
        verdict = str(diagnosis_of(result).verdict)
        ratio = short_number(last.value / neighbour.value) if not (last.mark or neighbour.mark) else "–"
        sentences.append(f"{name} shortcuts the last layer reads {ratio} times its neighbour, and the trend is {verdict}.")
    # No warning sign: large too where nothing vanishes or explodes, or not large where something does. Where the two go
    # together in both networks, that is no evidence against it.
    apart = any(
        large != (diagnosis_of(result).verdict in _BAD) for large, result in zip(larger, (plain, shortcut), strict=True)
    )
    return Evidence(holds=apart or None, sentence=" ".join(sentences))


_BAD = (Verdict.VANISHING, Verdict.WEAKENING, Verdict.GROWING, Verdict.EXPLODING)


def _two_gradients(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    shapes = two_shapes(plain)
    if shapes is None:
        return Evidence(holds=None, sentence="Every weight of this network has the very shape of its output.")
    layer, weight, output = shapes
    words = [" × ".join(map(str, shape)) for shape in (weight, output)]
    return Evidence(holds=True, sentence=f"At `{layer}`: weight gradient {words[0]}, output gradient {words[1]}.")


def _every_layer(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    if plain.spec.capture_method is not CaptureMethod.TENSOR_HOOKS:
        return Evidence(holds=None, sentence=f"This was measured with {plain.spec.capture_method}; choose tensor_hooks to see.")
    read = [record for record in plain.outputs if record.statistics is not None]
    return Evidence(
        holds=len(read) == len(plain.outputs),
        sentence=f"Tensor hooks read {len(read)} of {len(plain.outputs)} layer outputs in one backward pass.",
    )


def _harder_to_reason_about(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    posed = METHOD_INPLACE.pose(plain)
    return Evidence(holds="full_backward_hooks" not in posed.right, sentence=posed.explanation)


def _one_tensor(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    posed = METHOD_ONE_TENSOR.pose(plain)
    return Evidence(holds="retain_grad" in posed.right, sentence=posed.explanation)


def _what_to_watch_for(plain: ExperimentResult, shortcut: ExperimentResult) -> Evidence:
    counts = Counter(str(record.status) for result in (plain, shortcut) for record in result.outputs)
    unusual = sum(counts.values()) - counts[Status.OK]
    listed = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    end = "None of them is out of the ordinary." if not unusual else f"{unusual} of them are worth a look."
    return Evidence(holds=None, sentence=f"The layer outputs of both networks: {listed}. {end}")


TAKEAWAYS: dict[str, Takeaway] = {
    takeaway.key: takeaway
    for takeaway in (
        Takeaway(
            key="one_number",
            covers="A10",
            text="The measurement makes one number of each layer's weight gradient: the mean of its absolute values.",
            check=_one_number,
        ),
        Takeaway(
            key="last_to_first",
            covers="A10",
            text="Read it from the last layer to the first, the way the gradient travels.",
            check=_last_to_first,
        ),
        Takeaway(
            key="shrinks",
            covers="A10",
            text="Without shortcuts the trend over the hidden layers shrinks toward the input end, if not at every step.",
            check=lambda plain, shortcut: _trend_is(plain, Trend.SMALLER),
        ),
        Takeaway(
            key="levels_off",
            covers="A10",
            text="With shortcuts the trend levels off.",
            check=lambda plain, shortcut: _trend_is(shortcut, Trend.SAME),
        ),
        Takeaway(
            key="large_last",
            covers="A10",
            text="A large value at the output end is no warning sign by itself.",
            check=_large_at_the_output_end,
        ),
        Takeaway(
            key="two_gradients",
            covers="B8",
            text="An output gradient and a weight gradient are two different things.",
            check=_two_gradients,
        ),
        Takeaway(
            key="every_layer",
            covers="B8",
            text="A forward hook that attaches a tensor hook is the practical way to read every layer.",
            check=_every_layer,
        ),
        Takeaway(
            key="full_hooks",
            covers="B8",
            text="Full backward hooks help too, and are harder to reason about.",
            check=_harder_to_reason_about,
        ),
        Takeaway(
            key="one_tensor",
            covers="B8",
            text="For one tensor, once, `retain_grad()` is enough.",
            check=_one_tensor,
        ),
        Takeaway(
            key="watch_for",
            covers="B8",
            text="Watch for what is zero, tiny, huge or missing.",
            check=_what_to_watch_for,
        ),
    )
}
"""In the order in which they are told: those on weight gradients, then those on output gradients."""
