"""The benchmarks run; how fast they find anything is for a person to read, never for a test. Memory is counted, and tested."""

import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

BENCHMARKS = Path(__file__).parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

from capture_price import attached, hook_pattern  # noqa: E402
from memory import extra_peak_memory, peak_of_objects, peak_of_tensors  # noqa: E402
from peers import PEERS  # noqa: E402
from workloads import WORKLOADS, Workload  # noqa: E402


def test_the_price_of_a_capture_can_be_measured():
    command = [sys.executable, BENCHMARKS / "capture_price.py", "W1", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=BENCHMARKS.parents[1])
    assert done.returncode == 0, done.stderr
    names, figures, *missing = done.stdout.splitlines()
    assert "hook pattern" in names
    assert figures.startswith("W1")
    assert all(peer in names for peer in PEERS)
    assert len(missing) == figures.split().count("-")  # a tool that is not there has no price, and is named


def test_memory_is_counted_to_the_byte():
    def step():
        first = torch.empty(1_000_000)
        second = torch.empty(500_000)
        del first
        torch.empty(100_000)
        del second

    assert peak_of_tensors(step) == 4 * 1_500_000
    assert 7_000_000 <= peak_of_objects(lambda: bytearray(7_000_000)) < 7_010_000


def test_a_capture_adds_at_most_two_megabytes_to_a_wide_network():
    torch.manual_seed(0)
    assert extra_peak_memory(WORKLOADS["W3"], attached) <= 2 * 2**20


def test_a_hook_that_clones_adds_more_than_that():
    """So a capture that kept whole gradients would be found out."""
    batch = torch.zeros(256, 4096)
    one_layer = lambda: Workload("", nn.Sequential(nn.Linear(4096, 1024)), batch, torch.Tensor.sum)  # noqa: E731
    assert extra_peak_memory(one_layer, hook_pattern) > 2 * 2**20
