"""How much faster an ensemble is than a loop in plain PyTorch, and how much memory it takes.

    python tests/benchmarks/ensemble_speed.py               # all networks
    python tests/benchmarks/ensemble_speed.py reference --rounds 3 --seeds 500

The loop builds a network for every seed with a generator of its own, hooks its linear maps, runs forward and backward, and
reads six numbers of every output's and every weight's gradient. Both are timed in turns, in seconds of this thread; the
figure is the median over rounds of the ratio. The two must agree, or nothing is printed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gradlab import ExperimentSpec
from gradlab.ensemble import run_ensemble

LOOP_SEEDS = 40


class Case(NamedTuple):
    sizes: str
    use_shortcut: bool
    seeds: int


CASES = {
    "reference": Case("3-3-3-3-3-1", False, 10_000),
    "reference+shortcut": Case("3-3-3-3-3-1", True, 10_000),
    "deep": Case("32x21", False, 1_000),
    "deep+shortcut": Case("32x21", True, 1_000),
}


class Plain(nn.Module):
    """Linear maps and GELU, drawn from a generator as `nn.Linear` draws."""

    def __init__(self, sizes: tuple[int, ...], use_shortcut: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation = nn.GELU(approximate="tanh")
        self.use_shortcut = use_shortcut
        for linear in self.linears:
            nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=generator)
            bound = 1 / math.sqrt(linear.in_features)
            nn.init.uniform_(linear.bias, -bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        for linear in self.linears:
            output = self.activation(linear(x))
            x = x + output if self.use_shortcut and x.shape == output.shape else output
        return x


def six(gradient: Tensor) -> list[float]:
    """mean |g|, RMS, L2 norm, min, max, max |g|."""
    size = gradient.abs()
    numbers = (size.mean(), gradient.square().mean().sqrt(), gradient.norm(), gradient.min(), gradient.max(), size.max())
    return [number.item() for number in numbers]


def loop(spec: ExperimentSpec, seeds: range) -> list[list[list[float]]]:
    """For every seed the six numbers of each output's gradient, the last layer's first, then of each weight's."""
    sizes = spec.network.layer_sizes
    batch = torch.tensor([[1.0, 0.0, -1.0]]).repeat(1, sizes[0])[:, : sizes[0]]
    found = []
    for seed in seeds:
        network = Plain(sizes, spec.network.use_shortcut, torch.Generator().manual_seed(seed))
        readings: list[list[float]] = []

        def watch(module: nn.Module, inputs: object, output: Tensor, readings: list[list[float]] = readings) -> None:
            output.register_hook(lambda gradient: readings.append(six(gradient)))

        handles = [linear.register_forward_hook(watch) for linear in network.linears]
        network(batch).square().mean().backward()
        for handle in handles:
            handle.remove()
        found.append(readings + [six(linear.weight.grad) for linear in network.linears])
    return found


def check(spec: ExperimentSpec) -> None:
    """Both give the same numbers."""
    seeds = range(5)
    ensemble = run_ensemble(spec, seeds)
    names = ("mean_abs", "rms", "norm", "min", "max", "max_abs")
    outputs, weights = (np.stack([getattr(part, name) for name in names], 2) for part in (ensemble.outputs, ensemble.weights))
    expected = np.concatenate([outputs[:, ::-1], weights], axis=1)
    np.testing.assert_allclose(np.array(loop(spec, seeds)), expected, rtol=1e-4)


def speeds(case: Case, seeds: int, rounds: int) -> tuple[float, float, float]:
    """Median seeds per second of the ensemble and of the loop, and of their ratio."""
    spec = ExperimentSpec().replace(layer_sizes=case.sizes, use_shortcut=case.use_shortcut)
    check(spec)
    seen = []
    for number in range(rounds):
        first = 1 + number * seeds
        start = time.thread_time()
        loop(spec, range(first, first + LOOP_SEEDS // 2))
        middle = time.thread_time()
        run_ensemble(spec, range(first, first + seeds))
        end = time.thread_time()
        loop(spec, range(first + LOOP_SEEDS // 2, first + LOOP_SEEDS))
        ensemble, plain = seeds / (end - middle), LOOP_SEEDS / (middle - start + time.thread_time() - end)
        seen.append((ensemble, plain, ensemble / plain))
    return tuple(statistics.median(values) for values in zip(*seen, strict=True))  # type: ignore[return-value]


def largest_memory() -> float:
    """The most memory this process has held, in megabytes; NaN on systems that do not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), math.nan)


def memory(case: Case, seeds: int) -> float:
    """By how many megabytes the largest memory of this process grows with an ensemble, after one of a few seeds."""
    spec = ExperimentSpec().replace(layer_sizes=case.sizes, use_shortcut=case.use_shortcut)
    run_ensemble(spec, range(3))
    before = largest_memory()
    run_ensemble(spec, range(seeds))
    return largest_memory() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seeds", type=int, help="instead of 10,000 and 1,000; leaves out the memory")
    parser.add_argument("--memory", action="store_true", help="print only the megabytes that 10,000 seeds of a case take")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        print(*(f"{memory(CASES[name], 10_000):.0f}" for name in options.cases))
        return
    print(f"{'':20s}{'seeds':>8s}{'ensemble/s':>12s}{'loop/s':>8s}{'ratio':>7s}{'MB at 10,000 seeds':>20s}")
    for name in options.cases:
        seeds = options.seeds or CASES[name].seeds
        ensemble, plain, ratio = speeds(CASES[name], seeds, options.rounds)
        taken = "not measured"
        if not options.seeds:  # In a process of its own: the largest memory of a process never shrinks.
            command = [sys.executable, __file__, name, "--memory"]
            taken = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        print(f"{name:20s}{seeds:8,d}{ensemble:12,.0f}{plain:8,.0f}{ratio:7.0f}{taken:>20s}")


if __name__ == "__main__":
    main()
