"""Many seeds at a time that a shared server can afford: part by part, each kept, so that it can be stopped and goes on.

A part takes a fraction of a second. Between two of them the page reports how far it is, which is where Streamlit ends the
run when the visitor does something else; and another visitor's heavy work gets its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import streamlit as st

from gradlab.ensemble import Ensemble, run_ensemble
from gradlab.lessons import many_seeds
from gradlab.lessons.many_seeds import ManySeeds, Standing
from gradlab.spec import CaptureMethod, ExperimentSpec, Initializer
from gradlab.trail import Quantity
from gradlab.ui import cache
from gradlab.ui.cache import Picture, kept, shared
from gradlab.ui.links import products_of
from gradlab.ui.turns import step_aside, taking_turns

MAX_WORK = 1_000_000_000
"""Products of all seeds of one network that a visitor may ask for: about two seconds of one core."""
MAX_READINGS = 30_000
"""Seeds × layers of one network: a few megabytes while they are kept."""
MOST_SECONDS = 2.0
"""Of one core: what costs more than the products say ends here. (Gradients that are not finite are measured one by one.)"""
UNASKED_SECONDS = 0.1
"""Of one core, for all networks on a page before the visitor asks for the rest; of most networks that is all."""
FIRST_SECONDS, PART_SECONDS = 0.05, 0.25
"""After which a network's first part ends, and any other."""
PART_SEEDS = 1000
BUILDING = 16
"""Drawing a weight and reading its gradient takes about as long as so many products."""
_ASKED, _FAR = "ensemble_asked", "ensemble_far"


class Part(NamedTuple):
    ensemble: Ensemble
    seconds: float
    """Of one core, as it took."""


def affordable_seeds(spec: ExperimentSpec, asked: int, networks: int = 1) -> int:
    """How many seeds of this experiment may be measured when so many are asked for, of so many networks like it."""
    network = spec.network
    each = network.parameter_count * (BUILDING + spec.batch.batch_size)
    if network.initializer is Initializer.ORTHOGONAL:
        each += network.parameter_count * max(network.layer_sizes)
    return max(1, min(asked, MAX_WORK // networks // each, MAX_READINGS // network.depth))


def without_seed(spec: ExperimentSpec) -> ExperimentSpec:
    """The experiment with those settings at their defaults that an ensemble does not depend on."""
    return replace(spec, seed=0, capture_method=CaptureMethod.TENSOR_HOOKS)


def parts(spec: ExperimentSpec, total: int, stopped: int | None = None) -> Iterator[Part]:
    """The experiment at the seeds from 0 on, part by part; up to where it was stopped, or has taken too long."""
    spec, done, seconds = without_seed(spec), 0, 0.0
    while done < (total if stopped is None else min(stopped, total)) and seconds < MOST_SECONDS:
        part = _part(spec, done, min(done + PART_SEEDS, total))
        done, seconds = done + len(part.ensemble), seconds + part.seconds
        yield part


@kept(max_entries=200, max_size="60MB")
def _part(spec: ExperimentSpec, start: int, end: int) -> Part:
    with taking_turns(products_of(spec) * (end - start)):
        begun, until = time.thread_time(), time.monotonic() + (PART_SECONDS if start else FIRST_SECONDS)
        ensemble = run_ensemble(spec, range(start, end), progress=lambda done, total: time.monotonic() < until)
        return Part(ensemble, time.thread_time() - begun)


@shared(max_entries=100)
def summary(spec: ExperimentSpec, total: int, stopped: int | None, quantity: Quantity) -> ManySeeds:
    return many_seeds.summarize(_whole(spec, total, stopped), quantity)


@kept(max_entries=200)
def standing(spec: ExperimentSpec, total: int, stopped: int | None, quantity: Quantity) -> Standing:
    return many_seeds.standing(cache.measured(spec), _whole(spec, total, stopped), quantity)


def any_seed(found: ManySeeds) -> str:
    """The measured seeds where none of them has what is told: such as `any of 50 seeds`."""
    return "the one seed measured" if found.seeds == 1 else f"any of {found.seeds:,} seeds"


def _whole(spec: ExperimentSpec, total: int, stopped: int | None) -> Ensemble:
    return many_seeds.joined([part.ensemble for part in parts(spec, total, stopped)])


# --- while a visitor waits ----------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """How many seeds of a network are there to be summarised: what `summary` takes."""

    total: int
    stopped: int | None


class _Far(NamedTuple):
    """How far the measuring of some networks is: kept, because to look for all their parts takes some milliseconds."""

    wanted: tuple[tuple[ExperimentSpec, ...], int]
    done: dict[str, int]
    ended: bool = False
    waits: bool = False
    """Whether there is more to be had for the asking."""


def measure(
    specs: Mapping[str, ExperimentSpec],
    total: int,
    key: str,
    picture: Callable[[dict[str, Measured]], Picture],
    *,
    asked: bool = False,
) -> dict[str, Measured]:
    """Measure so many seeds of each network: as many as take no time to speak of, the rest when it is asked for.

    Where the rest takes long, with a bar and a button that stops it; meanwhile `picture` of nothing measured stands above
    the bar. A network of which no seed is measured is left out.
    """
    wanted = (tuple(map(without_seed, specs.values())), total)
    far: _Far | None = st.session_state.get(_FAR)
    if far is None or far.wanted != wanted or not far.ended:
        far = _measure(specs, wanted, key, picture, asked or st.session_state.get(_ASKED) == wanted)
    if not far.waits:
        return {name: Measured(total, None) for name in specs}
    return {name: Measured(total, far.done[name]) for name in specs if far.done[name]}


def ask_for_the_rest(key: str) -> None:
    """Draw the button that has the rest measured, if `measure` has left one."""
    far: _Far | None = st.session_state.get(_FAR)
    if far is not None and far.waits:
        st.button(f"Measure all {far.wanted[1]:,} seeds", key=f"{key}_go_on", on_click=_go_on, args=(far.wanted,))


def _measure(
    specs: Mapping[str, ExperimentSpec],
    wanted: tuple[tuple[ExperimentSpec, ...], int],
    key: str,
    picture: Callable[[dict[str, Measured]], Picture],
    asked: bool,
) -> _Far:
    far, seconds, started = _Far(wanted, dict.fromkeys(specs, 0)), 0.0, time.monotonic()
    total, networks = wanted[1], wanted[1] * len(specs)
    place, bar = st.empty(), None
    if asked:
        step_aside()  # also for those who wait for the same parts
    for name, part in _by_turns({name: parts(spec, total) for name, spec in specs.items()}):
        seconds += part.seconds
        far = st.session_state[_FAR] = far._replace(done=far.done | {name: far.done[name] + len(part.ensemble)})
        ready = sum(far.done.values())
        is_long = seconds > UNASKED_SECONDS or part.ensemble.stopped
        if not asked and is_long and all(far.done.values()) and ready < networks:
            far = far._replace(waits=True)
            break
        if asked and bar is None and time.monotonic() - started > PART_SECONDS / 2 and ready < networks:
            with place.container():
                before = picture({})
                st.vega_lite_chart(before.vega_lite, alt=before.alt_text, width="stretch")
                bar = st.progress(0.0)
                st.button("Stop", key=f"{key}_stop", on_click=_stop)
        if bar is not None:
            bar.progress(ready / networks, f"{ready:,} of {networks:,} networks measured")
    place.empty()
    far = st.session_state[_FAR] = far._replace(ended=True)
    return far


def _by_turns(waiting: dict[str, Iterator[Part]]) -> Iterator[tuple[str, Part]]:
    """A part of each, round and round: so that all of them have about as many seeds when it is stopped."""
    while waiting:
        for name, remaining in list(waiting.items()):
            part = next(remaining, None)
            if part is None:
                del waiting[name]
            else:
                yield name, part


def _stop() -> None:
    far: _Far | None = st.session_state.get(_FAR)
    if far is not None and not far.ended:
        st.session_state[_FAR] = far._replace(ended=True, waits=True)


def _go_on(wanted: object) -> None:
    st.session_state.pop(_FAR, None)
    st.session_state[_ASKED] = wanted
