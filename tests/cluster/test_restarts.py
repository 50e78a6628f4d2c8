"""Restarts: their causes, which of them count, and that training continues from its checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase
from stepset.watch.present.sentences import REMOVED
from tests.cluster.many import BRIEF, PAIR, RANK, RESULT, SLEEP, Many, many, shared
from tests.cluster.queues import queue, set_active, set_cpus
from tests.cluster.runs import RecordingListener, Runs
from tests.cluster.testbed.handle import Cluster

pytestmark = pytest.mark.cluster

TRAINS = (
    RANK
    + """
saved = pathlib.Path(os.environ['STEPSET_CHECKPOINT_DIR'], f'rank-{rank}')
step = started_at = int(saved.read_text()) if os.environ.get('STEPSET_RESUME_FROM') else 0
while step < 6:
    step += 1
    saved.with_suffix('.new').write_text(str(step))
    saved.with_suffix('.new').rename(saved)
    print('attempt', attempt, 'step', step, flush=True)
    if (attempt, step) == (0, 2):
        time.sleep(600)
    if (attempt, step) == (1, 4):
        while saved.with_name(f'rank-{1 - rank}').read_text() != '4':  # as a collective would
            time.sleep(0.1)
        raise RuntimeError('a bad batch')
if rank == 0:
    """
    + RESULT.format("{'attempt': attempt, 'started_at': started_at, 'from': os.environ.get('STEPSET_RESUME_FROM')}")
)
"""Takes six steps and saves each. The first attempt waits to be evicted; the second fails when both ranks have saved
step 4, because the first failure ends the other rank."""


def test_an_eviction_does_not_count_an_error_does_and_training_continues_from_its_checkpoints(
    runs: Runs, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    handle, listener = runs.start(
        TRAINS,
        **PAIR,
        restart={"max_restarts": 1},
        checkpoint_dir=str(checkpoints),
        pod_template=shared(runs.cluster, checkpoints),
    )
    listener.wait_for_line("attempt 0 step 2", count=2)
    second = runs.pods()[1]["metadata"]["name"]
    runs.evict(second)
    status = handle.wait()
    assert status.phase is Phase.SUCCEEDED
    assert status.result == {"attempt": 2, "started_at": 4, "from": str(checkpoints)}
    assert status.attempt == 2
    assert {row.restarts for row in status.ranks} == {2}
    counted = runs.get("jobset/run")["status"]
    assert (counted["restarts"], counted["restartsCountTowardsMax"]) == (2, 1)
    resuming, *restarts = status.notes
    assert resuming.startswith(f"resuming from {checkpoints}/rank-")
    assert [note.partition(":")[0] for note in restarts] == ["restart 1", "restart 2"]
    assert f"pod {second}" in restarts[0]
    assert "was evicted" in restarts[0]
    assert "RuntimeError: a bad batch" in restarts[1]
    steps = [f"attempt {attempt} step {step}" for attempt, step in [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]]
    for rank in (0, 1):
        # Both ranks fail; the slower one may be stopped before its last line.
        assert [text for text in listener.texts(f"rank {rank}") if text in steps] == steps
    phases = [phase.partition(" ")[0] for phase in listener.phases()]
    assert phases[-1] == "Succeeded"
    assert phases.count("Restarting") >= 2


@pytest.mark.parametrize("cause", ["evicted", "failed"])
def test_the_cause_of_a_restart_that_no_process_followed_is_in_the_status(runs: Runs, cause: str) -> None:
    ends = "pathlib.Path('/tmp/fail').exists()"
    text = RANK + f"while not {ends}: time.sleep(0.1)\nsys.exit(7)\n"
    runs.backend().submit(runs.request(text, **PAIR, pod_template=BRIEF, restart={"max_restarts": 1}))
    runs.cluster.wait("two pods", lambda: _running(runs, "0") == 2)
    pod = runs.pods()[1]
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    if cause == "evicted":
        runs.evict(name)
    else:
        runs.cluster.kubectl("exec", name, "-n", runs.namespace, "--", "touch", "/tmp/fail")
    runs.cluster.wait("two new pods", lambda: _running(runs, "1") == 2)
    found = json.loads(runs.cli("status", "run", "-o", "json").stdout)
    assert found["attempt"] == 1
    words = "was ended by the cluster: most likely an eviction" if cause == "evicted" else "failed: its exit code"
    assert found["last_restart"].startswith(f"restart 1: rank 1 (pod {name} on {node}) {words}"), found["last_restart"]
    assert found["last_restart"] in found["notes"]


def _running(runs: Runs, attempt: str) -> int:
    """How many pods of an attempt run."""
    pods = [pod for pod in runs.pods() if pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == attempt]
    return sum(row["ready"] for pod in pods for row in pod.get("status", {}).get("containerStatuses", []))


FAILS = RANK + "print('attempt', attempt)\nif rank == 1: sys.exit(7)\n" + SLEEP
ONCE = RANK + "print('attempt', attempt, flush=True)\nif attempt == 0: time.sleep(600)\n"
JOBS: dict[str, dict[str, Any]] = {
    "tried-again": {**PAIR, "text": FAILS, "pod_template": BRIEF, "restart": {"max_restarts": 1}},
    "final": {**PAIR, "text": FAILS, "pod_template": BRIEF, "restart": {"max_restarts": 3, "user_errors": "fail"}},
    "killed": {
        **PAIR,
        "text": RANK + "print('attempt', attempt, flush=True)\nif attempt == 0: os.kill(os.getpid(), signal.SIGKILL)\n",
        "restart": {"max_restarts": 1, "user_errors": "fail"},
    },
    "deleted-pod": {**PAIR, "text": ONCE, "restart": {"max_restarts": 1}},
    "deleted-pod-no-restart": {**PAIR, "text": ONCE},
    "by-hand": {
        **PAIR,
        "text": RANK + "print('begins', flush=True)\nwhile not pathlib.Path('/tmp/go').exists(): time.sleep(0.1)\n",
    },
}


@pytest.fixture(scope="module")
def started(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """The runs of the table, started together."""
    with many(cluster, tmp_path_factory.mktemp("runs"), JOBS) as found:
        yield found


class TestErrors:
    def test_an_error_is_retried_up_to_max_restarts_and_then_reported(self, started: Many) -> None:
        status, failure = started.end("tried-again"), started.failure("tried-again")
        assert (failure.kind, failure.rank, failure.exit_code, failure.restarts) == (FailureKind.USER_ERROR, 1, 7, 1)
        assert status.attempt == 1
        assert failure.pod.startswith("tried-again-node-0-1")
        assert started.listener("tried-again").texts("rank 1") == ["attempt 0", "attempt 1"]
        # Another note is possible: the restart may delete the pod of rank 0 before its last lines are read.
        (note,) = [note for note in status.notes if note.startswith("restart")]
        assert note.startswith("restart 1: rank 1 (pod tried-again-node-0-1")

    def test_an_error_is_final_if_the_job_states_so(self, started: Many) -> None:
        failure = started.failure("final")
        assert (failure.rank, failure.exit_code, failure.restarts) == (1, 7, 0)
        assert started.listener("final").texts("rank 1") == ["attempt 0"]

    def test_a_killed_rank_is_not_a_user_error(self, started: Many) -> None:
        status = started.end("killed")
        assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)


class TestPodsThatAreDeleted:
    def _delete(self, started: Many, run: str) -> str:
        started.listener(run).wait_for_line("attempt 0", count=2)
        pods = started.runs.get("pods", f"stepset.dev/run={run}")["items"]
        pod = sorted(str(each["metadata"]["name"]) for each in pods)[0]
        started.runs.cluster.kubectl("delete", f"pod/{pod}", "-n", started.runs.namespace, "--wait=false")
        return pod

    def test_deletion_by_hand_is_an_infrastructure_failure(self, started: Many) -> None:
        pod = self._delete(started, "deleted-pod-no-restart")
        failure = started.failure("deleted-pod-no-restart")
        assert (failure.kind, failure.rank, failure.pod) == (FailureKind.INFRASTRUCTURE, 0, pod)
        assert "its pod was deleted" in failure.message
        assert failure.aftermath == ("rank 1",)
        assert int(started.end("deleted-pod-no-restart").exit_code) == 3

    def test_it_is_retried_if_restarts_are_allowed(self, started: Many) -> None:
        pod = self._delete(started, "deleted-pod")
        status = started.end("deleted-pod")
        assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)
        assert f"(pod {pod}" in status.notes[0]


class TestSuspended:
    def _patch(self, started: Many, suspend: bool) -> None:
        patch = json.dumps({"spec": {"suspend": suspend}})
        started.runs.cluster.kubectl(
            "patch", "jobset/by-hand", "-n", started.runs.namespace, "--type=merge", "-p", patch
        )

    def test_a_run_suspended_by_hand_waits_and_continues_when_resumed(self, started: Many) -> None:
        listener = started.listener("by-hand")
        listener.wait_for_line("begins", count=2)
        self._patch(started, suspend=True)
        status = listener.wait_for(Phase.SUSPENDED)
        assert (status.failure, status.trouble) == (None, None)
        started.runs.cluster.wait("no pods", lambda: not started.runs.get("pods", "stepset.dev/run=by-hand")["items"])
        self._patch(started, suspend=False)
        listener.wait_for_line("begins", count=4)
        pods = started.runs.get("pods", "stepset.dev/run=by-hand")["items"]
        for pod in pods:
            words = ["exec", pod["metadata"]["name"], "-n", started.runs.namespace, "--", "touch", "/tmp/go"]
            started.runs.cluster.kubectl(*words)
        status = started.end("by-hand")
        assert status.phase is Phase.SUCCEEDED
        assert [listener.texts(f"rank {rank}") for rank in (0, 1)] == [["begins", "begins"]] * 2


def _waits_for(listener: RecordingListener) -> str:
    """The message of the trouble that was reported last."""
    trouble = listener.statuses[-1].trouble
    return "" if trouble is None else trouble.message


class TestQueues:
    QUEUED: dict[str, Any] = {"resources_per_node": {"requests": {"cpu": "10m"}}}  # noqa: RUF012  # a table

    def test_a_run_waits_for_admission_is_preempted_and_continues(self, runs: Runs) -> None:
        code = RANK + "print('begins', flush=True)\nwhile not pathlib.Path('/tmp/go').exists(): time.sleep(0.1)\n"
        with queue(runs.cluster, runs.namespace, 0) as name:
            handle, listener = runs.start(code, **PAIR, **self.QUEUED, scheduling={"queue_name": name})
            listener.wait_for(Phase.PENDING, "Queued")
            listener.wait_until(lambda: "insufficient quota for cpu" in _waits_for(listener), "Kueue's message")
            assert re.match(rf"the run waits in queue {name} and cannot be admitted without", _waits_for(listener))
            set_cpus(runs.cluster, runs.namespace, 1)
            listener.wait_for_line("begins", count=2)
            set_active(runs.cluster, runs.namespace, False)
            listener.wait_for(Phase.PENDING, "Queued")
            runs.cluster.wait("no pods", lambda: not runs.pods())
            set_active(runs.cluster, runs.namespace, True)
            listener.wait_for_line("begins", count=4)
            for pod in runs.pods():
                runs.cluster.kubectl("exec", pod["metadata"]["name"], "-n", runs.namespace, "--", "touch", "/tmp/go")
            status = handle.wait()
        assert status.phase is Phase.SUCCEEDED
        assert "started again: Kueue had evicted the run: The workload is deactivated" in status.notes
        assert [listener.texts(f"rank {rank}") for rank in (0, 1)] == [["begins", "begins"]] * 2

    def test_a_run_is_removed_from_the_queue_after_the_admission_timeout(self, runs: Runs) -> None:
        with queue(runs.cluster, runs.namespace, 0) as name:
            job: dict[str, Any] = {**PAIR, **self.QUEUED, "scheduling": {"queue_name": name}, "owner": "owner"}
            _, listener = runs.start("print('never')", options={"startup_timeout": 1}, **job)
            listener.wait_until(lambda: bool(listener.statuses and listener.statuses[-1].trouble), "trouble")
            handle, _ = runs.start("print('never')", options={"admission_timeout": 1}, **job)
            status = handle.wait()
            assert status.failure is not None
            assert (status.failure.kind, int(status.exit_code)) == (FailureKind.UNSCHEDULABLE, 3)
            assert re.match(rf"the run waits in queue {name}\b", status.failure.message)
            assert status.failure.message.endswith("; gave up after 1 s in the queue")
            assert REMOVED in status.notes
            runs.wait_nothing_left()
