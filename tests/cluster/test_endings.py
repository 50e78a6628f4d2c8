"""How runs end on a cluster: the reported outcome, and the objects that remain."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.targets.metadata import VERDICT
from stepset.watch.advice import ADVICE, SIGNAL_ADVICE
from tests.cluster.many import BRIEF, MEET, PAIR, RANK, RESULT, SLEEP, Many, many
from tests.cluster.runs import Runs
from tests.cluster.testbed.handle import Cluster
from tests.waiting import until

pytestmark = pytest.mark.cluster

SECOND = RANK + "if rank == 1:\n    {}\n" + SLEEP
"""The second of two ranks runs a statement; the first one sleeps."""
LAST_LINE = "print('the last line'); {}"
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"stepset.dev/run": "peer-never-there"}},
                }
            ]
        }
    }
}
"""At most one pod per node."""

JOBS: dict[str, dict[str, Any]] = {
    "rendezvous": {
        **PAIR,
        "code": RANK
        + "if rank == 1: time.sleep(600)\n"
        + "import datetime, torch.distributed as dist\n"
        + "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=2))\n",
        "pod_template": BRIEF,
    },
    "memory": {
        **PAIR,
        "text": SECOND.format("x = bytearray(1 << 30)"),
        "pod_template": BRIEF,
        "resources_per_node": {"memory": "128Mi"},
    },
    "success": {
        **PAIR,
        "text": MEET
        + "print('trained', rank)\nif rank == 0: "
        + RESULT.format("{'loss': 0.5, 'by': rank}")
        + "\nif rank == 0: print(''.join('{\"stepset\": {\"step\": %d}}\\n' % step for step in range(1, 11)), end='')",
    },
    "code-1": {**PAIR, "text": SECOND.format(LAST_LINE.format("sys.exit(1)")), "pod_template": BRIEF},
    "code-137": {**PAIR, "text": SECOND.format("sys.exit(137)"), "pod_template": BRIEF},
    "traceback": {**PAIR, "text": SECOND.format("raise ValueError('batch 7 is empty')"), "pod_template": BRIEF},
    "segfault": {**PAIR, "text": SECOND.format("os.kill(os.getpid(), signal.SIGSEGV)"), "pod_template": BRIEF},
    "no-agent": {"agent": False, "text": "print('read the data')\nraise ValueError('batch 7 is empty')"},
    "no-command": {"command": ["no-such-program"]},
    "peer-never-there": {
        "framework": PAIR["framework"],
        "num_nodes": 3,
        "procs_per_node": 1,
        "text": "print('never')",
        "network": {"peer_timeout": "3s"},
        "pod_template": {**APART, **BRIEF},
    },
    "deadline": {
        **PAIR,
        "text": RANK + SLEEP,
        "deadline": "10s",
        "pod_template": BRIEF,
    },
    "removed-at-once": {
        **PAIR,
        "text": RANK + "print('last line of', rank)\nif rank == 0: " + RESULT.format("'kept'"),
        "ttl": "1s",
    },
}


@pytest.fixture(scope="module")
def ends(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """The runs of the table, started together."""
    with many(cluster, tmp_path_factory.mktemp("runs"), JOBS) as found:
        yield found


def states(status: RunStatus) -> dict[str, str]:
    return {row.source: row.state for row in status.ranks}


class TestSuccess:
    def test_the_result_is_rank_0s_and_every_line_is_reported_once(self, ends: Many) -> None:
        status = ends.end("success")
        assert (status.phase, status.result, int(status.exit_code)) == (Phase.SUCCEEDED, {"loss": 0.5, "by": 0}, 0)
        assert states(status) == {"rank 0": "Succeeded", "rank 1": "Succeeded"}
        assert {row.node for row in status.ranks} == {"node-a", "node-b"} or ends.runs.cluster.choice is None
        listener = ends.listener("success")
        assert [listener.texts("rank 0"), listener.texts("rank 1")] == [["trained 0"], ["trained 1"]]

    def test_the_phases_are_reported_in_order(self, ends: Many) -> None:
        ends.end("success")
        phases = [phase.partition(" ")[0] for phase in ends.listener("success").phases()]
        *before, running, last = sorted(set(phases), key=phases.index)
        assert (running, last) == ("Running", "Succeeded")
        assert before in (["Pending"], [])  # a follower may miss the short wait

    def test_progress_reports_that_arrive_together_are_all_reported(self, ends: Many) -> None:
        ends.end("success")
        progress = [status.progress for status in ends.listener("success").statuses if status.progress]
        assert list(dict.fromkeys(each.step for each in progress)) == list(range(1, 11))

    def test_its_objects_stay_with_the_verdict_and_no_pod_runs(self, ends: Many) -> None:
        status = ends.end("success")
        jobset = ends.runs.get("jobset/success")
        verdict = RunStatus.from_dict(json.loads(jobset["metadata"]["annotations"][VERDICT]))
        assert verdict == replace(status, namespace="", submitted_by="")  # the metadata of the JobSet contains them
        owned = ends.runs.get("configmaps", "stepset.dev/run=success")["items"]
        assert owned
        uids = {owner["uid"] for each in owned for owner in each["metadata"]["ownerReferences"]}
        assert uids == {jobset["metadata"]["uid"]}
        assert until(lambda: not running(ends, "success"))

    def test_another_process_gets_the_same_status(self, ends: Many) -> None:
        status = ends.end("success")
        backend = ends.runs.backend()
        assert (backend.status("success"), backend.wait("success", 60)) == (status, status)


def running(ends: Many, run: str) -> list[str]:
    pods = ends.runs.get("pods", f"stepset.dev/run={run}")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


# Run -> kind, exit code, signal, and error.
FAILED_RANKS: dict[str, tuple[FailureKind, int | None, int | None, str]] = {
    "code-1": (FailureKind.USER_ERROR, 1, None, "the last line"),
    "code-137": (FailureKind.INFRASTRUCTURE, 137, None, ""),
    "traceback": (FailureKind.USER_ERROR, 1, None, "ValueError: batch 7 is empty"),
    "segfault": (
        FailureKind.USER_ERROR,
        None,
        signal.SIGSEGV,
        'Fatal Python error: Segmentation fault: File "/stepset/code/stepset_main.py", line 4 in <module>',
    ),
    "memory": (FailureKind.OUT_OF_MEMORY, None, signal.SIGKILL, ""),
}


class TestARankFails:
    @pytest.mark.parametrize("run", FAILED_RANKS)
    def test_the_failure_names_its_rank_pod_and_exit_and_not_the_other_rank(self, ends: Many, run: str) -> None:
        status = ends.end(run)
        kind, code, number, error = FAILED_RANKS[run]
        failure = ends.failure(run)
        assert (failure.kind, failure.rank, failure.exit_code, failure.signal) == (kind, 1, code, number)
        advice = SIGNAL_ADVICE if kind is FailureKind.INFRASTRUCTURE else ADVICE[kind]
        assert (failure.error, failure.advice) == (error, advice)
        first = next(row for row in status.ranks if row.rank == 1)
        assert (failure.pod, failure.node) == (first.pod, first.node)
        assert failure.pod.startswith(f"{run}-node-0-1")
        assert states(status) == {"rank 0": "Stopped", "rank 1": "Failed"}
        assert failure.aftermath == ("rank 0",)
        assert not running(ends, run)

    @pytest.mark.parametrize(
        ("run", "message"),
        [
            ("code-1", "exited with code 1: the last line"),
            ("code-137", "exited with code 137 (SIGKILL); who sent the signal is unknown."),
            ("traceback", "exited with code 1: ValueError: batch 7 is empty"),
            ("segfault", "was killed by SIGSEGV: Fatal Python error: Segmentation fault"),
            ("memory", "was killed by SIGKILL, out of memory (limit 128Mi)."),
        ],
    )
    def test_the_message_is_one_sentence_with_rank_pod_node_and_cause(self, ends: Many, run: str, message: str) -> None:
        failure = ends.failure(run)
        assert failure.message == f"rank 1 (pod {failure.pod} on {failure.node}) {message}"

    def test_its_last_lines_are_shown(self, ends: Many) -> None:
        assert ends.failure("code-1").tail == ("the last line",)
        assert ends.failure("traceback").tail[0] == "Traceback (most recent call last):"
        assert ends.failure("traceback").tail[-1] == "ValueError: batch 7 is empty"

    def test_without_an_agent_the_failure_names_the_pod_and_its_traceback(self, ends: Many) -> None:
        failure = ends.failure("no-agent")
        assert (failure.kind, failure.exit_code, failure.error) == (
            FailureKind.USER_ERROR,
            1,
            "ValueError: batch 7 is empty",
        )
        assert failure.pod.startswith("no-agent-node-0-0")
        assert sorted(ends.listener("no-agent").texts("node 0"))[-1] == "read the data"

    def test_a_program_that_the_image_lacks_is_an_error_in_the_job(self, ends: Many) -> None:
        failure = ends.failure("no-command")
        assert failure.kind is FailureKind.REJECTED
        assert 'exec: "no-such-program": executable file not found' in failure.message
        assert int(ends.end("no-command").exit_code) == 2


class TestRanksThatDoNotMeet:
    def test_a_rendezvous_that_never_completes_names_the_rank_that_waited(self, ends: Many) -> None:
        failure = ends.failure("rendezvous")
        assert (failure.kind, failure.rank, failure.exit_code) == (FailureKind.RENDEZVOUS, 0, 1)
        assert "Timed out after" in failure.error
        assert "clients joined" in failure.error
        assert int(ends.end("rendezvous").exit_code) == 3

    def test_a_peer_whose_name_never_resolves_is_named(self, ends: Many) -> None:
        if ends.runs.cluster.choice is None:
            pytest.skip("needs a cluster of two nodes")
        failure = ends.failure("peer-never-there")
        assert (failure.kind, failure.exit_code) == (FailureKind.RENDEZVOUS, 70)
        assert "peer-never-there-node-0-" in failure.error
        assert "did not resolve within 3 s" in failure.error
        assert not running(ends, "peer-never-there")
        # The third pod may start on the node of a pod that has failed, before the controller ends the run.
        node = failure.pod.split("-")[-2]
        assert ends.listener("peer-never-there").texts(f"rank {node}") == []


class TestTime:
    def test_a_deadline_ends_the_run_and_names_no_rank(self, ends: Many) -> None:
        status = ends.end("deadline")
        failure = ends.failure("deadline")
        assert (failure.kind, failure.rank, int(status.exit_code)) == (FailureKind.DEADLINE_EXCEEDED, None, 4)
        assert failure.message.startswith("the run took longer than its deadline of 10s")
        assert not running(ends, "deadline")

    def test_a_run_that_is_removed_at_once_keeps_its_result_and_last_lines(self, ends: Many) -> None:
        status = ends.end("removed-at-once")
        assert (status.phase, status.result) == (Phase.SUCCEEDED, "kept")
        listener = ends.listener("removed-at-once")
        assert [listener.texts(f"rank {rank}") for rank in (0, 1)] == [["last line of 0"], ["last line of 1"]]
        ends.runs.cluster.wait("the end of its objects", lambda: not left_of(ends, "removed-at-once"))


def left_of(ends: Many, run: str) -> list[str]:
    return [name for name in ends.runs.left() if f"/{run}" in name]


def test_a_deadline_states_when_the_ranks_printed_their_last_lines(runs: Runs) -> None:
    waits = RANK + "print('begins', flush=True)\nif rank == 0:\n    time.sleep(4)\n    print('waits', flush=True)\n"
    status, _ = runs.run(waits + SLEEP, **PAIR, deadline="30s", pod_template=BRIEF)
    assert status.failure is not None
    assert re.fullmatch(
        r"the run took longer than its deadline of 30s; no running rank had printed a line for \d+ s;"
        r" the last line was of rank 0: waits; rank 1 printed its last line \d+ s before\.",
        status.failure.message,
    )
    assert status.failure.advice.startswith("The training may hang")
