"""The benchmarks run; how fast they find anything is for a person to read, never for a test."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent / "benchmarks"


def test_the_price_of_a_capture_can_be_measured():
    command = [sys.executable, BENCHMARKS / "capture_price.py", "W1", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=BENCHMARKS.parents[1])
    assert done.returncode == 0, done.stderr
    names, figures = done.stdout.splitlines()
    assert "hook pattern" in names
    assert figures.startswith("W1")
