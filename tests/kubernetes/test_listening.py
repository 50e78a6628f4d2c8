"""A listener receives the lines of a followed run's pods, with the marks of lines that follow the first failure."""

from __future__ import annotations

import asyncio

from stepset.backends.kubernetes.listening import ListenerObserver
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.run_status import LogLine, Phase, RunStatus
from stepset.watch.lines import OpenLine, Splitter
from stepset.watch.run_lines import TRACEBACK, TRACEBACK_HOLD

RUN = RunStatus("run", "run", "kubernetes", phase=Phase.RUNNING)
STARTED = b'[stepset] {"event": "started", "rank": 0, "local_rank": 0, "pid": 1}\n'
FAILED = b'[stepset] {"event": "failed", "rank": 0, "exit_code": 1, "error": "ValueError: x", "at": 1}\n'


class Listener:
    """Records what it receives."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []

    def on_line(self, line: LogLine) -> None:
        self.lines.append(line)

    def on_status(self, status: RunStatus) -> None:
        pass


class LiveListener(Listener):
    """Records states of incomplete lines, too."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[OpenLine] = []

    def on_open_line(self, line: OpenLine) -> None:
        self.open.append(line)


def output(data: bytes) -> PodOutput:
    return PodOutput("uid", Splitter("node 0").feed(data), {})


def test_lines_of_the_launcher_after_the_failure_of_a_rank_are_marked() -> None:
    async def follow() -> list[LogLine]:
        async with ListenerObserver(listener := Listener()) as observer:
            await observer.on_output(output(STARTED + b"[rank 0] a\n" + FAILED + b"[node 0] b\n"))
        return listener.lines

    assert asyncio.run(follow()) == [LogLine("rank 0", "a"), LogLine("node 0", "b", aftermath=True)]


def test_held_lines_are_delivered_before_the_final_status() -> None:
    async def follow() -> list[LogLine]:
        async with ListenerObserver(listener := Listener()) as observer:
            await observer.on_output(output(STARTED + f"[rank 0] {TRACEBACK}\n".encode()))
            assert listener.lines == []
            await observer.on_status(RUN.with_(phase=Phase.FAILED))
        return listener.lines

    assert asyncio.run(follow()) == [LogLine("rank 0", TRACEBACK)]


def test_held_lines_of_a_silent_run_are_delivered_in_time() -> None:
    async def follow() -> list[LogLine]:
        async with ListenerObserver(listener := Listener()) as observer:
            await observer.on_output(output(STARTED + f"[rank 0] {TRACEBACK}\n".encode()))
            await asyncio.sleep(TRACEBACK_HOLD)
            await observer.on_tick()
        return listener.lines

    assert asyncio.run(follow()) == [LogLine("rank 0", TRACEBACK)]


def test_states_of_incomplete_lines_are_delivered_to_listeners_that_accept_them() -> None:
    async def follow(listener: Listener) -> None:
        async with ListenerObserver(listener, frozenset({"rank 0"})) as observer:
            await observer.on_output(output(b"[rank 0~] 5 %\n[rank 1~] 6 %\n[rank 0] 10 %\n"))

    asyncio.run(follow(live := LiveListener()))
    asyncio.run(follow(plain := Listener()))
    assert live.open == [OpenLine("rank 0", "5 %")]
    assert live.lines == plain.lines == [LogLine("rank 0", "10 %")]
