"""What a capture costs: time of watched steps over bare steps, beside the usual hook pattern and other tools.

    python tests/benchmarks/capture_price.py                # all workloads
    python tests/benchmarks/capture_price.py W1 --rounds 5
    python tests/benchmarks/capture_price.py W3 --memory

A step is forward and backward. Each watched step ends with all statistics of all layer outputs and all weights as Python
numbers. Every round times each competitor between two bare runs, in seconds of this thread; the figure is the median over
rounds of the ratio. Other tools (requirements.txt) are timed where they are installed, and named where they are not.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memory import extra_peak_memory
from peers import PEERS
from workloads import WORKLOADS, Workload, six_numbers, six_numbers_of_weights

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

    def forward_hook(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda gradient: readings.__setitem__(name, six_numbers(gradient.detach().clone())))

        return hook

    leaves = [(name, module) for name, module in workload.model.named_modules() if not list(module.children())]
    handles = [module.register_forward_hook(forward_hook(name)) for name, module in leaves]

    def step() -> object:
        workload.step()
        readings.update(six_numbers_of_weights(workload.model))
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


def price_of_peer(title: str, name: str, rounds: int) -> float | str:
    """The price of another tool on one workload, or why it has none.

    In a process of its own, and with all bare steps before the first watched one, since a tool may change torch for good.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    workload, steps = WORKLOADS[name](), STEPS[name]
    bare = [timed(workload.step, workload, steps) for _ in range(rounds + 1)][1:]
    try:
        with PEERS[title](workload) as step:
            watched = [timed(step, workload, max(1, steps // 10)) for _ in range(rounds + 1)][1:]
    except ImportError as error:
        return f"not installed ({error})"
    except Exception as error:  # whatever another tool cannot do with this model
        return f"{type(error).__name__}: {error}".splitlines()[0][:150]
    return statistics.median(watched) / statistics.median(bare)


def prices_of_peers(name: str, rounds: int) -> dict[str, float | str]:
    """The price of every other tool on one workload, or why it has none."""
    found: dict[str, float | str] = {}
    for title in PEERS:
        command = [sys.executable, __file__, name, "--rounds", str(rounds), "--peer", title]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answer = (done.stdout.splitlines() or [f"it ended with code {done.returncode}"])[-1]
        try:
            found[title] = float(answer)
        except ValueError:
            found[title] = answer
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--memory", action="store_true", help="measure the extra peak memory instead of the time")
    parser.add_argument("--peer", choices=PEERS, help="print the price of one other tool on one workload")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.peer:
        print(price_of_peer(options.peer, options.workloads[0], options.rounds))
        return
    if options.memory:
        for name in options.workloads:
            print(
                f"{WORKLOADS[name]().title:44s}{extra_peak_memory(WORKLOADS[name], attached) / 2**20:8.2f} MB more at the peak"
            )
        return
    print(f"{'':44s}" + "".join(f"{title:>18s}" for title in (*COMPETITORS, *PEERS)))
    reasons = []
    for name in options.workloads:
        figures = ratios(name, options.rounds) | prices_of_peers(name, max(1, options.rounds // 3))
        cells = ("-" if isinstance(figure, str) else f"{figure:.2f}" for figure in figures.values())
        print(f"{WORKLOADS[name]().title:44s}" + "".join(f"{cell:>18s}" for cell in cells), flush=True)
        reasons += [f"- {title}, {name}: {figure}" for title, figure in figures.items() if isinstance(figure, str)]
    print(*reasons, sep="\n")


if __name__ == "__main__":
    main()
