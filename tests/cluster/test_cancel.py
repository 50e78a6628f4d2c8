"""Runs are cancelled with a grace period or at once, without effect on other runs."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import Connection, connect
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.find import find, read_objects
from stepset.backends.kubernetes.stop import REPORTED_WITHIN, delete, delete_ended, kill_pods, suspend
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.run_status import FailureKind, Phase
from stepset.watch.cluster.workload import verdict_of
from tests.cluster.many import PAIR, RANK, RESULT, SLEEP, shared
from tests.cluster.runs import RecordingListener, Runs, terminating
from tests.cluster.stage import Stage
from tests.waiting import until

pytestmark = pytest.mark.cluster

SAVES = (
    RANK
    + "def save(number, frame):\n"
    + "    print('saving', flush=True); time.sleep(2); print('saved', flush=True); sys.exit(0)\n"
    + "signal.signal(signal.SIGTERM, save); print('training', flush=True)\n"
    + SLEEP
)
"""A rank that takes two seconds to save its state."""
STUBBORN = RANK + "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('training', flush=True)\n" + SLEEP
"""A rank that ignores SIGTERM."""
LONG_GRACE: dict[str, Any] = {"pod_template": {"terminationGracePeriodSeconds": 600}}
"""Longer than any test waits."""
RESUME = '{"spec": {"suspend": false}}'


class TestWithGrace:
    def test_shows_all_lines_of_the_ranks_grace_period_and_leaves_nothing_behind(self, runs: Runs) -> None:
        handle, listener = runs.start(SAVES, **PAIR)
        listener.wait_for_line("training", count=2)
        handle.cancel()
        status = handle.wait()
        assert [listener.texts(f"rank {rank}") for rank in (0, 1)] == [["training", "saving", "saved"]] * 2
        assert status.failure is not None
        assert (status.phase, status.failure.kind) == (Phase.FAILED, FailureKind.CANCELLED)
        assert (status.failure.message, int(status.exit_code)) == (
            "the run was cancelled: its JobSet was deleted; its pods had 60 s to end.",
            130,
        )
        assert (status.failure.rank, status.failure.pod) == (None, "")
        assert any("pods have time to end" in note for each in listener.statuses for note in each.notes)
        runs.wait_nothing_left()

    def test_deletion_by_hand_is_a_cancellation(self, runs: Runs) -> None:
        handle, listener = runs.start(SAVES, **PAIR)
        listener.wait_for_line("training", count=2)
        runs.cluster.kubectl("delete", "jobset/run", "-n", runs.namespace, "--wait=false")
        status = handle.wait()
        assert status.failure is not None
        assert status.failure.kind is FailureKind.CANCELLED
        assert [listener.texts(f"rank {rank}")[-1] for rank in (0, 1)] == ["saved", "saved"]
        runs.wait_nothing_left()

    def test_a_run_that_has_not_started_is_deleted_at_once(self, runs: Runs) -> None:
        handle, listener = runs.start("print('never')", resources_per_node={"cpu": 1000})
        listener.wait_for(Phase.PENDING, "Unschedulable")
        handle.cancel()
        status = handle.wait()
        assert status.failure is not None
        assert status.failure.kind is FailureKind.CANCELLED
        runs.wait_nothing_left()

    @pytest.mark.parametrize("way", ["stepset cancel", "Ctrl-C", "deletion of the pods"])
    def test_a_rank_of_torchrun_that_needs_40_s_to_save_has_them(self, runs: Runs, way: str) -> None:
        runs.job_file(SAVES.replace("time.sleep(2)", "time.sleep(40)"), **PAIR)
        with runs.program("run", "job.yaml") as process:
            lines = _read_until(process, "training", 2)
            if way == "Ctrl-C":
                process.send_signal(signal.SIGINT)
            elif way == "stepset cancel":
                (name,) = (each["metadata"]["name"] for each in runs.get("jobsets")["items"])
                assert runs.cli("cancel", name).returncode == 0
            else:
                pods = ("pods", "-l", "stepset.dev/run", "-n", runs.namespace, "--wait=false")
                runs.cluster.kubectl("delete", *pods)
            out, _ = process.communicate(timeout=180)
        lines += out.splitlines()
        assert sorted(each for each in lines if each.endswith("saved")) == ["[rank 0] saved", "[rank 1] saved"]


class TestAtOnce:
    def test_a_second_cancellation_kills_the_run(self, runs: Runs) -> None:
        handle, listener = runs.start(STUBBORN, **PAIR, **LONG_GRACE)
        listener.wait_for_line("training", count=2)
        handle.cancel()
        listener.wait_until(lambda: bool(listener.statuses[-1].notes), "its deletion")
        handle.cancel()
        status = handle.wait()
        assert status.failure is not None
        assert status.failure.message == "the run was cancelled: its JobSet was deleted; its pods were killed."
        runs.wait_nothing_left()

    def test_stepset_cancel_now_kills_the_run(self, runs: Runs) -> None:
        _, listener = runs.start(STUBBORN, **PAIR, **LONG_GRACE)
        listener.wait_for_line("training", count=2)
        done = runs.cli("cancel", "run", "--now")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("stepset: run run is stopping")
        assert done.stderr.splitlines()[1].startswith("stepset: run run was cancelled after ")
        assert "its pods were killed" in done.stderr
        runs.wait_nothing_left()


class TestFromTheCommandLine:
    def test_stepset_cancel_waits_until_the_ranks_have_ended(self, runs: Runs) -> None:
        handle, listener = runs.start(SAVES, **PAIR)
        listener.wait_for_line("training", count=2)
        done = runs.cli("cancel", "run")
        assert done.stderr.startswith("stepset: run run is stopping")
        assert done.stderr.splitlines()[1].startswith("stepset: run run was cancelled after ")
        assert done.returncode == 0
        handle.wait()
        assert [listener.texts(f"rank {rank}")[-1] for rank in (0, 1)] == ["saved", "saved"]
        runs.wait_nothing_left()
        again = runs.cli("cancel", "run")
        assert (again.returncode, again.stderr) == (
            2,
            f"stepset: run 'run' is not in namespace {runs.namespace}, or was deleted, for example after it failed in a"
            " queue, or has a target whose runs this account may not read (trainjob, statefulset); list the runs of"
            " this namespace to see their names\n",
        )

    def test_a_run_that_is_over_is_not_changed(self, runs: Runs) -> None:
        status, _ = runs.run("print('done')")
        assert status.phase is Phase.SUCCEEDED
        done = runs.cli("cancel", "run")
        assert (done.returncode, done.stderr) == (0, "stepset: run is already over: Succeeded\n")
        assert "jobset/run" in runs.left()

    def test_ctrl_c_cancels_the_run_of_stepset_run(self, runs: Runs) -> None:
        runs.job_file(SAVES, **PAIR)
        with runs.program("run", "job.yaml") as process:
            lines = _read_until(process, "training", 2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=180)
        lines += out.splitlines()
        assert sorted(lines) == sorted(f"[rank {r}] {text}" for r in (0, 1) for text in ("training", "saving", "saved"))
        assert "stopping the run; a second signal kills it at once" in err
        assert re.search("was cancelled after .*; its pods had 60 s to end", err.splitlines()[-1])
        assert process.returncode == 130
        runs.wait_nothing_left()

    def test_ctrl_c_twice_kills_it(self, runs: Runs) -> None:
        runs.job_file(STUBBORN, **PAIR, **LONG_GRACE)
        with runs.program("run", "job.yaml") as process:
            _read_until(process, "training", 2)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert any("a second signal kills it" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=180)
        assert process.returncode == 130
        runs.wait_nothing_left()


def _read_until(process: subprocess.Popen[str], text: str, count: int) -> list[str]:
    """Reads stdout until `count` lines contain `text`; returns the lines."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.rstrip("\n"))
        if sum(text in each for each in found) == count:
            break
    return found


@pytest.fixture
def connection(runs: Runs) -> Connection:
    """A connection with the account of the runs."""
    return connect(str(runs.kubeconfig))


@pytest.fixture
def namespaced(connection: Connection, runs: Runs) -> NamespacedClient:
    """The client of the namespace with which the backend works."""
    return NamespacedClient(connection.client, runs.namespace)


class TestSuspended:
    def test_its_pods_have_a_grace_period_and_it_can_be_resumed(self, runs: Runs, tmp_path: Path) -> None:
        state = tmp_path / "state"
        state.mkdir()
        started = RANK + f"started = pathlib.Path({str(state)!r}, f'started-{{rank}}')\n"
        resumes = "if started.exists():\n    print('resumed'); sys.exit(0)\nstarted.touch()\n"
        code = started + resumes + SAVES.removeprefix(RANK)
        backend = runs.backend()
        backend.submit(runs.request(code, **PAIR, pod_template=shared(runs.cluster, state)))
        listener = RecordingListener()
        handle = backend.follow(_workload(backend), listener)
        listener.wait_for_line("training", count=2)
        handle.cancel(suspend)
        assert handle.wait().phase is Phase.SUSPENDED
        assert [listener.texts(f"rank {rank}") for rank in (0, 1)] == [["training", "saving", "saved"]] * 2
        assert until(lambda: not runs.pods()), "the pods are deleted when the kubelet has seen their processes end"
        runs.cluster.kubectl("patch", "jobset/run", "-n", runs.namespace, "--type=merge", "-p", RESUME)
        after = RecordingListener()
        status = backend.follow(_workload(backend), after).wait()
        assert status.phase is Phase.SUCCEEDED
        assert [after.texts(f"rank {rank}") for rank in (0, 1)] == [["resumed"], ["resumed"]]


def _workload(backend: KubernetesBackend) -> Mapping[str, Any]:
    found = backend.workload("run")
    assert found is not None
    return found


class TestNamesakes:
    def test_operations_on_a_deleted_run_do_not_affect_a_run_of_the_same_name(
        self, runs: Runs, connection: Connection, namespaced: NamespacedClient
    ) -> None:
        handle, listener = runs.start(SAVES)
        listener.wait_for_line("training")
        old = connection.call(find, namespaced, "run")
        known = connection.call(read_objects, namespaced, old)
        handle.cancel()
        over = handle.wait()
        runs.wait_nothing_left()
        handle, listener = runs.start(
            RANK + "print('training', flush=True); time.sleep(8)\nif True: " + RESULT.format("'mine'")
        )
        listener.wait_for_line("training")
        connection.call(delete, namespaced, old)
        connection.call(suspend, namespaced, old)
        connection.call(kill_pods, namespaced, known)
        assert not connection.call(write_verdict, namespaced, old, over)
        status = handle.wait()
        assert (status.phase, status.result) == (Phase.SUCCEEDED, "mine")
        # The Job's status counts the success before the JobSet's does, and a verdict needs an ended workload.
        runs.cluster.wait("its end", lambda: verdict_of(connection.call(find, namespaced, "run")) == status)


class TestAnEndedRun:
    """A process knows the end of a run, and stores it, before the controller reports it."""

    def test_is_deleted_once_its_controller_has_reported_the_end(
        self, runs: Runs, connection: Connection, namespaced: NamespacedClient, stage: Stage
    ) -> None:
        handle, listener = runs.start(**stage.job("print('training', flush=True)", "wait_until('end')"))
        listener.wait_for_line("training")
        workload = connection.call(find, namespaced, "run")
        end = listener.statuses[-1].with_(phase=Phase.SUCCEEDED, finished=time.time())
        connection.call(write_verdict, namespaced, workload, end)
        with ThreadPoolExecutor() as threads:
            deletion = threads.submit(connection.call, delete_ended, namespaced, workload)
            time.sleep(1)
            assert not connection.call(find, namespaced, "run")["metadata"].get("deletionTimestamp")
            stage.say("end")
            deletion.result()
        assert handle.wait().phase is Phase.SUCCEEDED
        runs.wait_nothing_left()

    def test_is_deleted_after_some_seconds_if_its_controller_does_not_report_the_end(
        self, runs: Runs, connection: Connection, namespaced: NamespacedClient
    ) -> None:
        handle, listener = runs.start(RANK + "print('training', flush=True)\n" + SLEEP)
        listener.wait_for_line("training")
        workload = connection.call(find, namespaced, "run")
        end = listener.statuses[-1].with_(phase=Phase.SUCCEEDED, finished=time.time())
        connection.call(write_verdict, namespaced, workload, end)
        began = time.monotonic()
        connection.call(delete_ended, namespaced, workload)
        assert time.monotonic() - began >= REPORTED_WITHIN
        handle.wait()
        runs.wait_nothing_left()


def test_a_run_whose_namespace_is_deleted_states_this(runs: Runs) -> None:
    handle, listener = runs.start("import time; print('here', flush=True); time.sleep(600)", num_nodes=1)
    listener.wait_for_line("here")
    with terminating(runs):
        failure = handle.wait().failure
    assert failure is not None
    assert failure.message.endswith(f": its namespace {runs.namespace} is being deleted.")
    assert failure.advice == "Create the namespace again, or use another one, and run the job again."
