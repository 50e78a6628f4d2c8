"""When and how the processes of a pod are stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from stepset.agent import stopping
from stepset.agent.config import Config
from stepset.agent.stopping import SHORT_GRACE, Stopping


class Pod:
    """The processes of a pod, with the attributes that `Stopping` uses."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.killed = 0
        self.running: dict[int, int] = {}
        self.seen: set[int] = set()

    def forward(self, number: int) -> None:
        self.sent.append(number)

    def kill_all(self) -> None:
        self.killed += 1


@pytest.fixture
def pod() -> Pod:
    return Pod()


@pytest.fixture
def make(config: Callable[..., Config], pod: Pod) -> Callable[..., Stopping]:
    parts: Any = pod
    return lambda **more: Stopping(config(**more), parts, parts)


def test_the_first_signal_is_passed_on_and_the_second_kills(make: Callable[..., Stopping], pod: Pod) -> None:
    stop = make(grace=1000)
    stop.request(signal.SIGINT)
    stop.act_on_deadlines(time.monotonic())
    assert (pod.sent, pod.killed, stop.requested) == ([signal.SIGINT], 0, signal.SIGINT)
    stop.request(signal.SIGTERM)
    stop.act_on_deadlines(time.monotonic())
    assert (pod.sent, pod.killed, stop.requested) == ([signal.SIGINT], 1, signal.SIGINT)


def test_the_remaining_processes_are_killed_once_after_the_grace_period(
    make: Callable[..., Stopping], pod: Pod
) -> None:
    stop = make(grace=1000)
    stop.request(signal.SIGTERM)
    (due,) = stop.deadlines()
    for at in (due - 1, due, due + 1):
        stop.act_on_deadlines(at)
    assert pod.killed == 1
    assert stop.deadlines() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_after_a_failure_the_other_ranks_are_stopped_unless_the_launcher_restarts(
    make: Callable[..., Stopping], pod: Pod, restarts: bool
) -> None:
    stop = make(launcher_restarts=restarts)
    stop.after_failure()
    stop.act_on_deadlines(time.monotonic())
    assert pod.sent == []
    stop.act_on_deadlines(time.monotonic() + SHORT_GRACE)
    assert pod.sent == ([] if restarts else [signal.SIGTERM])
    assert stop.requested == 0


def test_the_shorter_grace_period_counts(make: Callable[..., Stopping]) -> None:
    stop = make(grace=1000)
    stop.request(signal.SIGTERM)
    stop.start(signal.SIGTERM, 1)
    stop.start(signal.SIGTERM, 500)
    assert stop.deadlines()[0] < time.monotonic() + 2


def test_mpirun_gets_another_signal(make: Callable[..., Stopping], pod: Pod) -> None:
    make(launcher=["mpirun"], mpi=True).request(signal.SIGTERM)
    assert pod.sent == [signal.SIGUSR1]


def test_a_node_of_an_mpi_run_stops_its_ranks_before_sshd(
    make: Callable[..., Stopping], pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    forwarded: list[tuple[int, int]] = []
    monkeypatch.setattr(stopping, "forward_signal", lambda pid, number: forwarded.append((pid, number)))
    pod.running = {0: 71, 1: 72}
    stop = make()
    stop.request(signal.SIGTERM)
    stop.act_on_deadlines(time.monotonic())
    assert (forwarded, pod.sent) == ([(71, signal.SIGTERM), (72, signal.SIGTERM)], [])
    pod.running = {}
    stop.act_on_deadlines(time.monotonic())
    stop.act_on_deadlines(time.monotonic())
    assert pod.sent == [signal.SIGTERM]


def test_a_launcher_whose_ranks_have_ended_is_stopped(make: Callable[..., Stopping], pod: Pod) -> None:
    stop = make(launcher=["torchrun"], grace=1000)
    stop.request(signal.SIGTERM)
    stop.act_on_deadlines(time.monotonic() + 1)
    assert stop.deadlines()[0] > time.monotonic() + 900
    pod.seen = {0}
    at = time.monotonic()
    stop.act_on_deadlines(at)
    assert stop.deadlines() == [at + SHORT_GRACE]
