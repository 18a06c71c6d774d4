"""The memory that a capture adds at the peak of a step, counted allocation by allocation."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager

from torch.autograd.profiler import profile
from workloads import Workload

Step = Callable[[], object]


def extra_peak_memory(build: Callable[[], Workload], watched: Callable[[Workload], AbstractContextManager[Step]]) -> int:
    """How many bytes more a watched step holds at its peak than a bare one, as torch counts tensors and Python the rest.

    The two peaks need not fall together, so that the figure can only be too large.
    """
    workload = build()
    workload.step()
    bare = peak_of_tensors(workload.step), peak_of_objects(workload.step)
    workload.model.zero_grad()
    with watched(workload) as step:
        step()
        seen = peak_of_tensors(step)
    workload.model.zero_grad()
    with watched(workload) as step:  # attached anew: what a capture keeps from step to step counts too
        return max(0, seen - bare[0]) + max(0, peak_of_objects(step) - bare[1])


def peak_of_tensors(step: Step) -> int:
    """The most bytes that the tensors made during a step hold at a time."""
    with profile(profile_memory=True) as profiled:
        step()
    results = profiled.kineto_results
    assert results is not None
    changes = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak


def peak_of_objects(step: Step) -> int:
    """The most bytes that Python objects and numpy arrays made during a step hold at a time."""
    gc.collect()
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
