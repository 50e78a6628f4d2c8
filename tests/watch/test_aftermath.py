"""Lines that follow another rank's failure are marked; all others are delivered unmarked, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from stepset.run_status import LogLine
from stepset.watch import run_lines as aftermath
from stepset.watch.lines import OpenLine, Splitter
from stepset.watch.run_lines import HOLD, TRACEBACK, TRACEBACK_HOLD, RunLines

PEER = "RuntimeError: Connection closed by peer"


class Run:
    """A run of two pods with two ranks each; `shown` are its unmarked lines, `marked` the others."""

    def __init__(self) -> None:
        self.lines = RunLines()
        self.now = 100.0
        self.shown: list[str] = []
        self.marked: list[str] = []
        self.open: list[OpenLine] = []
        self._splitters: dict[str, Splitter] = {}
        self.start()

    def start(self) -> None:
        for rank in range(4):
            self.event(rank, "started", local_rank=rank % 2, pid=1)

    def put(self, pod: str, text: str, *, known: bool = False) -> None:
        batch = self._splitters.setdefault(pod, Splitter("node 0")).feed(text.encode())
        self._take(self.lines.feed(pod, batch, self.now, known=known))

    def event(self, rank: int, name: str, pod: str = "", **fields: object) -> None:
        event = {"event": name, "rank": rank, "at": self.now, **fields}
        self.put(pod or f"pod-{rank // 2}", f"[stepset] {json.dumps(event)}\n")

    def print(self, source: str, *texts: str) -> None:
        _, _, number = source.partition("rank ")
        pod = f"pod-{int(number) // 2}" if number else "pod-0"
        self.put(pod, "".join(f"[{source}] {text}\n" for text in texts))

    def fail(self, rank: int, error: str, **fields: object) -> None:
        end = fields or {"exit_code": 1}
        self.event(rank, "exited", **end)
        self.event(rank, "failed", error=error, **end)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._take(self.lines.due(self.now))

    def end(self) -> None:
        self._take(self.lines.end_attempt())

    def _take(self, lines: Iterable[LogLine | OpenLine]) -> None:
        for line in lines:
            if isinstance(line, OpenLine):
                self.open.append(line)
            else:
                (self.marked if line.aftermath else self.shown).append(f"{line.source}: {line.text}")


BARRIER = """\
[W1127 15:19:27.613065428 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=5): Failed to recv
Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:786 (most recent call first):
frame #22: _start + 0x21 (0x627bd1 in /usr/bin/python3)
<omitting python frames>

E1127 15:19:27.6 42 torch/distributed/elastic/agent/server/api.py:1007] Error waiting on exit barrier. Elapsed: 3 s
E1127 15:19:27.6 42 torch/distributed/elastic/agent/server/api.py:1007] Traceback (most recent call last):
""".splitlines()


class TestAfterTheRanksHaveExitedWith0:
    def put(self, run: Run) -> None:
        run.put("pod-1", "".join(f"[node 1] {text}\n" for text in BARRIER))

    def test_what_torchrun_prints_at_its_exit_barrier_is_marked(self) -> None:
        run = Run()
        for rank in (2, 3):
            run.event(rank, "exited", exit_code=0)
        self.put(run)
        assert (run.shown, run.marked) == ([], [f"node 1: {text}" for text in BARRIER])

    def test_the_lines_of_a_later_program_are_shown(self) -> None:
        run = Run()
        for rank in (2, 3):
            run.event(rank, "exited", exit_code=0)
        run.put("pod-1", "[node 1] exported model.onnx\n")
        assert run.shown == ["node 1: exported model.onnx"]

    def test_the_lines_are_shown_while_a_rank_of_the_pod_runs(self) -> None:
        run = Run()
        run.event(2, "exited", exit_code=0)
        self.put(run)
        run.wait(TRACEBACK_HOLD)
        assert (run.shown, run.marked) == ([f"node 1: {text}" for text in BARRIER], [])

    def test_the_lines_are_shown_if_the_ranks_start_again(self) -> None:
        run = Run()
        for rank in (2, 3):
            run.event(rank, "exited", exit_code=0)
        run.event(3, "started", local_rank=1, pid=2)
        self.put(run)
        assert (run.shown, run.marked) == ([f"node 1: {text}" for text in BARRIER], [])

    def test_a_pod_is_finished_only_when_a_rank_that_moved_to_the_pod_has_exited(self) -> None:
        run = Run()
        run.event(1, "started", pod="pod-1", local_rank=2, pid=1)
        for rank in (2, 3):
            run.event(rank, "exited", exit_code=0)
        self.put(run)
        assert run.marked == []


class TestAfterAnErrorOfOneRank:
    def test_its_traceback_is_shown_and_lines_of_launchers_and_stopped_ranks_are_marked(self) -> None:
        run = Run()
        run.print("rank 1", TRACEBACK, "ValueError: bad batch")
        run.fail(1, "ValueError: bad batch")
        run.print("rank 0", TRACEBACK, PEER)
        run.fail(0, PEER)
        run.print("rank 2", "step 3")
        run.event(2, "exited", signal=15)
        run.print("node 0", "ChildFailedError")
        run.end()
        assert run.shown == [f"rank 1: {TRACEBACK}", "rank 1: ValueError: bad batch"]
        assert run.marked == ["node 0: ChildFailedError", f"rank 0: {TRACEBACK}", f"rank 0: {PEER}", "rank 2: step 3"]

    def test_tracebacks_of_peers_are_marked_even_if_they_are_printed_before_the_failure_is_reported(self) -> None:
        run = Run()
        run.print("rank 1", TRACEBACK, "ValueError: bad batch")
        run.print("rank 0", TRACEBACK, PEER)
        run.event(0, "exited", exit_code=1)
        run.event(1, "exited", exit_code=1)
        assert run.shown == [f"rank 1: {TRACEBACK}", "rank 1: ValueError: bad batch"]
        run.event(0, "failed", exit_code=1, error=PEER)
        run.end()
        assert run.marked == [f"rank 0: {TRACEBACK}", f"rank 0: {PEER}"]

    def test_lines_of_launchers_between_a_traceback_and_the_report_of_the_failure_are_marked(self) -> None:
        run = Run()
        run.print("node 0", "before")
        run.print("rank 1", TRACEBACK, "ValueError: bad batch")
        run.print("node 0", "closing signal SIGTERM")
        run.event(1, "exited", exit_code=1)
        run.print("node 0", "ChildFailedError")
        run.end()
        assert run.shown == ["node 0: before", f"rank 1: {TRACEBACK}", "rank 1: ValueError: bad batch"]
        assert run.marked == ["node 0: closing signal SIGTERM", "node 0: ChildFailedError"]

    def test_in_one_chunk_lines_before_the_failure_are_shown_and_later_ones_are_marked(self) -> None:
        run = Run()
        failed = {"event": "failed", "rank": 0, "exit_code": 1, "error": "ValueError: x", "at": 1}
        run.put("pod-0", f"[node 0] before\n[stepset] {json.dumps(failed)}\n[node 0] after\n")
        assert (run.shown, run.marked) == (["node 0: before"], ["node 0: after"])

    def test_lines_of_mpirun_are_marked_although_its_pod_was_silent_before(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.put("launcher", "[launcher] Primary job terminated normally\n")
        run.put("launcher", "[launcher] Exit code: 1\n")
        assert run.marked == ["launcher: Primary job terminated normally", "launcher: Exit code: 1"]

    def test_a_rank_that_fails_with_an_error_of_its_own_is_shown(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.print("rank 2", TRACEBACK, "KeyError: 'x'")
        run.fail(2, "KeyError: 'x'")
        assert run.shown == [f"rank 2: {TRACEBACK}", "rank 2: KeyError: 'x'"]

    def test_the_same_traceback_of_a_second_rank_is_marked(self) -> None:
        run = Run()
        for rank in (1, 2, 3):
            run.print(f"rank {rank}", f"[rank{rank}]: {TRACEBACK}", f"[rank{rank}]: ValueError: {rank == 3}")
        for rank in (1, 2, 3):
            run.fail(rank, f"ValueError: {rank == 3}")
        assert [line.partition(": ")[0] for line in run.shown] == ["rank 1", "rank 1", "rank 3", "rank 3"]
        assert [line.partition(": ")[0] for line in run.marked] == ["rank 2", "rank 2"]

    def test_of_equal_tracebacks_the_first_is_shown_even_if_its_rank_exits_later(self) -> None:
        run = Run()
        for rank in (2, 1):
            run.print(f"rank {rank}", TRACEBACK, "EOFError: EOF when reading a line")
        for rank in (1, 2):
            run.fail(rank, "EOFError: EOF when reading a line")
        assert [line.partition(": ")[0] for line in run.shown] == ["rank 2", "rank 2"]
        assert [line.partition(": ")[0] for line in run.marked] == ["rank 1", "rank 1"]

    def test_a_rank_that_ends_with_0_is_shown(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.print("rank 2", "saved")
        run.event(2, "exited", exit_code=0)
        run.print("rank 2", "bye")
        assert (run.shown, run.marked) == (["rank 2: saved", "rank 2: bye"], [])

    def test_lines_of_a_rank_that_is_not_stopped_are_shown_later(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        for step in range(60):
            run.print("rank 3", f"step {step}")
            run.wait(1.0)
        assert run.shown[:50] == [f"rank 3: step {step}" for step in range(50)]
        run.event(3, "exited", signal=15)
        run.end()
        assert len(run.shown) + len(run.marked) == 60
        assert run.marked == [f"rank 3: step {step}" for step in range(len(run.shown), 60)]
        assert len(run.marked) <= HOLD

    def test_lines_of_roles_are_shown(self) -> None:
        run = Run()
        run.put("role", "[monitor-0] a\n")
        run.fail(1, "ValueError: bad batch")
        run.put("role", "[monitor-0] b\n")
        assert run.shown == ["monitor-0: a", "monitor-0: b"]

    def test_at_most_a_bounded_number_of_lines_is_held(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        count = aftermath._LINES + 500
        run.print("rank 2", *map(str, range(count)))
        assert run.shown == [f"rank 2: {number}" for number in range(500)]


class TestWithoutATraceback:
    @pytest.mark.parametrize("end", [{"exit_code": 3}, {"signal": 9}, {"signal": 15}, {"exit_code": 143}], ids=str)
    def test_the_end_of_a_rank_that_its_launcher_has_not_stopped_is_a_first_failure(self, end: dict[str, int]) -> None:
        run = Run()
        run.print("rank 1", "its last line")
        run.fail(1, "", **end)
        run.print("node 0", "ChildFailedError")
        run.print("rank 0", TRACEBACK, PEER)
        run.fail(0, PEER)
        run.end()
        assert run.shown == ["rank 1: its last line"]
        assert run.marked == ["node 0: ChildFailedError", f"rank 0: {TRACEBACK}", f"rank 0: {PEER}"]

    def test_a_peer_whose_traceback_is_printed_before_the_end_is_reported_is_marked(self) -> None:
        run = Run()
        run.print("rank 0", TRACEBACK, PEER)
        run.event(0, "exited", exit_code=1)
        run.print("node 0", "closing signal SIGTERM")
        run.fail(1, "", signal=9)
        run.fail(0, PEER)
        run.end()
        assert (run.shown, len(run.marked)) == ([], 3)

    @pytest.mark.parametrize("exited_first", [True, False])
    def test_lines_of_launchers_are_marked_if_a_peer_has_exited_with_0(self, exited_first: bool) -> None:
        run = Run()
        if exited_first:
            run.event(2, "exited", exit_code=0)
        run.print("rank 0", TRACEBACK, PEER)
        run.fail(0, PEER)
        if not exited_first:
            run.event(2, "exited", exit_code=0)
        run.print("rank 1", TRACEBACK, PEER)
        run.print("node 0", "ChildFailedError:")
        run.fail(1, PEER)
        run.end()
        assert run.shown == [f"rank 0: {TRACEBACK}", f"rank 0: {PEER}"]
        assert run.marked == ["node 0: ChildFailedError:", f"rank 1: {TRACEBACK}", f"rank 1: {PEER}"]

    def test_lines_of_launchers_are_shown_while_ranks_have_only_lost_a_peer_or_were_stopped(self) -> None:
        """The launcher itself has failed, and its output is the only explanation."""
        run = Run()
        run.event(0, "exited", signal=15)
        run.print("rank 1", TRACEBACK, PEER)
        run.fail(1, PEER)
        run.print("node 0", "RendezvousTimeoutError")
        run.wait(TRACEBACK_HOLD)
        assert run.marked == []
        assert run.shown == [f"rank 1: {TRACEBACK}", f"rank 1: {PEER}", "node 0: RendezvousTimeoutError"]

    def test_a_kill_that_follows_an_error_is_aftermath(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.event(2, "failed", signal=9, error="", at=run.now + 1)
        run.print("node 0", "killed")
        assert run.marked == ["node 0: killed"]

    def test_failures_of_ranks_that_the_agent_does_not_start_mark_nothing(self) -> None:
        run = Run()
        run.event(17, "failed", exit_code=1, error="ValueError: x")
        run.print("node 0", "[rank 3] of the user's torchrun")
        assert run.shown == ["node 0: [rank 3] of the user's torchrun"]

    def test_a_traceback_of_a_rank_that_continues_is_shown_in_order_after_two_seconds(self) -> None:
        run = Run()
        run.print("rank 0", "a", TRACEBACK, "b")
        run.print("rank 1", "c")
        assert run.shown == ["rank 0: a", "rank 1: c"]
        run.wait(TRACEBACK_HOLD)
        run.print("rank 0", "d")
        assert run.shown[2:] == [f"rank 0: {TRACEBACK}", "rank 0: b", "rank 0: d"]


DEATH = "W1127 api.py:752] Received 15 death signal, shutting down workers"


class TestWhileTheRunIsStopped:
    """After Ctrl-C, at the deadline, and on a cluster, where only the launchers report that they are stopped."""

    def test_lines_of_launchers_are_marked_and_those_of_ranks_are_shown(self) -> None:
        run = Run()
        run.print("node 0", "before")
        run.lines.stop()
        run.print("node 0", DEATH, TRACEBACK, "SignalException")
        run.print("rank 0", "saved step 7")
        run.event(0, "exited", exit_code=0)
        run.event(1, "exited", signal=15)
        run.end()
        assert run.shown == ["node 0: before", "rank 0: saved step 7"]
        assert run.marked == [f"node 0: {DEATH}", f"node 0: {TRACEBACK}", "node 0: SignalException"]

    @pytest.mark.parametrize("reported", ["by the backend", "by torchrun"])
    def test_tracebacks_of_ranks_that_end_are_marked(self, reported: str) -> None:
        run = Run()
        if reported == "by the backend":
            run.lines.stop()
        else:
            run.print("node 0", DEATH)
        run.print("rank 0", "saving", TRACEBACK, "KeyboardInterrupt")
        run.event(0, "exited", signal=2)
        run.print("rank 1", TRACEBACK, PEER)
        run.event(1, "exited", exit_code=1)
        run.wait(HOLD)
        assert run.shown == ["rank 0: saving"]
        assert [line for line in run.marked if line.startswith("rank")] == [
            f"rank 0: {TRACEBACK}",
            "rank 0: KeyboardInterrupt",
            f"rank 1: {TRACEBACK}",
            f"rank 1: {PEER}",
        ]

    def test_an_error_of_its_own_is_shown(self) -> None:
        run = Run()
        run.lines.stop()
        run.print("rank 1", TRACEBACK, "OSError: No space left on device")
        run.event(1, "exited", exit_code=1)
        assert run.shown == [f"rank 1: {TRACEBACK}", "rank 1: OSError: No space left on device"]

    def test_lines_of_launchers_in_other_pods_are_shown_if_only_one_pod_is_stopped(self) -> None:
        """A pod of an elastic world is evicted, and the others continue without it."""
        run = Run()
        run.print("node 0", DEATH)
        run.put("pod-1", "[node 1] new rendezvous\n")
        run.print("node 0", "SignalException")
        assert (run.shown, len(run.marked)) == (["node 1: new rendezvous"], 2)
        run.start()
        run.print("node 0", "again")
        assert run.shown[1:] == ["node 0: again"]


class TestANewAttempt:
    def test_of_an_elastic_world_is_shown_once_a_rank_starts_again(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.print("node 0", "restarting")
        run.print("rank 2", "stopped")
        run.start()
        run.print("node 0", "again")
        run.print("rank 2", "hello")
        assert run.marked == ["node 0: restarting", "rank 2: stopped"]
        assert run.shown == ["node 0: again", "rank 2: hello"]

    def test_in_new_pods_is_shown_before_its_ranks_start(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.put("pod-0-again", "[node 0] hello\n")
        assert run.shown == ["node 0: hello"]

    def test_in_a_new_pod_of_mpirun_is_shown(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.put("launcher", "[launcher] Primary job terminated normally\n")
        run.put("launcher-again", "[launcher] hello\n")
        assert run.shown == ["launcher: hello"]

    def test_can_fail_like_the_first_one(self) -> None:
        run = Run()
        run.fail(1, "ValueError: bad batch")
        run.end()
        run.start()
        run.print("node 0", "hello")
        run.fail(2, "ValueError: bad batch")
        run.print("node 0", "failed")
        assert (run.shown, run.marked) == (["node 0: hello"], ["node 0: failed"])


def test_lines_that_another_process_has_delivered_are_left_out_and_their_events_count() -> None:
    run = Run()
    failed = {"event": "failed", "rank": 0, "exit_code": 1, "error": "ValueError: x", "at": 1}
    run.put("pod-0", f"[rank 0] old\n[rank 0~] 5 %\n[stepset] {json.dumps(failed)}\n", known=True)
    run.print("node 0", "new")
    assert (run.shown, run.marked, run.open) == ([], ["node 0: new"], [])


def test_states_of_incomplete_lines_are_delivered_between_the_lines() -> None:
    splitter, lines = Splitter("node 0"), RunLines()
    batch = splitter.feed(b"[rank 0] a\n[rank 0~] \x1b[A5 %\n[rank 0] b\n[launcher~] x\n")
    assert list(lines.feed("pod", batch, 0.0)) == [
        LogLine("rank 0", "a"),
        OpenLine("rank 0", "5 %"),
        LogLine("rank 0", "b"),
        OpenLine("launcher", "x"),
    ]
    assert batch.shown == b"[rank 0] a\n[rank 0] b\n"
    assert b"".join(batch.raw["rank 0"]) == b"a\nb\n"
