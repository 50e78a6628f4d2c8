"""Restarts: of the whole gang, as often as the job allows; in elastic worlds of single nodes."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase
from stepset.watch.advice import RAISED_ADVICE, hang_advice
from tests.local.conftest import Local, wait_for
from tests.waiting import until

pytestmark = pytest.mark.local

FAIL_UNTIL_2 = """
    import os, sys
    # One print call: the rank that fails first stops the other at any point.
    print(f"attempt {os.environ['STEPSET_ATTEMPT']} {os.environ.get('MASTER_PORT')}")
    sys.exit(3 if int(os.environ["STEPSET_ATTEMPT"]) < 2 else 0)
"""


class TestTheGang:
    def test_is_started_again_until_it_succeeds(self, local: Local) -> None:
        torch = {"kind": "torch", "launcher": "none"}
        status = local.run(FAIL_UNTIL_2, framework=torch, num_nodes=2, procs_per_node=1, restart={"max_restarts": 2})
        assert (status.phase, status.attempt, status.failure) == (Phase.SUCCEEDED, 2, None)
        assert {row.restarts for row in status.ranks} == {2}
        # The rank that fails first may stop the other before that has printed a line.
        texts = [line.text.split() for line in local.listener.lines]
        assert sorted({attempt for _, attempt, _ in texts}) == ["0", "1", "2"]
        assert len({port for _, _, port in texts}) == 3, "every attempt has a new port"
        phases = [s.phase for s in local.listener.statuses]
        assert Phase.RESTARTING in phases
        assert [note.split(":")[0] for note in status.notes if note.startswith("restart")] == ["restart 1", "restart 2"]

    def test_is_not_started_again_when_the_restarts_are_used_up(self, local: Local) -> None:
        status = local.run(FAIL_UNTIL_2, restart={"max_restarts": 1})
        assert status.phase is Phase.FAILED and status.failure is not None
        assert (status.failure.restarts, status.failure.exit_code, status.attempt) == (1, 3, 1)

    def test_is_not_started_again_for_a_user_error_if_user_errors_is_fail(self, local: Local) -> None:
        status = local.run(FAIL_UNTIL_2, restart={"max_restarts": 5, "user_errors": "fail"})
        assert (status.phase, status.attempt) == (Phase.FAILED, 0)

    def test_is_started_again_for_other_errors_if_user_errors_is_fail(self, local: Local) -> None:
        script = """
            import os, signal
            if os.environ["STEPSET_ATTEMPT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
        """
        status = local.run(script, restart={"max_restarts": 1, "user_errors": "fail"})
        assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)

    def test_continues_from_its_checkpoint(self, local: Local) -> None:
        script = """
            import os, sys
            checkpoint = os.path.join(os.environ["STEPSET_CHECKPOINT_DIR"], "step")
            print("resume from", os.environ.get("STEPSET_RESUME_FROM"))
            if "STEPSET_RESUME_FROM" not in os.environ:
                open(checkpoint, "w").write("5")
                sys.exit(1)
            print("at step", open(checkpoint).read())
        """
        directory = str(local.path("checkpoints"))
        status = local.run(script, checkpoint_dir=directory, restart={"max_restarts": 1})
        assert status.phase is Phase.SUCCEEDED
        assert local.texts("rank 0") == ["resume from None", f"resume from {directory}", "at step 5"]

    def test_counts_attempts_from_that_of_the_request(self, local: Local) -> None:
        status = local.run(FAIL_UNTIL_2, attempt=2)
        assert (status.phase, status.first_attempt, status.attempt) == (Phase.SUCCEEDED, 2, 0)
        assert local.texts("rank 0")[0].startswith("attempt 2 ")

    def test_ignores_the_result_of_an_earlier_attempt(self, local: Local) -> None:
        script = """
            import os, sys
            if os.environ["STEPSET_ATTEMPT"] == "0":
                open(os.environ["STEPSET_RESULT_FILE"], "w").write('"old"')
                sys.exit(1)
        """
        status = local.run(script, restart={"max_restarts": 1})
        assert (status.phase, status.result) == (Phase.SUCCEEDED, None)

    def test_is_not_started_again_when_it_was_cancelled(self, local: Local) -> None:
        script = "import time; open('up', 'a').write('1'); time.sleep(600)"
        handle = local.start(script, restart={"max_restarts": 3})
        wait_for(local.path("up"))
        handle.cancel()
        status = handle.wait()
        assert status.failure is not None and status.failure.kind is FailureKind.CANCELLED
        assert local.path("up").read_text() == "1"


class TestTheDeadline:
    def test_ends_the_run_without_a_restart(self, local: Local) -> None:
        status = local.run("import time; time.sleep(600)", deadline="1s", restart={"max_restarts": 3})
        assert status.phase is Phase.FAILED and status.failure is not None
        assert (status.failure.kind, int(status.exit_code)) == (FailureKind.DEADLINE_EXCEEDED, 4)
        assert status.failure.message == "the run took longer than its deadline of 1s."
        assert status.attempt == 0

    def test_states_when_the_ranks_printed_their_last_lines(self, local: Local) -> None:
        script = """
            import os, time
            print("step 1", flush=True)
            time.sleep(0 if os.environ["RANK"] == "2" else 3)
            print("step 2", flush=True)
            time.sleep(600)
        """
        torch = {"kind": "torch", "launcher": "none"}
        status = local.run(script, framework=torch, num_nodes=2, procs_per_node=2, deadline="15s")
        assert status.failure is not None and status.failure.advice == hang_advice(torch=True)
        words = (
            r"deadline of 15s; no running rank had printed a line for \S+ s; the last line was of rank [013]: step 2;"
            r" rank 2 printed its last line \S+ s before\.$"
        )
        assert re.search(words, status.failure.message), status.failure.message
        assert all(row.last_line_at is not None for row in status.ranks)

    def test_names_the_ranks_that_had_exited_and_blames_no_rank_that_never_prints(self, local: Local) -> None:
        script = """
            import os, time
            if os.environ["RANK"] == "0":
                print("step 1", flush=True)
            time.sleep(0 if os.environ["RANK"] == "3" else 600)
        """
        torch = {"kind": "torch", "launcher": "none"}
        status = local.run(script, framework=torch, num_nodes=2, procs_per_node=2, deadline="12s")
        assert status.failure is not None
        assert re.fullmatch(
            r"the run took longer than its deadline of 12s; no running rank had printed a line for \S+ s; the last line"
            r" was of rank 0: step 1; rank 1, rank 2 had printed no line yet, which does not prove a hang; rank 3 had"
            r" exited with code 0 while rank 0, rank 1, rank 2 still ran\.",
            status.failure.message,
        ), status.failure.message

    def test_does_not_suspect_a_hang_while_the_ranks_only_report_progress_or_draw_a_progress_bar(
        self, local: Local
    ) -> None:
        script = """
            import json, sys, time
            for step in range(10_000):
                if sys.argv[1:] == ["bar"]:
                    print(f"\\r{step}/10000", end="", flush=True)
                else:
                    print(json.dumps({"stepset": {"step": step}}), flush=True)
                time.sleep(0.3)
        """
        for args in ([], ["bar"]):
            status = local.run(script, deadline="8s", args=args)
            assert status.failure is not None
            assert status.failure.message == "the run took longer than its deadline of 8s.", args
            assert "may hang" not in status.failure.advice
            assert status.ranks[0].last_line_at is not None

    def test_covers_all_attempts_together(self, local: Local) -> None:
        script = "import sys, time; time.sleep(0.7); sys.exit(1)"
        status = local.run(script, deadline="2s", restart={"max_restarts": 1000})
        assert status.failure is not None and status.failure.kind is FailureKind.DEADLINE_EXCEEDED

    def test_names_the_rank_that_printed_a_traceback_and_did_not_exit(self, local: Local) -> None:
        script = """
            import os, threading, time
            print("step 1", flush=True)
            if os.environ["RANK"] == "1":
                threading.Thread(target=time.sleep, args=[600]).start()  # Python waits for this thread before it exits
                raise ValueError("bad shard")
            time.sleep(600)
        """
        torch = {"kind": "torch", "launcher": "none"}
        status = local.run(script, framework=torch, procs_per_node=2, deadline="12s")
        failure = status.failure
        assert failure is not None and (failure.rank, failure.error) == (1, "ValueError: bad shard")
        words = "deadline of 12s; rank 1 had printed a traceback and had not exited; no running rank had printed a line"
        assert words in failure.message
        assert (failure.kind, failure.advice) == (FailureKind.DEADLINE_EXCEEDED, RAISED_ADVICE)
        assert "ValueError: bad shard" in failure.tail

    @pytest.mark.parametrize("kind", ["torch", "plain"])
    def test_advises_a_timeout_of_the_process_group_only_with_torch(self, local: Local, kind: str) -> None:
        framework = {"kind": "torch", "launcher": "none"} if kind == "torch" else kind
        status = local.run("import time; time.sleep(600)", framework=framework, deadline="9s")
        assert status.failure is not None and status.failure.advice.startswith("The training may hang")
        assert ("init_process_group" in status.failure.advice) == (kind == "torch")


class TestAnElasticWorld:
    """Nodes of an elastic world, with a small script instead of torchrun: only the ends of nodes matter here."""

    NODE = """
        import os, sys, time
        node = os.environ["STEPSET_NODE_RANK"]
        with open(f"node-{node}", "a") as file:
            file.write(f"{os.getpid()}\\n")
        while not os.path.exists("finish"):
            time.sleep(0.02)
        sys.exit(int(open("finish").read()) if node == "1" else 0)
    """

    def start(self, local: Local, low: int, **fields: Any) -> Any:
        elastic = {"kind": "torch", "elastic": {"min_nodes": low, "max_nodes": 3}}
        command = {"script": None, "command": ["python3", "train.py"], "env": {"NODE_RANK": "$(STEPSET_NODE_RANK)"}}
        return local.start(self.NODE, framework=elastic, num_nodes=3, procs_per_node=2, **command, **fields)

    def finish(self, local: Local, code: int) -> None:
        """Makes every node end, node 1 with an exit code; creates the file atomically."""
        local.path("finish.new").write_text(str(code))
        local.path("finish.new").rename(local.path("finish"))

    def pids(self, local: Local, node: int, count: int = 1) -> list[int]:
        path = local.path(f"node-{node}")
        assert until(lambda: len(wait_for(path).split()) >= count)
        return [int(pid) for pid in path.read_text().split()]

    def test_replaces_a_lost_node_without_counting_a_restart(self, local: Local) -> None:
        handle = self.start(local, 2)
        pids = [self.pids(local, node)[0] for node in range(3)]
        os.kill(pids[1], signal.SIGKILL)
        assert self.pids(local, 1, count=2)[0] == pids[1]
        self.finish(local, 0)
        status = handle.wait()
        assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 0)
        for node in (0, 2):
            assert self.pids(local, node) == [pids[node]], "the others continued"

    def test_restarts_as_a_gang_when_node_0_with_the_rendezvous_is_lost(self, local: Local) -> None:
        handle = self.start(local, 2)
        pids = [self.pids(local, node)[0] for node in range(3)]
        os.kill(pids[0], signal.SIGKILL)
        for node in range(3):
            assert self.pids(local, node, count=2)[0] == pids[node]
        self.finish(local, 0)
        status = handle.wait()
        assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)

    def test_fails_by_an_exit_code_when_no_restart_remains(self, local: Local) -> None:
        handle = self.start(local, 3)
        for node in range(3):
            self.pids(local, node)
        self.finish(local, 4)
        status = handle.wait()
        assert status.phase is Phase.FAILED and status.failure is not None
        assert (status.failure.pod, status.failure.exit_code) == ("node-1", 4)

    def test_succeeds_when_enough_nodes_have(self, local: Local) -> None:
        handle = self.start(local, 2)
        pids = [self.pids(local, node)[0] for node in range(3)]
        os.kill(pids[1], signal.SIGSTOP)
        self.finish(local, 0)
        status = handle.wait()
        assert status.phase is Phase.SUCCEEDED
