"""Compares the speed of list, watch and logs in two checkouts: this checkout and another one.

The command is `python -m benchmarks.versions CHECKOUT [ROUNDS]`. There is one process for each of the two versions. The
processes execute the same workload in turn, and report its CPU time. Therefore the start of Python and changes of the
machine's speed do not affect the ratio. The workloads use the objects of the recorded streams. Each version executes
the `WORKER` of its own checkout, because the names of modules differ between versions.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKLOADS = ("list", "watch", "logs", "local logs")
BUDGET = 1.05

WORKER = r"""
import asyncio, io, json, sys, time
from pathlib import Path
from stepset.watch.state.reports import Reports
from stepset.watch.cluster.router import Router
from stepset.watch.cluster.status import status_of
from stepset.watch.lines import Joiner, Splitter, log_lines
from stepset.watch.list_watch import ListWatch, decode_list
from stepset.watch.log_cursor import LogCursor
from stepset.backends.kubernetes.logs.rows import rows_of
from types import SimpleNamespace

data = Path(sys.argv[1])
page, events, log = (data / "page").read_bytes(), (data / "events").read_bytes(), (data / "log").read_bytes()
printed = (data / "printed").read_bytes()
EMPTY = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []}
pod = SimpleNamespace(agent=True, source="node 0")

def states(router):
    for run in router.runs:
        status_of(router.objects(run), Reports(), 2e9)

def list_():
    for _ in range(20):
        watch, router = ListWatch(), Router()
        watch.next_request()
        router.see(watch.listed(decode_list(page)))
        states(router)

def watch_():
    watch, router = ListWatch(), Router()
    watch.next_request()
    watch.listed(EMPTY)
    for start in range(0, len(events), 65536):
        router.see(watch.data(events[start:start + 65536]))
        states(router)

async def rows():
    async def chunks():
        cursor = LogCursor(stamped=True)
        for start in range(0, len(log), 65536):
            yield cursor.feed(log[start:start + 65536])
    async for _ in rows_of(pod, chunks(), None):
        pass

def logs():
    asyncio.run(rows())

def local():
    splitter, joiner, reports = Splitter("node 0"), Joiner(), Reports()
    for start in range(0, len(printed), 65536):
        batch = splitter.feed(printed[start:start + 65536])
        reports.see("pod", batch)
        for _ in log_lines(joiner.join(batch.lines)):
            pass

WORK = {"list": list_, "watch": watch_, "logs": logs, "local logs": local}
for name in map(str.strip, sys.stdin):
    began = time.process_time()
    WORK[name]()
    print(time.process_time() - began, flush=True)
"""


def write_data(directory: Path) -> None:
    """Writes the data of the workloads.

    The data are a page of a list, the events of a watch, the log of a pod, and the output of an agent. The lines of the
    pod's log begin with their times.
    """
    from tests.watch.cluster.streams import stream

    changes = [change for _ in range(4) for change in stream("jobset_succeeds")]
    items = [change.object for change in changes]
    found = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}
    (directory / "page").write_text(json.dumps(found))
    events = (json.dumps({"type": change.verb, "object": change.object}) for change in changes * 5)
    (directory / "events").write_text("".join(f"{each}\n" for each in events))
    lines = [f"[rank {number % 8}] step {number} {'x' * 80}\n" for number in range(200_000)]
    (directory / "printed").write_text("".join(lines))
    stamps = (f"2026-01-01T12:{n // 60_000 % 60:02}:{n // 1000 % 60:02}.{n % 1000:03}456789Z " for n in range(200_000))
    (directory / "log").write_text("".join(stamp + line for stamp, line in zip(stamps, lines, strict=True)))


def start(checkout: Path, data: Path) -> subprocess.Popen[str]:
    """Starts a process that uses the sources and the `WORKER` of a checkout.

    The process reads names of workloads and executes these workloads.
    """
    env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    words = [sys.executable, "-c", "from benchmarks.versions import WORKER; exec(WORKER)", str(data)]
    return subprocess.Popen(words, env=env, cwd=data, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def seconds(process: subprocess.Popen[str], workload: str) -> float:
    """Executes a workload in a process and returns the CPU seconds of the workload."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(workload, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main(arguments: Sequence[str]) -> int:
    """Prints a row for each workload. Returns 1 if a ratio exceeds the limit."""
    other, rounds = Path(arguments[0]).resolve(), int(arguments[1]) if len(arguments) > 1 else 15
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        write_data(Path(directory))
        with start(ROOT, Path(directory)) as ours, start(other, Path(directory)) as theirs:
            for workload in WORKLOADS:
                pairs = [(seconds(ours, workload), seconds(theirs, workload)) for _ in range(rounds + 1)][1:]
                ratio = statistics.median(a / b for a, b in pairs)
                a, b = (1000 * statistics.median(side) for side in zip(*pairs, strict=True))
                print(f"| {workload} | {ratio:.3f} x CPU ({a:.0f} ms against {b:.0f} ms) |", flush=True)
                worst = max(worst, ratio)
            for process in (ours, theirs):
                process.communicate()
    return int(worst > BUDGET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
