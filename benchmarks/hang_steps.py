"""Measures what the detection of hangs costs: the start of Python, and the collectives of a training.

Two agents run at the same time, one with `hang` and one without. They take turns: each executes a block of collectives
while the other waits. The fastest blocks are compared, because other processes of the machine only make a block slower.
The collectives have one rank, because the time in which two ranks wait for each other depends on the scheduler.
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

PAIRS, BLOCKS, COLLECTIVES, STEPS = 5, 40, 500, 50
STARTS = 200
PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
first = dist.get_rank() == 0
batch = torch.ones(32, 64)
model = torch.nn.Linear(64, 64)
if dist.get_world_size() == 1:
    def step():
        dist.all_reduce(batch)
else:
    model = torch.nn.parallel.DistributedDataParallel(model)
    def step():
        model(batch).sum().backward()
go = open(sys.argv[1]) if first else None
done = open(sys.argv[2], "w", buffering=1) if first else None
while True:
    if first and not go.readline():
        os._exit(0)
    start = time.perf_counter()
    for _ in range(int(sys.argv[3])):
        step()
    if first:
        done.write("%r\\n" % (time.perf_counter() - start))
"""
_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RANK", "STEPSET_"))}


class Training:
    """A pod that executes blocks of steps on request: collectives if it has one rank, otherwise steps of DDP.

    Args:
        directory: an empty directory.
        stack: ends the pod.
        ranks: the number of ranks.
        steps: the number of steps of a block.
        hang: whether the agent detects hangs.
    """

    def __init__(self, directory: Path, stack: ExitStack, ranks: int, steps: int, *, hang: bool) -> None:
        directory.mkdir()
        program, go, done = (directory / name for name in ("train.py", "go", "done"))
        program.write_text(PROGRAM)
        os.mkfifo(go)
        os.mkfifo(done)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        env = {"RANK": "{rank}", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        config = {
            "version": 1,
            "group": "node",
            "dir": str(directory / "agent"),
            "processes": ranks,
            "process_env": env,
        }
        config |= {"grace": 1, **({"hang": {"after": 300, "first": 1200}} if hang else {})}
        (directory / "config.json").write_text(json.dumps(config))
        command = [sys.executable, "-I", "-S", str(BUILT_FILE), "run", str(directory / "config.json"), "--"]
        command += [sys.executable, str(program), str(go), str(done), str(steps)]
        self._agent = stack.enter_context(subprocess.Popen(command, env=_ENV, stdout=subprocess.DEVNULL))
        stack.callback(self._agent.terminate)
        self._go: IO[str] = stack.enter_context(go.open("w", buffering=1))
        self._done: IO[str] = stack.enter_context(done.open())

    def block(self) -> float:
        """Executes a block of steps, and returns its duration in seconds."""
        self._go.write("\n")
        return float(self._done.readline())


def rows() -> list[Row]:
    """Returns a row for the collectives, and one for each start of Python."""
    return [_collectives(), _starts("with the compiled copy", compiled=True), _starts("without a compiled copy")]


def _collectives() -> Row:
    pairs = [_fastest_blocks() for _ in range(PAIRS)]
    added = (min(on for on, _ in pairs) - min(off for _, off in pairs)) / COLLECTIVES
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        training = Training(Path(directory, "steps"), stack, 2, STEPS, hang=False)
        step = min(training.block() for _ in range(BLOCKS)) / STEPS
    share = added / step
    measured = f"{added * 1e6:+.1f} µs, {share:+.2%} of the fastest step of DDP with one bucket ({step * 1000:.2f} ms)"
    what = f"a collective of torch with gloo, with `hang` against without, fastest of {PAIRS * BLOCKS} blocks"
    return Row(what, measured, "<= 0.5 % of a step", share <= 0.005)


def _fastest_blocks() -> tuple[float, float]:
    """Returns the duration of the fastest block of collectives with `hang` and without, in seconds."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        on, off = (Training(Path(directory, name), stack, 1, COLLECTIVES, hang=name == "on") for name in ("on", "off"))
        turns = [(on.block(), off.block()) for _ in range(BLOCKS)]
    return min(turn[0] for turn in turns), min(turn[1] for turn in turns)


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
