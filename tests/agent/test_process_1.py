"""The agent as process 1 of a pod: the kernel delivers only signals that it handles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.pods import AGENT, Pod, Running
from tests.waiting import until

AS_PROCESS_1 = ["unshare", "--pid", "--fork", "--kill-child"]


@pytest.fixture
def starting(pod: Pod) -> Iterator[tuple[Running, int, int]]:
    """An agent that has started and waits for its config: its handle, its process, and the path of the config."""
    if subprocess.run([*AS_PROCESS_1, "true"], capture_output=True, check=False).returncode:
        pytest.skip("process namespaces are only for root here")
    config = pod.directory / "config.json"
    os.mkfifo(config)
    words = [*AS_PROCESS_1, pod.python, "-I", "-S", str(AGENT), "run", str(config), "--", "touch", str(ran(pod))]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Running(process, pod.directory / "termination-log", "no mark: its namespace ends with it") as running:
        written = os.open(config, os.O_WRONLY)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield running, int(children[0]), written


def ran(pod: Pod) -> Path:
    return pod.directory / "ran"


def configured(pod: Pod, written: int) -> None:
    config = {"version": 1, "group": "node", "dir": str(pod.dir), "termination_log": str(pod.directory / "log")}
    os.write(written, json.dumps(config).encode())
    os.close(written)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_during_the_start_stops_it(pod: Pod, starting: tuple[Running, int, int], number: int) -> None:
    running, agent, written = starting
    os.kill(agent, number)
    configured(pod, written)
    ended = running.end()
    assert (ended.exit_code, ended.err) == (128 + number, b"")
    assert not ran(pod).exists()


def test_without_one_its_command_runs(pod: Pod, starting: tuple[Running, int, int]) -> None:
    running, _, written = starting
    configured(pod, written)
    assert running.end().exit_code == 0
    assert until(ran(pod).exists)
