"""What a capture costs: time of watched steps over bare steps, beside the usual hook pattern.

    python tests/benchmarks/capture_price.py                # all workloads
    python tests/benchmarks/capture_price.py W1 --rounds 5

A step is forward and backward. Each watched step ends with all statistics of all layer outputs and all weights as Python
numbers. Every round times each competitor between two bare runs, in seconds of this thread; the figure is the median over
rounds of the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workloads import WORKLOADS, Workload

import gradlab

STEPS = {"W1": 40, "W2": 3, "W3": 1, "W4": 1}
Step = Callable[[], object]


@contextmanager
def attached(workload: Workload) -> Iterator[Step]:
    """gradlab, attached once."""
    with gradlab.capture_gradients(workload.model, keep_passes=1) as capture:

        def step() -> object:
            workload.step()
            return capture

        yield step


@contextmanager
def one_shot(workload: Workload) -> Iterator[Step]:
    """gradlab, attached and detached for every step."""

    def step() -> object:
        with gradlab.capture_gradients(workload.model, keep_passes=1) as capture:
            workload.step()
        return capture

    yield step


@contextmanager
def hook_pattern(workload: Workload) -> Iterator[Step]:
    """The pattern everybody copies: a tensor hook per output, six statistics each by torch calls and .item()."""
    readings: dict[str, dict[str, float]] = {}

    def numbers(gradient: torch.Tensor) -> dict[str, float]:
        return {
            "mean_abs": gradient.abs().mean().item(),
            "norm": gradient.norm().item(),
            "min": gradient.min().item(),
            "max": gradient.max().item(),
            "max_abs": gradient.abs().max().item(),
            "zero_fraction": (gradient == 0).float().mean().item(),
        }

    def forward_hook(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda gradient: readings.__setitem__(name, numbers(gradient.detach().clone())))

        return hook

    leaves = [(name, module) for name, module in workload.model.named_modules() if not list(module.children())]
    handles = [module.register_forward_hook(forward_hook(name)) for name, module in leaves]

    def step() -> object:
        workload.step()
        for name, parameter in workload.model.named_parameters():
            if "weight" in name and parameter.grad is not None:
                readings[name] = numbers(parameter.grad)
        return readings

    yield step
    for handle in handles:
        handle.remove()


COMPETITORS = {
    "gradlab": attached,
    "gradlab, one-shot": one_shot,
    "hook pattern": hook_pattern,
}


def timed(step: Step, workload: Workload, steps: int) -> float:
    start = time.thread_time()
    for _ in range(steps):
        step()
        workload.model.zero_grad()
    return (time.thread_time() - start) / steps


def ratios(name: str, rounds: int) -> dict[str, float]:
    """The median price of each competitor on one workload."""
    torch.manual_seed(0)
    workload, steps = WORKLOADS[name](), STEPS[name]
    seen: dict[str, list[float]] = {title: [] for title in COMPETITORS}
    for number in range(rounds + 1):
        for title, competitor in COMPETITORS.items():
            before = timed(workload.step, workload, steps)
            with competitor(workload) as step:
                watched = timed(step, workload, steps)
            after = timed(workload.step, workload, steps)
            if number:  # the first round warms up
                seen[title].append(watched / ((before + after) / 2))
    return {title: statistics.median(values) for title, values in seen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", gradlab.CaptureWarning)
    print(f"{'':44s}" + "".join(f"{title:>20s}" for title in COMPETITORS))
    for name in options.workloads:
        figures = ratios(name, options.rounds)
        print(f"{WORKLOADS[name]().title:44s}" + "".join(f"{figure:20.2f}" for figure in figures.values()))


if __name__ == "__main__":
    main()
