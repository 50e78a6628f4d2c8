"""Positions in a queue of a real Kueue, for accounts with and without the right to read them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.queues import queue
from tests.cluster.runs import ACCOUNT, RecordingListener, Runs
from tests.cluster.testbed.layout import TestbedError
from tests.waiting import until

if TYPE_CHECKING:
    from stepset.backends.kubernetes.backend import KubernetesHandle

pytestmark = pytest.mark.cluster

STAYS = "import time\nprint('begins', flush=True)\ntime.sleep(600)\n"
BARELY_FITS: dict[str, Any] = {"resources_per_node": {"requests": {"cpu": "600m"}}}
"""A quota of one CPU has no room for a second such run."""


@contextmanager
def full_queue(runs: Runs) -> Iterator[dict[str, Any]]:
    """A queue that a running run fills; yields the fields of a job that waits in it."""
    with queue(runs.cluster, runs.namespace, 1) as name:
        job = {**BARELY_FITS, "scheduling": {"queue_name": name}}
        handle, first = runs.start(STAYS, run="first", **job)
        first.wait_for_line("begins")
        yield job
        end(handle)


def end(handle: KubernetesHandle) -> None:
    """Cancels a run and waits for its end."""
    handle.cancel()
    handle.wait()


def wait_until_queued(runs: Runs, name: str) -> None:
    """Waits until a run, or a run of the job `name`, has a Workload; later runs are queued behind it."""

    def queued() -> bool:
        workloads = runs.get("workloads.kueue.x-k8s.io")["items"]
        owners = [owner["name"] for each in workloads for owner in each["metadata"]["ownerReferences"]]
        return any(re.fullmatch(rf"{name}(-\w+)?", owner) for owner in owners)

    runs.cluster.wait(f"run {name} to be queued", queued)


def lines_of(program: subprocess.Popen[str]) -> list[str]:
    """The lines of a program's stderr; a thread appends them as they are written."""
    found: list[str] = []
    assert program.stderr is not None
    threading.Thread(target=found.extend, args=[program.stderr], daemon=True).start()
    return found


def position(listener: RecordingListener) -> int | None:
    """The position that was reported last."""
    waiting = listener.statuses[-1].waiting if listener.statuses else None
    return None if waiting is None else waiting.position


def test_runs_behind_a_running_one_state_their_positions(runs: Runs) -> None:
    with full_queue(runs) as job:
        handle, second = runs.start(STAYS, run="second", **job)
        wait_until_queued(runs, "second")
        file = runs.job_file(STAYS, **job)
        with runs.program("run", file, "--name", "third") as program:
            try:
                lines = lines_of(program)
                wait_until_queued(runs, "third")
                second.wait_until(lambda: position(second) == 1, "its position")
                assert until(lambda: "at position 2" in "".join(lines)), lines
                for name, place in (("second", 1), ("third", 2)):
                    assert f"the run waits in queue team-a at position {place}" in runs.cli("status", name).stdout
                found = json.loads(runs.cli("status", "third", "-o", "json").stdout)
                assert found["waiting"]["position"] == 2
                assert found["waiting"]["requests"] == {"cpu": "600m"}
                assert runs.cli("cancel", "second").returncode == 0
                assert until(lambda: "queued: now at position 1 in queue team-a" in "".join(lines)), lines
                program.send_signal(signal.SIGINT)
                program.wait(60)
            finally:
                program.kill()
        handle.wait()


def test_an_account_without_the_right_gets_the_reason_of_the_wait_without_a_position(runs: Runs) -> None:
    revoke_positions(runs)
    with full_queue(runs) as job:
        handle, second = runs.start(STAYS, run="second", **job)
        wait_until_queued(runs, "second")
        second.wait_until(lambda: bool(second.statuses and second.statuses[-1].waiting), "why it waits")
        assert not until(lambda: position(second) is not None, 3.0)
        assert second.statuses[-1].notes == ()
        page = runs.cli("status", "second")
        assert (page.returncode, page.stderr) == (0, "")
        assert "the run waits in queue team-a: " in page.stdout
        logs = runs.cli("logs", "second")
        assert (logs.returncode, logs.stdout) == (0, "")
        start = "stepset: note: no pod has started yet; the run is Pending (Queued): the run waits in queue"
        assert logs.stderr.startswith(start)
        assert "; see stepset status second" in logs.stderr
        (listed,) = json.loads(runs.cli("list", "--reason", "Queued", "-o", "json").stdout)["items"]
        assert listed["waiting"]["queue"] == "team-a" and listed["waiting"]["message"]
        end(handle)


def revoke_positions(runs: Runs) -> None:
    """Removes only the right to read positions from the account."""
    assert may_read(runs)
    role = runs.get("roles.rbac.authorization.k8s.io/stepset-kueue")
    kept = [rule for rule in role["rules"] if rule["apiGroups"] != ["visibility.kueue.x-k8s.io"]]
    assert len(kept) == len(role["rules"]) - 1
    patch = json.dumps({"rules": kept})
    runs.cluster.kubectl("patch", "role", "stepset-kueue", "-n", runs.namespace, "--type=merge", "-p", patch)
    runs.cluster.wait("the removal of the right", lambda: not may_read(runs))


def may_read(runs: Runs) -> bool:
    """Whether the account may read positions."""
    who = f"system:serviceaccount:{runs.namespace}:{ACCOUNT}"
    words = ["get", "localqueues.visibility.kueue.x-k8s.io/team-a", "--subresource=pendingworkloads"]
    try:
        runs.cluster.kubectl("auth", "can-i", *words, "--as", who, "-n", runs.namespace)
    except TestbedError:  # `can-i` exits with 1 for "no"
        return False
    return True
