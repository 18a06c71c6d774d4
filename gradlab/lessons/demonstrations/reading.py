"""Mistakes in reading the measurement, shown live."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from gradlab.diagnosis import Diagnosis, diagnose
from gradlab.experiment import ExperimentResult
from gradlab.lessons.demonstrations.base import (
    Bench,
    Demonstration,
    NothingToShow,
    Reading,
    layer_name,
    measured,
    reading_of,
    statistics_of,
    usable,
    weights,
)
from gradlab.networks import PRECISIONS, DeepNetwork
from gradlab.spec import ExperimentSpec, Loss, NetworkSpec, Target
from gradlab.text import in_words, share_left, short_number


def top_to_bottom(spec: ExperimentSpec) -> Demonstration:
    """The places of the first and the last line of the printed list in the order in which gradients arrived."""
    result = measured(spec)
    printed = weights(result)
    arrived = sorted((r for r in printed if r.backward_index is not None), key=lambda r: r.backward_index or 0)
    place = {record.parameter: number for number, record in enumerate(arrived, start=1)}
    top, bottom = printed[0].parameter, printed[-1].parameter
    if len(place) < 2 or not {top, bottom} <= place.keys():
        raise NothingToShow("yours has one layer, and a list of one line has no direction")
    factor = diagnose(result).factor
    trend = ""
    if factor:
        trend = (
            f" In order of arrival output gradients change {short_number(factor)}-fold per layer;"
            f" read from the top the same list seems to change {short_number(1 / factor)}-fold."
        )
    return Demonstration(
        wrong=Reading(label=f"The first line, {layer_name(top)}: number in the order of arrival", value=place[top]),
        right=Reading(label=f"The last line, {layer_name(bottom)}: number in the order of arrival", value=place[bottom]),
        damage=f"The gradient reaches the first line as number {place[top]} of {len(place)}.{trend}",
        factor=None,
        columns=("printed line", "layer", "arrival", "mean |weight gradient|"),
        rows=tuple(
            (line, layer_name(r.parameter), place.get(r.parameter), reading_of(r)) for line, r in enumerate(printed, start=1)
        ),
        spec=spec,
    )


STANDS_OUT = 2.0
"""A last layer this many times its neighbour is one that somebody takes for a problem."""


def large_last_layer(spec: ExperimentSpec) -> Demonstration:
    """The step at the output end against the trend over the hidden layers, in a network with shortcuts."""
    found = {}
    for name, use_shortcut in (("plain", False), ("with shortcuts", True)):
        result = measured(spec.replace(use_shortcut=use_shortcut))
        diagnosis = diagnose(result)
        if diagnosis.factor is None:
            raise NothingToShow("in yours no trend over hidden layers can be fitted")
        found[name] = (_last_over_neighbour(result), diagnosis, diagnosis.factor)
    (plain, _, plain_trend), (ratio, _, trend) = found["plain"], found["with shortcuts"]
    if min(ratio, plain) < STANDS_OUT or trend * ratio < STANDS_OUT or math.isclose(trend, plain_trend, rel_tol=0.1):
        raise NothingToShow("in yours the last layer does not stand out from the trend, or shortcuts change nothing")
    return Demonstration(
        wrong=Reading(label="With shortcuts, factor of the one step from the last layer to its neighbour", value=1 / ratio),
        right=Reading(label="With shortcuts, factor per layer of the trend over the hidden layers", value=trend),
        damage=f"The last layer's output gradient is {short_number(ratio)} times its neighbour's with shortcuts and"
        f" {short_number(plain)} times without: large in both networks. The trend tells them apart:"
        f" {short_number(trend)} per layer with shortcuts, {short_number(plain_trend)} without.",
        factor=1 / ratio / trend,
        columns=("network", "last layer over its neighbour", "trend per layer", "verdict"),
        rows=tuple((name, step, slope, _words(diagnosis)) for name, (step, diagnosis, slope) in found.items()),
        spec=spec.replace(use_shortcut=True),
    )


def _last_over_neighbour(result: ExperimentResult) -> float:
    """The RMS output gradient of the last linear map over that of the one before it."""
    measures = [r.statistics for r in result.outputs if r.module_type == "Linear"][-2:]
    values = [None if s is None or s.nonfinite_count else s.rms for s in measures]
    neighbour, last = (usable(value, "the output gradient of one of the last layers") for value in values)
    return last / neighbour


def _words(diagnosis: Diagnosis) -> str:
    return ("severe " if diagnosis.severe else "") + in_words(diagnosis.verdict)


def sign_as_strength(spec: ExperimentSpec) -> Demonstration:
    """The mean of a weight gradient, in which signs cancel, against the mean of its absolute values."""
    result = measured(spec, keep_gradients=True)
    rows, cancelled = [], {}
    for record in weights(result):
        s, name = record.statistics, layer_name(record.parameter)
        if s is None or record.gradient is None or s.nonfinite_count or not s.mean_abs:
            continue
        negative = int((record.gradient < 0).sum())
        rows.append((name, s.mean, s.mean_abs, negative, s.numel))
        if negative and math.isfinite(s.mean):
            cancelled[name] = (abs(s.mean) / s.mean_abs, rows[-1])
    if not cancelled:
        raise NothingToShow("in yours no weight gradient has entries of both signs")
    left, (name, mean, strength, negative, entries) = min(cancelled.values())
    if left > 0.9:
        raise NothingToShow("in yours hardly any signs cancel")
    return Demonstration(
        wrong=Reading(label=f"{name}: mean of the weight gradient's entries, signs kept", value=mean),
        right=Reading(label=f"{name}: mean of their absolute values", value=strength),
        damage=f"Of the {entries:,} entries {negative:,} are negative. Positive and negative ones cancel: in the mean"
        f" {share_left(left)} of the strength seems left.",
        factor=abs(mean) / strength,
        columns=("layer", "mean", "mean of absolute values", "negative entries", "entries"),
        rows=tuple(rows),
        spec=spec,
    )


def zero_target_as_task(spec: ExperimentSpec) -> Demonstration:
    """The same network on the same input, its reading once for a zero target and once for another one."""
    # Mean squared error in both: it takes either target, and its gradient depends on how far off the output is.
    zeros = replace(spec, loss=Loss.MSE, batch=replace(spec.batch, target=Target.ZEROS))
    other = replace(zeros, batch=replace(spec.batch, target=Target.STANDARD_NORMAL))
    results = [measured(zeros), measured(other)]
    pairs = [(layer_name(a.parameter), reading_of(a), reading_of(b)) for a, b in zip(*map(weights, results), strict=True)]
    name, *readings = pairs[-1]
    with_zeros, with_other = (usable(value, f"the weight gradient of {name}") for value in readings)
    if math.isclose(with_zeros, with_other, rel_tol=0.05):
        raise NothingToShow("in yours the two targets happen to give nearly the same reading")
    if results[0].output != results[1].output:
        raise NothingToShow("in yours the output is not a number that can be compared")  # NaN differs from itself
    factor = with_zeros / with_other
    return Demonstration(
        wrong=Reading(label=f"{name}: mean |weight gradient|, target zero", value=with_zeros),
        right=Reading(label=f"{name}: mean |weight gradient|, a target of normal numbers, same network", value=with_other),
        damage=f"Same weights, same input, same output; only the target differs, and the reading changes"
        f" {short_number(1 / factor)}-fold. It says how the loss reacts to one error signal, not how good the network is.",
        factor=factor,
        columns=("layer", "target zero", "another target", "ratio"),
        rows=tuple((layer, a, b, b / a if a and b else None) for layer, a, b in pairs),
        spec=zeros,
    )


def two_changes_at_once(spec: ExperimentSpec) -> Demonstration:
    """How many weights differ between a plain network and one with shortcuts, seeded once and seeded before each."""
    plain, shortcut = replace(spec.network, use_shortcut=False), replace(spec.network, use_shortcut=True)
    once, again = (torch.Generator().manual_seed(spec.seed) for _ in range(2))
    first = Bench(spec, _build(plain, once))
    from_once = Bench(spec, _build(shortcut, once))
    from_again = Bench(spec, _build(shortcut, again))
    count = sum(linear.weight.numel() for linear in first.linears.values())
    wrong, right = (_differing(first, bench) for bench in (from_once, from_again))
    if not wrong:
        raise NothingToShow("in yours all weights are alike, whatever the seed")
    readings = []
    for bench in (from_again, from_once):
        bench.run()
        readings.append([statistics_of(linear.weight.grad).mean_abs for linear in bench.linears.values()])
    return Demonstration(
        wrong=Reading(label=f"Seeded once for both networks: weights that differ, of {count:,}", value=wrong),
        right=Reading(label=f"Seeded again before the second: weights that differ, of {count:,}", value=right),
        damage=f"After one seeding {wrong:,} of {count:,} weights differ between the plain network and the one with shortcuts."
        f" Two things have changed, and no reading tells which of them did what.",
        factor=None,
        columns=("layer", "mean |weight gradient|, seeded again", "mean |weight gradient|, seeded once"),
        rows=tuple(zip(from_again.linears, *readings, strict=True)),
        spec=spec,
    )


def _build(network: NetworkSpec, generator: torch.Generator) -> DeepNetwork:
    return DeepNetwork(network, generator).to(PRECISIONS[network.dtype].build())


def _differing(first: Bench, second: Bench) -> int:
    pairs = zip(first.linears.values(), second.linears.values(), strict=True)
    return sum(int((a.weight != b.weight).sum()) for a, b in pairs)
