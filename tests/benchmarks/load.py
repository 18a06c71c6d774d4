"""What a class does to the server: learners that click, and first visits that all come at once.

    python tests/benchmarks/load.py                             # 100 learners for a minute, over all pages
    python tests/benchmarks/load.py --learners 150 --waves 3    # three classes one after the other: does memory grow?
    python tests/benchmarks/load.py --first-visit 50            # 50 empty browsers open the app in the same moment

It starts `streamlit run streamlit_app.py` on a free port, or uses the server at `--url`. Learners come in groups that do
the very same things, each at a pace of their own: whatever the pages show must then be the same for the whole group,
step by step, and the differences are counted. Exit status 1 if there were errors, exceptions on a page or differences.
Clients and server share the machine, so the figures are those of a slower server than there is.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from first_visit import Files, files_of_a_visit
from websocket_client import CLOSED, Run, Tab

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Findings:
    """What all learners met."""

    runs: list[Run] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    exceptions: Counter[str] = field(default_factory=Counter)
    shown: dict[tuple[int, int], Run] = field(default_factory=dict)
    """What the first of a group to get there saw, by group and step."""
    compared: int = 0
    differences: Counter[str] = field(default_factory=Counter)

    def add(self, run: Run, group: int, step: int, ignored: frozenset[str]) -> bool:
        """Note a run; whether the learner still sees what the others of the group saw."""
        self.runs.append(run)
        self.exceptions.update(f"{run.page}: {told}" for told in run.exceptions)
        first = self.shown.setdefault((group, step), run)
        if run.page in ignored or first is run:
            return True
        self.compared += 1
        if (run.what, run.shown) != (first.what, first.shown):
            kinds = "" if run.kinds == first.kinds else f", elements {run.kinds} instead of {first.kinds}"
            self.differences[f"{run.page} after {run.what!r} (others {first.what!r}){kinds}"] += 1
            return False
        return True


async def learner(url: str, group: int, options: argparse.Namespace, findings: Findings) -> None:
    """Open a page, then act every few seconds; every fourth time or so go to another page."""
    choices, pace = random.Random(options.seed * 1000 + group), random.Random()
    tab = Tab(url, choices)
    ignored = frozenset(options.not_compared)
    await asyncio.sleep(pace.uniform(0, options.ramp))
    try:
        run, same = await tab.open(), True
        if not tab.pages:
            raise RuntimeError(f"the app came without a menu: {run.exceptions}")
        for step in range(options.actions):
            same = same and findings.add(run, group, step, ignored)
            if not same:
                findings.runs.append(run)
            await asyncio.sleep(pace.uniform(*options.pause))
            if step == 0 or choices.random() < 0.25:
                run = await tab.go(choices.choice(sorted(tab.pages)))
            else:
                run = await tab.act()
        findings.add(run, group, options.actions, ignored if same else frozenset(tab.pages))
    except (*CLOSED, RuntimeError) as error:
        findings.errors[f"{type(error).__name__}: {error}"] += 1
    finally:
        await tab.close()


async def wave(url: str, options: argparse.Namespace) -> Findings:
    findings = Findings()
    groups = max(1, options.learners // options.group)
    await asyncio.gather(*(learner(url, number % groups, options, findings) for number in range(options.learners)))
    return findings


async def first_visit(url: str, files: Files) -> tuple[float, float]:
    """Seconds until every file has arrived, and until the page has run for the first time, for one empty browser."""
    start = time.perf_counter()
    await files.fetch(url)
    loaded = time.perf_counter() - start
    tab = Tab(url, random.Random(0))
    await tab.open()
    ready = time.perf_counter() - start
    await tab.close()
    return loaded, ready


async def first_visits(url: str, options: argparse.Namespace) -> None:
    paths = await files_of_a_visit(url)
    for encoding in ("gzip, deflate, br", "identity"):
        await first_visit(url, Files(paths, encoding))  # the server has then read its files once
        files = Files(paths, encoding)
        start, cpu = time.perf_counter(), time.process_time()
        times = await asyncio.gather(*(first_visit(url, files) for _ in range(options.first_visit)))
        seconds, client = time.perf_counter() - start, time.process_time() - cpu
        loaded, ready = zip(*times, strict=True)
        size = files.received / len(times) / 1e6
        print(f"{len(times)} first visits of {len(paths)} files, Accept-Encoding {encoding}: {size:.2f} MB each")
        print(f"  all files       {spread(loaded)}")
        print(f"  page has run    {spread(ready)}")
        print(f"  the whole class {seconds:.1f} s, of which {client:.1f} s of one core in this client")


def spread(seconds: tuple[float, ...] | list[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"p50 {statistics.median(ordered):7.3f} s   p95 {late:7.3f} s   worst {ordered[-1]:7.3f} s   n {len(ordered)}"


def report(findings: Findings, seconds: float) -> bool:
    """Print what happened; whether all is well."""
    kinds: dict[str, list[float]] = defaultdict(list)
    pages: dict[str, list[float]] = defaultdict(list)
    for run in findings.runs:
        kinds[run.what.split()[0] if run.what.split()[0] in ("open", "go") else "act"].append(run.seconds)
        pages[run.page].append(run.seconds)
    print(f"{len(findings.runs)} runs in {seconds:.0f} s, {len(findings.runs) / seconds:.1f} a second")
    names = {"open": "first run", "go": "another page", "act": "interaction"}
    for kind, name in names.items():
        print(f"  {name:24s} {spread(kinds[kind])}")
    for page in sorted(pages):
        print(f"    {page or '(first page)':22s} {spread(pages[page])}")
    print(f"  compared within groups: {findings.compared}, different: {findings.differences.total()}")
    for title, counted in (
        ("DIFFERENT", findings.differences), ("EXCEPTION", findings.exceptions), ("ERROR", findings.errors)
    ):  # fmt: skip
        for told, times in counted.most_common(10):
            print(f"  {title} {times} times: {told[:600]}")
    return not (findings.differences or findings.exceptions or findings.errors)


def memory(process: int | None) -> str:
    """The resident memory of the server, where the system's ps tells it."""
    if process is None or not shutil.which("ps"):
        return "unknown"
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=False).stdout
    return f"{int(told) / 1024:.0f} MB" if told.strip() else "unknown"


@contextmanager
def server(app: str, port: int, log: Path) -> Iterator[tuple[str, int]]:
    """A server of our own: its address and process."""
    command = [sys.executable, "-m", "streamlit", "run", app, f"--server.port={port}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            if process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{url}/_stcore/health", timeout=5):
                    yield url, process.pid
                    return
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"the server did not start:\n{log.read_text(errors='replace')}")
    finally:
        if process.poll() is not None:
            print(f"the server ended by itself, with status {process.returncode}")
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def measure(url: str, process: int | None, options: argparse.Namespace) -> bool:
    if options.first_visit:
        asyncio.run(first_visits(url, options))
        print(f"  memory of the server: {memory(process)}")
        return True
    fine = True
    print(f"memory of the server before: {memory(process)}")
    for number in range(options.waves):
        time.sleep(options.rest if number else 0)
        start = time.perf_counter()
        findings = asyncio.run(wave(url, options))
        print(f"wave {number + 1}: {options.learners} learners, {options.actions} actions each")
        fine &= report(findings, time.perf_counter() - start)
        print(f"  memory of the server: {memory(process)}")
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", type=int, default=100)
    parser.add_argument("--actions", type=int, default=15, help="what each learner does after opening the app")
    parser.add_argument("--pause", type=float, nargs=2, default=(2.0, 5.0), metavar=("FROM", "TO"), help="seconds between")
    parser.add_argument("--ramp", type=float, default=10.0, help="seconds over which the learners arrive")
    parser.add_argument("--waves", type=int, default=1, help="classes, one after the other")
    parser.add_argument("--rest", type=float, default=0, help="seconds between them; the server forgets closed tabs after 300")
    parser.add_argument("--group", type=int, default=10, help="learners who do the same things, and must see the same")
    parser.add_argument("--not-compared", nargs="*", default=[], metavar="PAGE", help="pages that show what others did")
    parser.add_argument("--first-visit", type=int, default=0, metavar="N", help="instead: N empty browsers at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--app", default="streamlit_app.py", help="the script to serve")
    parser.add_argument("--url", help="a server that runs already, instead")
    options = parser.parse_args()
    if options.url:
        return 0 if measure(options.url.rstrip("/"), None, options) else 1
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.txt"
        with server(options.app, free_port(), log) as (url, process):
            fine = measure(url, process, options)
        _, *others = log.read_text(errors="replace").split("Traceback")
        print(f"tracebacks in the server's log: {len(others)}")
        if others:
            print(f"Traceback{others[0][-3000:]}")
        return 0 if fine and not others else 1


if __name__ == "__main__":
    sys.exit(main())
