"""Many runs on fake nodes followed with one set of watches, under the least Role: every end is told, also late."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from stepset.backends.kubernetes.client import connect
from stepset.backends.kubernetes.shared_watch import NamespaceWatch
from stepset.backends.kubernetes.site import Site
from stepset.watch.state import FailureKind, Phase, RunStatus
from tests.cluster.runs import Runs
from tests.cluster.test_scale import fake_nodes  # noqa: F401  # fixture
from tests.cluster.testbed import scale

pytestmark = pytest.mark.cluster

COUNT = 20
FAILS = {"run-3", "run-17"}


def submit(runs: Runs, name: str, run_for: str = "1s") -> None:
    """Two fake pods, of which one may fail."""
    notes = {scale.RUN_FOR: run_for, **({scale.FAIL_INDEX: "1", scale.EXIT_CODE: "7"} if name in FAILS else {})}
    fields = {"command": ["true"], "agent": False, "num_nodes": 2, "annotations": notes}
    runs.backend().submit(runs.request(run=name, pod_template=scale.PLACEMENT, **fields))


def take_until(watch: NamespaceWatch, condition: Callable[[], bool], what: str) -> set[str]:
    """Takes in what comes until something holds; the runs that changed."""
    until, told = time.monotonic() + 180, set()
    while not condition():
        assert time.monotonic() < until, f"waited for {what}; known: {watch.runs}"
        told |= watch.take(1.0)
    return told


def over(watch: NamespaceWatch, name: str) -> bool:
    status = watch.status(name, time.time())
    return status is not None and status.phase.final


@pytest.mark.usefixtures("fake_nodes")
def test_many_runs_are_followed_with_one_set_of_watches(runs: Runs) -> None:
    names = [f"run-{number}" for number in range(COUNT)]
    site = Site(connect(str(runs.kubeconfig)), runs.namespace)
    with NamespaceWatch(site) as watch:
        for name in names:
            submit(runs, name)
        told = take_until(watch, lambda: all(over(watch, name) for name in names), "the end of all runs")
        assert told == set(names)

        now = time.time()
        found = {name: watch.status(name, now) for name in names}
        listed = {status.name: status for status in runs.backend().list()}
        assert {name: _essence(status) for name, status in found.items() if status} == {
            name: _essence(status) for name, status in listed.items()
        }
        failures = {name: status.failure for name, status in found.items() if status and status.failure}
        assert failures.keys() == FAILS
        assert {failure.kind for failure in failures.values()} == {FailureKind.USER_ERROR}
        assert {failure.exit_code for failure in failures.values()} == {7}

        # Somebody waits for one of them while all are deleted; and for one that nobody ever made.
        watch.keep("run-5", runs.get("jobset/run-5")["metadata"]["uid"])
        runs.cluster.kubectl("delete", "jobsets", "--all", "-n", runs.namespace, "--wait=false")
        take_until(watch, lambda: watch.runs == ["run-5"], "what is gone to be forgotten")
        ended = watch.status("run-5", now)
        assert ended is not None and ended.phase is Phase.SUCCEEDED
        watch.keep("nobody", "a-uid")
        lost = watch.status("nobody", now)
        assert lost is not None and lost.phase is Phase.LOST
        watch.forget("run-5")
        assert watch.runs == ["nobody"]


def _essence(status: RunStatus) -> tuple[object, ...]:
    rows = tuple((row.pod, row.state, row.exit_code) for row in status.ranks)
    return status.phase, rows, status.failure and status.failure.message
