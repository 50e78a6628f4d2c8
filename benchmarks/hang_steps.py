"""Measures what the detection of hangs costs: the start of Python, and the steps of a training with two ranks.

Two agents train at the same time, one with `hang` and one without. They take turns: each executes a block of steps
while the other waits. Therefore both measure the same machine.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from benchmarks.paired import Row
from stepset.agent import BUILT_FILE

BLOCKS, STEPS = 60, 50
STARTS = 200
PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
first = dist.get_rank() == 0
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
batch = torch.ones(32, 64)
go = open(sys.argv[1]) if first else None
done = open(sys.argv[2], "w", buffering=1) if first else None
while True:
    if first and not go.readline():
        os._exit(0)
    start = time.perf_counter()
    for _ in range(int(sys.argv[3])):
        model(batch).sum().backward()
    if first:
        done.write("%r\\n" % (time.perf_counter() - start))
"""
_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RANK", "STEPSET_"))}


class Training:
    """A pod with two ranks that executes blocks of steps on request.

    Args:
        directory: an empty directory.
        stack: ends the pod.
        hang: whether the agent detects hangs.
    """

    def __init__(self, directory: Path, stack: ExitStack, *, hang: bool) -> None:
        directory.mkdir()
        program, go, done = (directory / name for name in ("train.py", "go", "done"))
        program.write_text(PROGRAM)
        os.mkfifo(go)
        os.mkfifo(done)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        ranks = {"RANK": "{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        config = {"version": 1, "group": "node", "dir": str(directory / "agent"), "processes": 2, "process_env": ranks}
        config |= {"grace": 1, **({"hang": {"after": 300, "first": 1200}} if hang else {})}
        (directory / "config.json").write_text(json.dumps(config))
        command = [sys.executable, "-I", "-S", str(BUILT_FILE), "run", str(directory / "config.json"), "--"]
        command += [sys.executable, str(program), str(go), str(done), str(STEPS)]
        self._agent = stack.enter_context(subprocess.Popen(command, env=_ENV, stdout=subprocess.DEVNULL))
        stack.callback(self._agent.terminate)
        self._go: IO[str] = stack.enter_context(go.open("w", buffering=1))
        self._done: IO[str] = stack.enter_context(done.open())

    def block(self) -> float:
        """Executes a block of steps, and returns its duration in seconds."""
        self._go.write("\n")
        return float(self._done.readline())


def rows() -> list[Row]:
    """Returns a row for the steps, and one for each start of Python."""
    return [_steps(), _starts("with the compiled copy", compiled=True), _starts("without a compiled copy")]


def _steps() -> Row:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        ours, theirs = (Training(Path(directory, name), stack, hang=name == "on") for name in ("on", "off"))
        for _ in range(5):
            ours.block(), theirs.block()
        ratios, seconds = [], []
        for number in range(BLOCKS):
            if number % 2:
                a, b = ours.block(), theirs.block()
            else:
                b, a = theirs.block(), ours.block()
            ratios.append(a / b)
            seconds.append(b)
    low, median, high = statistics.quantiles(ratios, n=4)
    step = statistics.median(seconds) / STEPS * 1000
    measured = f"{median:.3f} x (quartiles of {BLOCKS} pairs: {low:.3f} and {high:.3f}), {step:.2f} ms a step"
    what = f"{BLOCKS * STEPS} small steps of DDP with gloo, two ranks, with `hang` against without"
    return Row(what, measured, "<= 1.005 x", median <= 1.005)


def _starts(how: str, *, compiled: bool = False) -> Row:
    from stepset.agent.config import read_config
    from stepset.agent.setup import write_hook

    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "config.json")
        hang = {"after": 300, "first": 1200}
        config.write_text(json.dumps({"version": 1, "group": "node", "dir": directory, "processes": 1, "hang": hang}))
        write_hook(read_config(str(config)), _source)
        hook = Path(directory, "hook")
        if not compiled:
            for path in (hook / "__pycache__").iterdir():
                path.unlink()
        env = {**_ENV, "PYTHONDONTWRITEBYTECODE": "1"}
        with_hook, without = {**env, "PYTHONPATH": str(hook)}, {**env, "PYTHONPATH": "/nonexistent"}
        wall, cpu = [], []
        for number in range(STARTS):
            order = (with_hook, without) if number % 2 else (without, with_hook)
            found = {id(each): _start(each) for each in order}
            (a, a_cpu), (b, b_cpu) = found[id(with_hook)], found[id(without)]
            wall.append((a - b) * 1000)
            cpu.append((a_cpu - b_cpu) * 1000)
    measured = f"{statistics.median(wall):+.1f} ms wall, {statistics.median(cpu):+.1f} ms CPU"
    what = f"start of Python with the hook, {how}, against a start without the hook, {STARTS} pairs"
    return Row(what, measured, "<= 5 ms", statistics.median(wall) <= 5)


def _source(module: str) -> str:
    from tools.build_agent import PACKAGE, strip

    return strip(PACKAGE / Path(*module.split(".")[2:]).with_suffix(".py"))


def _start(env: dict[str, str]) -> tuple[float, float]:
    """Starts Python once. Returns its wall-clock and CPU seconds."""
    start = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "1"], env)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"Python ended with {status}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime
