"""A run is ended by whoever wants that: with the time its ranks need, or at once; no other run is ever hit."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes.api.connection import Connection, connect
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.find import find, read_objects
from stepset.backends.kubernetes.stop import delete, kill_pods, suspend
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.state import FailureKind, Phase
from tests.cluster.many import PAIR, RANK, RESULT, SLEEP, shared
from tests.cluster.runs import Listening, Runs
from tests.waiting import until

pytestmark = pytest.mark.cluster

SAVES = (
    RANK
    + "def save(number, frame):\n"
    + "    print('saving', flush=True); time.sleep(2); print('saved', flush=True); sys.exit(0)\n"
    + "signal.signal(signal.SIGTERM, save); print('training', flush=True)\n"
    + SLEEP
)
"""A rank that takes two seconds to save what it has."""
STUBBORN = RANK + "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('training', flush=True)\n" + SLEEP
"""A rank that does not end when it is told to."""
PATIENT: dict[str, Any] = {"pod_template": {"terminationGracePeriodSeconds": 600}}
"""Far longer than any test waits."""
RESUME = '{"spec": {"suspend": false}}'


class TestWithGrace:
    def test_ranks_are_given_time_and_heard_to_the_end_and_nothing_is_left(self, runs: Runs) -> None:
        handle, heard = runs.start(SAVES, **PAIR)
        heard.wait_for_line("training", count=2)
        handle.cancel()
        status = handle.wait()
        assert [heard.texts(f"rank {rank}") for rank in (0, 1)] == [["training", "saving", "saved"]] * 2
        assert status.failure is not None
        assert (status.phase, status.failure.kind) == (Phase.FAILED, FailureKind.CANCELLED)
        assert (status.failure.message, int(status.exit_code)) == (
            "the run was cancelled: its JobSet was deleted.",
            130,
        )
        assert (status.failure.rank, status.failure.pod) == (None, "")
        assert any("pods are given time" in note for each in heard.statuses for note in each.notes)
        runs.wait_nothing_left()

    def test_who_deletes_it_by_hand_cancels_it_too(self, runs: Runs) -> None:
        handle, heard = runs.start(SAVES, **PAIR)
        heard.wait_for_line("training", count=2)
        runs.cluster.kubectl("delete", "jobset/run", "-n", runs.namespace, "--wait=false")
        status = handle.wait()
        assert status.failure is not None
        assert status.failure.kind is FailureKind.CANCELLED
        assert [heard.texts(f"rank {rank}")[-1] for rank in (0, 1)] == ["saved", "saved"]
        runs.wait_nothing_left()

    def test_a_run_that_has_not_started_is_gone_at_once(self, runs: Runs) -> None:
        handle, heard = runs.start("print('never')", resources_per_node={"cpu": 1000})
        heard.wait_for(Phase.PENDING, "Unschedulable")
        handle.cancel()
        status = handle.wait()
        assert status.failure is not None
        assert status.failure.kind is FailureKind.CANCELLED
        runs.wait_nothing_left()


class TestAtOnce:
    def test_asked_twice_it_is_killed(self, runs: Runs) -> None:
        handle, heard = runs.start(STUBBORN, **PAIR, **PATIENT)
        heard.wait_for_line("training", count=2)
        handle.cancel()
        heard.wait_until(lambda: bool(heard.statuses[-1].notes), "its deletion")
        handle.cancel()
        status = handle.wait()
        assert status.failure is not None
        assert status.failure.kind is FailureKind.CANCELLED
        runs.wait_nothing_left()

    def test_stepset_cancel_now(self, runs: Runs) -> None:
        _, heard = runs.start(STUBBORN, **PAIR, **PATIENT)
        heard.wait_for_line("training", count=2)
        done = runs.cli("cancel", "run", "--now")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("stepset: run run was cancelled after ")
        runs.wait_nothing_left()


class TestFromTheCommandLine:
    def test_stepset_cancel_waits_until_the_ranks_have_ended(self, runs: Runs) -> None:
        handle, heard = runs.start(SAVES, **PAIR)
        heard.wait_for_line("training", count=2)
        done = runs.cli("cancel", "run")
        assert done.stderr.startswith("stepset: run run was cancelled after ")
        assert done.returncode == 0
        handle.wait()
        assert [heard.texts(f"rank {rank}")[-1] for rank in (0, 1)] == ["saved", "saved"]
        runs.wait_nothing_left()
        again = runs.cli("cancel", "run")
        assert (again.returncode, again.stderr) == (
            2,
            f"stepset: run 'run' is not in namespace {runs.namespace}; see 'stepset list --backend kubernetes"
            f" --namespace {runs.namespace}'\n",
        )

    def test_a_run_that_is_over_stays_as_it_is(self, runs: Runs) -> None:
        status, _ = runs.run("print('done')")
        assert status.phase is Phase.SUCCEEDED
        done = runs.cli("cancel", "run")
        assert (done.returncode, done.stderr) == (0, "stepset: run is already over: Succeeded\n")
        assert "jobset/run" in runs.left()

    def test_ctrl_c_ends_the_run_that_it_started(self, runs: Runs) -> None:
        runs.job_file(SAVES, **PAIR)
        with runs.program("run", "job.yaml") as process:
            lines = _read_until(process, "training", 2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=180)
        lines += out.splitlines()
        assert sorted(lines) == sorted(f"[rank {r}] {text}" for r in (0, 1) for text in ("training", "saving", "saved"))
        assert "stopping the run; a second signal kills it at once" in err
        assert "was cancelled after" in err.splitlines()[-1]
        assert process.returncode == 130
        runs.wait_nothing_left()

    def test_ctrl_c_twice_kills_it(self, runs: Runs) -> None:
        runs.job_file(STUBBORN, **PAIR, **PATIENT)
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
    """Lines of stdout until so many hold a text."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.rstrip("\n"))
        if sum(text in each for each in found) == count:
            break
    return found


@pytest.fixture
def connection(runs: Runs) -> Connection:
    """The server, as the account of the runs."""
    return connect(str(runs.kubeconfig))


@pytest.fixture
def site(connection: Connection, runs: Runs) -> NamespacedClient:
    """The namespace as the backend sees it."""
    return NamespacedClient(connection.client, runs.namespace)


class TestSuspended:
    def test_its_pods_go_with_grace_and_it_can_be_resumed(self, runs: Runs, tmp_path: Path) -> None:
        state = tmp_path / "state"
        state.mkdir()
        begun = RANK + f"begun = pathlib.Path({str(state)!r}, f'begun-{{rank}}')\n"
        resumes = "if begun.exists():\n    print('resumed'); sys.exit(0)\nbegun.touch()\n"
        code = begun + resumes + SAVES.removeprefix(RANK)
        backend = runs.backend()
        backend.submit(runs.request(code, **PAIR, pod_template=shared(runs.cluster, state)))
        heard = Listening()
        handle = backend.follow(_workload(backend), heard)
        heard.wait_for_line("training", count=2)
        handle.cancel(suspend)
        assert handle.wait().phase is Phase.SUSPENDED
        assert [heard.texts(f"rank {rank}") for rank in (0, 1)] == [["training", "saving", "saved"]] * 2
        assert until(lambda: not runs.pods(), 60), "the objects go once the kubelet has seen their processes go"
        runs.cluster.kubectl("patch", "jobset/run", "-n", runs.namespace, "--type=merge", "-p", RESUME)
        after = Listening()
        status = backend.follow(_workload(backend), after).wait()
        assert status.phase is Phase.SUCCEEDED
        assert [after.texts(f"rank {rank}") for rank in (0, 1)] == [["resumed"], ["resumed"]]


def _workload(backend: KubernetesBackend) -> Mapping[str, Any]:
    found = backend.workload("run")
    assert found is not None
    return found


class TestNamesakes:
    def test_whoever_holds_a_run_that_is_gone_does_not_hit_one_of_the_same_name(
        self, runs: Runs, connection: Connection, site: NamespacedClient
    ) -> None:
        handle, heard = runs.start(SAVES)
        heard.wait_for_line("training")
        old = connection.call(find, site, "run")
        known = connection.call(read_objects, site, old)
        handle.cancel()
        over = handle.wait()
        runs.wait_nothing_left()
        handle, heard = runs.start(
            RANK + "print('training', flush=True); time.sleep(8)\nif True: " + RESULT.format("'mine'")
        )
        heard.wait_for_line("training")
        connection.call(delete, site, old)
        connection.call(suspend, site, old)
        connection.call(kill_pods, site, known)
        assert not connection.call(write_verdict, site, old, over)
        status = handle.wait()
        assert (status.phase, status.result) == (Phase.SUCCEEDED, "mine")
        assert verdict_of(connection.call(find, site, "run")) == status
