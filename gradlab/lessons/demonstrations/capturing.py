"""Mistakes in capturing gradients, shown live."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from gradlab.batches import sample_input, target
from gradlab.lessons.demonstrations.base import (
    Bench,
    Cell,
    Demonstration,
    NothingToShow,
    Reading,
    layer_name,
    measured,
    statistics_of,
    times,
    usable,
    weights,
)
from gradlab.lessons.thread_warnings import filtered_here
from gradlab.spec import ExperimentSpec, Loss
from gradlab.text import short_number

LOSS_SCALE = 65_536
"""What `torch.amp.GradScaler` starts with: 2**16, so that scaling only moves the exponent."""


def weight_gradient_for_output(spec: ExperimentSpec) -> Demonstration:
    """The norm of a layer's weight gradient against that of the gradient at its output, from one backward pass."""
    result = measured(spec)
    at_output = {record.layer: record for record in result.outputs if record.module_type == "Linear"}
    rows: list[tuple[str, str, float, str, float]] = []
    for record in weights(result):
        output = at_output[record.layer]
        found = [r.statistics.norm if r.statistics and not r.statistics.nonfinite_count else 0.0 for r in (record, output)]
        if all(found):
            rows.append((layer_name(record.layer), str(record.shape), found[0], str(output.shape), found[1]))
    if not rows:
        raise NothingToShow("in yours no layer has two gradients that are finite and not zero")
    name, shape, wrong, output_shape, right = max(rows, key=lambda row: abs(math.log(row[2]) - math.log(row[4])))
    return Demonstration(
        wrong=Reading(label=f"{name}: norm of weight.grad, shape {shape}", value=wrong),
        right=Reading(label=f"{name}: norm of the gradient at its output, shape {output_shape}", value=right),
        damage=f"Taken for the output gradient, weight.grad is {short_number(wrong / right)} times what arrived at {name}."
        + (" At batch size 1 this factor is the length of the layer's input." if spec.batch.batch_size == 1 else ""),
        factor=wrong / right,
        columns=("layer", "weight shape", "norm of weight.grad", "output shape", "norm of the output gradient"),
        rows=tuple(rows),
        spec=spec,
    )


def non_leaf_gradient(spec: ExperimentSpec) -> Demonstration:
    """What `.grad` of a hidden tensor holds after backward, without and with `retain_grad()`."""
    bench, said = Bench(spec), ""
    name = next(iter(bench.linears))
    with _output_of(bench.linears[name]) as kept:
        bench.run()
        try:
            with filtered_here("error", r"The \.grad attribute of a Tensor"):
                wrong = kept[-1].grad
        except UserWarning as warning:
            wrong, said = None, str(warning).split(". ")[0]
        loss = bench.loss()
        kept[-1].retain_grad()
        loss.backward()
        right = usable(statistics_of(kept[-1].grad).norm, f"the gradient at the output of {name}")
    if wrong is not None:
        raise NothingToShow("in yours something else retains the gradient")
    warned = f" PyTorch warns: {said}." if said else ""
    return Demonstration(
        wrong=Reading(label=f"{name}: .grad of its output", value=None),
        right=Reading(label=f"{name}: norm of .grad of its output, with retain_grad() before backward", value=right),
        damage=f"Backward ran, and .grad is None.{warned} A gradient of norm {short_number(right)} passed there all the same.",
        factor=None,
        columns=("call before backward", "norm of .grad"),
        rows=(("none", None), ("retain_grad()", right)),
        spec=spec,
    )


@contextmanager
def _output_of(module: nn.Module) -> Iterator[list[Tensor]]:
    """The tensors that a module returns while the block runs, the latest last."""
    kept: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, inputs, output: kept.append(output))
    try:
        yield kept
    finally:
        handle.remove()


class _Reporter:
    """The usual pattern: a forward hook that puts a tensor hook on a layer's output, which stores the gradient."""

    def __init__(self, name: str, stored: dict[str, Tensor], made: list[weakref.ref[Tensor]]) -> None:
        self._name, self._stored, self._made = name, stored, made

    def __call__(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        output.register_hook(self._report)

    def _report(self, gradient: Tensor) -> None:
        self._stored[self._name] = copy = gradient.detach().clone()
        self._made.append(weakref.ref(copy))


def hooks_left_behind(spec: ExperimentSpec, runs: int = 3) -> Demonstration:
    """How many reports the last of several runs gives, and how many tensors are kept alive, with and without removing."""
    rows: list[tuple[Cell, ...]] = []
    left, removed = _runs_with_hooks(spec, runs, remove=False), _runs_with_hooks(spec, runs, remove=True)
    for number, (wrong, right) in enumerate(zip(left, removed, strict=True), start=1):
        rows.append((number, wrong[0], right[0], wrong[1], right[1], wrong[2]))
    (wrong_reports, alive, size), (right_reports, _, _) = left[-1], removed[-1]
    return Demonstration(
        wrong=Reading(label=f"Reports in run {runs}, hooks never removed", value=wrong_reports),
        right=Reading(label=f"Reports in run {runs}, hooks removed after each run", value=right_reports),
        damage=f"Run {runs} reports every gradient {wrong_reports // right_reports} times. After it, {alive:,} copies"
        f" ({size:,} bytes) are still in memory, held by hooks nobody uses.",
        factor=wrong_reports / right_reports,
        columns=(
            "run",
            "reports, hooks left",
            "reports, hooks removed",
            "tensors kept, hooks left",
            "tensors kept, hooks removed",
            "bytes kept, hooks left",
        ),
        rows=tuple(rows),
        spec=spec,
    )


def _runs_with_hooks(spec: ExperimentSpec, runs: int, remove: bool) -> list[tuple[int, int, int]]:
    """For each run: reports given in it; captured tensors alive after it, and their bytes."""
    bench, made, found = Bench(spec), list[weakref.ref[Tensor]](), []
    handles: list[Any] = []
    for _ in range(runs):
        before = len(made)
        stored: dict[str, Tensor] = {}
        handles += [m.register_forward_hook(_Reporter(n, stored, made)) for n, m in bench.linears.items()]
        bench.run()
        if remove:
            while handles:
                handles.pop().remove()
        del stored
        alive = [tensor for tensor in (ref() for ref in made) if tensor is not None]
        found.append((len(made) - before, len(alive), sum(tensor.nbytes for tensor in alive)))
        del alive
    return found


def off_the_path(spec: ExperimentSpec) -> Demonstration:
    """The gradient at a branch of the network, once outside the loss and once as a part of it."""
    bench = Bench(spec)
    name = next(iter(bench.linears))
    rows: list[tuple[Cell, ...]] = []
    with _output_of(bench.linears[name]) as kept:
        for in_loss in (False, True):
            fired: list[None] = []
            loss = bench.loss()
            branch = 2 * kept[-1]
            branch.retain_grad()
            branch.register_hook(partial(_note, fired))
            (loss + branch.mean() if in_loss else loss).backward()
            norm = None if branch.grad is None else statistics_of(branch.grad).norm
            rows.append(("loss + branch.mean()" if in_loss else "loss", norm, len(fired)))
    wrong, right = rows[0][1], rows[1][1]
    assert wrong is None
    assert isinstance(right, float)
    return Demonstration(
        wrong=Reading(label=f"A branch from the output of {name} that the loss does not use: its .grad", value=None),
        right=Reading(label="The same branch once its mean is added to the loss: norm of its .grad", value=right),
        damage=f"The branch is tracked and backward ran, yet its hook fired {rows[0][2]} times and .grad is None. None is not"
        f" zero: it says that this loss does not depend on the branch.",
        factor=None,
        columns=("backward from", "norm of the branch's .grad", "times its hook fired"),
        rows=tuple(rows),
        spec=spec,
    )


def _note(fired: list[None], gradient: Tensor) -> None:
    fired.append(None)


def _last_reading(bench: Bench) -> float | None:
    """The mean absolute weight gradient of the layer nearest the output; None where `.grad` is None."""
    *_, linear = bench.linears.values()
    return None if linear.weight.grad is None else statistics_of(linear.weight.grad).mean_abs


def _reading(bench: Bench) -> float:
    found = _last_reading(bench)
    assert found is not None
    return usable(found, "the weight gradient of the last layer")


def gradients_add_up(spec: ExperimentSpec, calls: int = 3) -> Demonstration:
    """The reading after several backward calls, without and with zeroing before each."""
    adding, zeroed = Bench(spec), Bench(spec)
    rows: list[tuple[int, float, float]] = []
    for number in range(1, calls + 1):
        zeroed.network.zero_grad()
        for bench in (adding, zeroed):
            bench.run()
        rows.append((number, _reading(adding), _reading(zeroed)))
    *_, name = adding.linears
    _, wrong, right = rows[-1]
    return Demonstration(
        wrong=Reading(label=f"{name}: mean |weight gradient| after {calls} backward calls, nothing zeroed", value=wrong),
        right=Reading(label=f"{name}: the same with zero_grad() before each", value=right),
        damage=f"After {calls} calls the reading is {times(wrong / right)} times that of one call. The network has not"
        f" changed.",
        factor=wrong / right,
        columns=("backward call", "nothing zeroed", "zero_grad() before each"),
        rows=tuple(rows),
        spec=spec,
    )


_REDUCED: dict[Loss, Any] = {
    Loss.MSE: functional.mse_loss,
    Loss.MSE_SUM: functional.mse_loss,
    Loss.L1: functional.l1_loss,
    Loss.CROSS_ENTROPY: functional.cross_entropy,
    Loss.OUTPUT_SUM: lambda output, wanted, reduction: getattr(output, reduction)(),
}


def sum_for_mean(spec: ExperimentSpec) -> Demonstration:
    """The reading under a summed loss against that under the same loss averaged."""
    note = ""
    if _averaged_over(spec) == 1:
        spec = replace(spec, batch=replace(spec.batch, batch_size=8))
        note = "This ran with 8 samples instead of 1: over one element sum and mean are the same number."
    readings = {}
    for reduction in ("sum", "mean"):
        bench = Bench(spec)
        output = bench.network(sample_input(spec))
        _REDUCED[spec.loss](output, target(spec), reduction=reduction).backward()
        readings[reduction] = _reading(bench)
    *_, name = bench.linears
    factor, elements = readings["sum"] / readings["mean"], _averaged_over(spec)
    return Demonstration(
        wrong=Reading(label=f"{name}: mean |weight gradient|, loss summed", value=readings["sum"]),
        right=Reading(label=f"{name}: mean |weight gradient|, loss averaged", value=readings["mean"]),
        damage=f"The loss is averaged over {elements:,} elements. Summed, every gradient is {times(factor)} times as"
        f" large, and no cut-off for the averaged one fits.",
        factor=factor,
        columns=("reduction", "mean |weight gradient|", "elements"),
        rows=tuple((reduction, value, elements) for reduction, value in readings.items()),
        spec=spec,
        note=note,
    )


def _averaged_over(spec: ExperimentSpec) -> int:
    rows = spec.batch.batch_size
    return rows if spec.loss is Loss.CROSS_ENTROPY else rows * spec.network.output_size


def read_too_late(spec: ExperimentSpec) -> Demonstration:
    """The reading right after backward against those after clipping, after zeroing, and under a scaled loss."""
    bench = Bench(spec)
    *_, name = bench.linears
    bench.run()
    right = _reading(bench)
    norm = float(nn.utils.get_total_norm(p.grad for p in bench.network.parameters() if p.grad is not None))
    nn.utils.clip_grad_norm_(bench.network.parameters(), usable(norm, "the norm of all gradients") / 2)
    clipped = _reading(bench)
    bench.network.zero_grad(set_to_none=False)
    zeroed = _last_reading(bench)
    bench.network.zero_grad()
    gone = _last_reading(bench)
    (bench.loss() * LOSS_SCALE).backward()
    scaled = _reading(bench)
    rows: list[tuple[str, float | None, float | None]] = [
        ("right after backward", right, 1.0),
        ("after clip_grad_norm_ to half the norm of all gradients", clipped, clipped / right),
        ("after zero_grad(set_to_none=False)", zeroed, None if zeroed is None else zeroed / right),
        ("after zero_grad()", gone, None),
        (f"while the loss is scaled by {LOSS_SCALE}", scaled, scaled / right),
    ]
    return Demonstration(
        wrong=Reading(label=f"{name}: mean |weight gradient| while the loss is scaled by {LOSS_SCALE}", value=scaled),
        right=Reading(label=f"{name}: mean |weight gradient| right after backward", value=right),
        damage=f"Scaled for mixed precision, the reading is {times(scaled / right)} times too large. Clipped, it is"
        f" {short_number(clipped / right)} times the right one; zeroed, it is 0 or None.",
        factor=scaled / right,
        columns=("read", "mean |weight gradient|", "times the right one"),
        rows=tuple(rows),
        spec=spec,
    )
