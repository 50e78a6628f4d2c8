"""The class of a hang, and the ranks that are its cause. A rank that makes progress is never reported."""

from __future__ import annotations

import pytest

from stepset.hang import Hang
from tests.watch.hangs.evidence import (
    ALL_REDUCE,
    BACKWARD,
    INIT,
    SHUTDOWN,
    SITE,
    SLEEP,
    TRAIN,
    done,
    flying,
    hang,
    process,
    stalled,
)

WAITS = stalled(0, process(BACKWARD), collectives=[flying()])


def known(found: Hang | None) -> tuple[str, list[tuple[int, ...]], str]:
    """The class, the guilty ranks and their state."""
    assert found is not None
    return found.kind.value, [group.ranks for group in found.guilty], found.guilty[0].state


class TestMissing:
    def test_a_rank_in_nccl_that_uses_a_whole_core_waits(self) -> None:
        polls = stalled(0, process(BACKWARD, state="R", busy=True, changed=False), collectives=[flying()])
        found = hang(polls, stalled(1, process(SLEEP, wchan="hrtimer_nanosleep"), collectives=[done()]))
        assert known(found) == ("Missing", [(1,)], "sleeping")

    def test_64_ranks_are_two_groups(self) -> None:
        others = [stalled(n, process(BACKWARD), collectives=[flying()]) for n in range(64) if n != 37]
        found = hang(*others, stalled(37, process(SLEEP, syscall=45), collectives=[done()]))
        assert known(found) == ("Missing", [(37,)], "socket")
        assert [len(group.ranks) for group in found.groups] == [63, 1]
        assert found.guilty[0].node == "node 37"

    def test_without_a_recorder_the_stacks_decide(self) -> None:
        found = hang(stalled(0, process(ALL_REDUCE)), stalled(1, process(SLEEP, syscall=230)))
        assert known(found) == ("Missing", [(1,)], "sleeping")
        assert found.groups[0].collective.name == "all_reduce"

    def test_a_rank_that_has_enqueued_a_collective_and_sleeps_is_found_by_its_stack(self) -> None:
        one = stalled(0, process(BACKWARD), collectives=[flying(5, group="1", ranks=[0, 1])])
        other = stalled(1, process(SLEEP, syscall=230), collectives=[flying(7, group="2", ranks=[0, 1])])
        found = hang(one, other)
        assert known(found) == ("Missing", [(1,)], "sleeping")
        assert found.guilty[0].frame.line == 17

    def test_a_send_names_its_peer(self) -> None:
        receives = stalled(0, process([TRAIN]), collectives=[flying(3, "recv 0<-2", p2p=True)])
        elsewhere = stalled(2, process(SLEEP, syscall=230), collectives=[done()])
        waits = stalled(1, process(BACKWARD), collectives=[flying(4, group="1", ranks=[0, 1])])
        assert known(hang(receives, waits, elsewhere)) == ("Missing", [(2,)], "sleeping")

    def test_an_idle_library_in_a_worker_is_named_with_the_line_of_the_loop(self) -> None:
        loader = [["_next_data", f"{SITE}/torch/utils/data/dataloader.py", 1], TRAIN]
        fetch = [["fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 54], ["_worker_loop", f"{SITE}/torch/w.py", 3]]
        worker = process(fetch, kind="worker", pid=20, wchan="sk_wait_data")
        found = hang(WAITS, stalled(1, process(loader), worker, collectives=[done()]))
        guilty = found.guilty[0]
        assert (guilty.process, guilty.state, guilty.frame.line) == ("DataLoader worker 0", "socket", 42)

    def test_a_stopped_worker_is_named(self) -> None:
        loader = [["_next_data", f"{SITE}/torch/utils/data/dataloader.py", 1], TRAIN]
        idle = [["get", "/usr/lib/python3.11/multiprocessing/queues.py", 1], ["_worker_loop", f"{SITE}/torch/w.py", 3]]
        workers = process(idle, kind="worker", pid=20), process(kind="worker", pid=21, state="T", why="no answer")
        found = hang(WAITS, stalled(1, process(loader), *workers, collectives=[done()]))
        assert (found.guilty[0].process, found.guilty[0].state) == ("DataLoader worker 1", "stopped")


class TestBlocked:
    @pytest.mark.parametrize(
        ("fields", "state"),
        [({"state": "D"}, "disk"), ({"state": "T"}, "stopped"), ({"gil": True}, "gil"), ({"state": "Z"}, "zombie")],
    )
    def test_a_rank_that_cannot_run(self, fields: dict[str, object], state: str) -> None:
        found = hang(WAITS, stalled(1, process(SLEEP, **fields), collectives=[done()]))
        assert known(found) == ("Blocked", [(1,)], state)
        assert found.is_infrastructure is (state == "disk")

    def test_a_single_rank_that_waits_for_a_lock(self) -> None:
        lock = [["acquire", "/usr/lib/python3.11/threading.py", 1], *SLEEP]
        assert known(hang(stalled(0, process(lock)))) == ("Blocked", [(0,)], "lock")

    def test_of_ranks_without_collectives_those_elsewhere_are_named(self) -> None:
        most = [stalled(n, process([TRAIN], syscall=24, state="R", busy=True, changed=False)) for n in range(3)]
        found = hang(*most, stalled(3, process(SLEEP, syscall=230)))
        assert known(found) == ("Blocked", [(3,)], "sleeping")

    def test_programs_without_python_are_described_by_the_kernel(self) -> None:
        ring = process(name="ring", wchan="unix_stream_read_generic", why="not Python")
        found = hang(stalled(0, ring))
        assert known(found) == ("Blocked", [(0,)], "socket")
        assert (found.guilty[0].process, found.guilty[0].why) == ("ring", "not Python")


class TestOtherClasses:
    def test_sizes_that_differ_are_a_mismatch(self) -> None:
        other = stalled(1, process(BACKWARD), collectives=[flying(sizes=[[7]])])
        assert known(hang(WAITS, other)) == ("Mismatch", [(0,), (1,)], "collective")

    def test_all_gather_may_have_other_sizes(self) -> None:
        one, other = (
            stalled(n, process(ALL_REDUCE), collectives=[flying(name="all_gather", sizes=[[n + 1]])]) for n in (0, 1)
        )
        assert hang(one, other).kind == "AllWait"

    def test_another_collective_that_one_rank_has_completed_is_a_mismatch(self) -> None:
        row = {**done(1185), "last": "broadcast"}
        found = hang(WAITS, stalled(1, process(ALL_REDUCE), collectives=[row]))
        assert found.kind == "Mismatch"

    def test_all_ranks_in_the_same_collective_wait(self) -> None:
        found = hang(WAITS, stalled(1, process(BACKWARD), collectives=[flying()]))
        assert known(found) == ("AllWait", [(0, 1)], "collective")
        assert found.is_infrastructure

    def test_a_rank_that_exited_while_others_wait_has_left(self) -> None:
        assert known(hang(WAITS, exited=[1])) == ("Left", [(1,)], "exited")

    def test_a_rank_whose_pod_has_not_started_has_never_joined(self) -> None:
        found = hang(stalled(0, process(INIT), master="10.0.0.3:29500"), absent=[1])
        assert known(found) == ("NeverJoined", [(1,)], "absent")
        assert found.master == "10.0.0.3:29500"

    def test_all_ranks_in_the_rendezvous_have_never_joined(self) -> None:
        assert known(hang(stalled(0, process(INIT)), stalled(1, process(INIT))))[:2] == ("NeverJoined", [(0, 1)])

    def test_a_rank_that_has_queued_the_collective_of_another_group_has_joined(self) -> None:
        first = stalled(0, process(BACKWARD), collectives=[flying(7, queued=9)])
        second = stalled(1, process(BACKWARD), collectives=[flying(5, queued=8)])
        third = stalled(2, process(SLEEP, syscall=230), collectives=[done(4)])
        assert known(hang(first, second, third)) == ("Missing", [(2,)], "sleeping")

    def test_a_rank_that_waits_for_its_thread_at_exit(self) -> None:
        found = hang(stalled(1, process(SHUTDOWN, [["upload", "/app/train.py", 9]])), exited=[0])
        assert known(found) == ("AtExit", [(1,)], "exiting")
        assert found.guilty[0].frame.function == "upload"


class TestNoHang:
    def test_a_rank_that_computes_while_others_wait_is_busy(self) -> None:
        found = hang(WAITS, stalled(1, process(SLEEP, state="R", busy=True, changed=False), collectives=[done()]))
        assert known(found) == ("Busy", [(1,)], "running")

    def test_a_compiler_that_a_rank_has_started_makes_the_rank_busy(self) -> None:
        wait = [["wait", "/usr/lib/python3.11/subprocess.py", 1], *SLEEP]
        compiler = process(kind="child", name="cc1plus", state="R", busy=True)
        found = hang(WAITS, stalled(1, process(wait), compiler, collectives=[done()]))
        assert found.kind == "Busy"

    def test_a_child_that_works_makes_a_rank_busy_whose_last_gloo_collective_looks_incomplete(self) -> None:
        join = [["poll", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 27], *SLEEP]
        download = process(SLEEP, kind="worker", name="python", busy=True, changed=False)
        over = flying(1184, backend="gloo")
        assert hang(WAITS, stalled(1, process(join), download, collectives=[over])).kind == "Busy"
        assert (
            hang(WAITS, stalled(1, process(join), process(SLEEP, kind="worker"), collectives=[over])).kind == "Missing"
        )

    def test_ranks_that_work_while_no_rank_waits_are_not_even_mentioned(self) -> None:
        works = [stalled(n, process(SLEEP, state="R", busy=True, changed=False)) for n in range(4)]
        assert hang(*works) is None

    def test_a_rank_whose_collectives_change_makes_progress(self) -> None:
        moves = stalled(1, process(BACKWARD, busy=True, changed=True), collectives=[flying()])
        assert hang(WAITS, moves).kind == "Busy"

    def test_nothing_is_known_about_ranks_that_the_agent_could_not_look_at(self) -> None:
        assert hang(stalled(0), stalled(1)) is None
        assert hang(stalled(0), stalled(1, process(SLEEP, syscall=230))) is None

    def test_nothing_is_known_without_ranks(self) -> None:
        assert hang(exited=[0, 1]) is None


def in_mpi(rank: int, call: str, **fields: object) -> dict[str, object]:
    """A rank that polls in a function of MPI, as the agent reports it."""
    why = "train is not Python"
    return stalled(rank, process(**{"name": "train", "state": "R", "call": call, "why": why, **fields}))


class TestMpi:
    def test_a_rank_that_sleeps_while_the_others_wait_has_not_joined(self) -> None:
        others = [in_mpi(rank, "MPI_Allreduce") for rank in (0, 2, 3)]
        found = hang(*others, stalled(1, process(name="train", syscall=230, why="train is not Python")))
        assert known(found) == ("Missing", [(1,)], "sleeping")
        assert (found.groups[0].collective.name, found.groups[0].why) == ("MPI_Allreduce", "")

    def test_a_rank_in_another_call_than_most_ranks_is_named(self) -> None:
        found = hang(in_mpi(0, "MPI_Barrier"), in_mpi(1, "MPI_Recv"), in_mpi(2, "MPI_Barrier"))
        assert known(found) == ("Missing", [(1,)], "collective")

    def test_a_rank_that_waits_while_the_others_have_finished_is_named(self) -> None:
        assert known(hang(in_mpi(0, "MPI_Recv"), in_mpi(1, "MPI_Finalize"))) == ("Missing", [(0,)], "collective")

    def test_two_ranks_in_different_calls_wait_for_each_other(self) -> None:
        found = hang(in_mpi(0, "MPI_Recv"), in_mpi(1, "MPI_Barrier"))
        assert known(found) == ("Mismatch", [(0,), (1,)], "collective")

    @pytest.mark.parametrize(("call", "kind"), [("MPI_Sendrecv", "Mismatch"), ("MPI_Allreduce", "AllWait")])
    def test_ranks_in_the_same_call_wait_for_each_other(self, call: str, kind: str) -> None:
        assert known(hang(in_mpi(0, call), in_mpi(1, call))) == (kind, [(0, 1)], "collective")

    def test_a_rank_that_computes_is_a_note(self) -> None:
        computes = stalled(1, process(name="train", state="R", busy=True))
        assert known(hang(in_mpi(0, "MPI_Allreduce"), computes)) == ("Busy", [(1,)], "running")

    def test_a_rank_whose_other_threads_compute_is_a_note(self) -> None:
        found = hang(in_mpi(0, "MPI_Allreduce"), in_mpi(1, "MPI_Recv", busy=True, changed=False, syscall=24))
        assert found is not None and found.kind.value == "Busy"

    def test_a_rank_that_has_left_is_the_cause(self) -> None:
        assert known(hang(in_mpi(0, "MPI_Recv"), exited=(1,))) == ("Left", [(1,)], "exited")

    def test_ranks_that_all_compute_are_not_reported(self) -> None:
        assert hang(*(stalled(rank, process(state="R", busy=True)) for rank in range(2))) is None
