"""Many runs on fake nodes are followed with one set of watches and the minimal Role; the end of each is reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from stepset.backends.kubernetes.api.client import client_of
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.watch.informer import Informer
from stepset.backends.kubernetes.watch.selectors import of_namespace
from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.watch.cluster.status import status_of
from stepset.watch.state.reports import Reports
from tests.cluster.runs import Runs
from tests.cluster.test_scale import fake_nodes  # noqa: F401  # fixture
from tests.cluster.testbed import scale

pytestmark = pytest.mark.cluster

REFERENCE = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
COUNT = 20
FAILS = {"run-3", "run-17"}


def submit(runs: Runs, name: str, run_for: str = "1s") -> None:
    """Submits a run of two fake pods; those in FAILS have a pod that fails."""
    notes = {scale.RUN_FOR: run_for, **({scale.FAIL_INDEX: "1", scale.EXIT_CODE: "7"} if name in FAILS else {})}
    fields = {"command": ["true"], "agent": False, "num_nodes": 2, "annotations": notes}
    runs.backend().submit(runs.request(run=name, pod_template=scale.PLACEMENT, **fields))


class Watch:
    """The runs of a namespace, as an informer observes them."""

    def __init__(self, informer: Informer) -> None:
        self.informer = informer

    def status(self, name: str, now: float) -> RunStatus | None:
        objects = self.informer.router.objects(name)
        return None if objects is None else status_of(objects, Reports(), now)

    def over(self, name: str) -> bool:
        status = self.status(name, time.time())
        return status is not None and status.phase.final

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until a condition holds."""
        end = time.monotonic() + 180
        while not condition():
            assert time.monotonic() < end, f"waited for {what}; known: {self.informer.router.runs}"
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("fake_nodes")
def test_many_runs_are_followed_with_one_set_of_watches(runs: Runs) -> None:
    names = [f"run-{number}" for number in range(COUNT)]

    async def follow() -> None:
        namespaced = NamespacedClient(client_of(str(runs.kubeconfig)), runs.namespace)
        async with Informer(namespaced, of_namespace) as informer:
            await check(Watch(informer))

    async def check(watch: Watch) -> None:
        informer = watch.informer
        await asyncio.to_thread(submit, runs, names[0])
        first = await asyncio.to_thread(runs.backend().workload, names[0])
        assert first is not None
        async with informer.follow(first):
            for name in names[1:]:
                await asyncio.to_thread(submit, runs, name)
            await watch.until(lambda: all(map(watch.over, names)), "the end of all runs")

            now = time.time()
            found = {name: watch.status(name, now) for name in names}
            listed = {status.name: status for status in await asyncio.to_thread(runs.backend().list)}
            assert {name: _essence(status) for name, status in found.items() if status} == {
                name: _essence(status) for name, status in listed.items()
            }
            failures = {name: status.failure for name, status in found.items() if status and status.failure}
            assert failures.keys() == FAILS
            assert {failure.kind for failure in failures.values()} == {FailureKind.USER_ERROR}
            assert {failure.exit_code for failure in failures.values()} == {7}

            # Two runs are followed while all are deleted, and one that was never created.
            fifth = await asyncio.to_thread(runs.backend().workload, "run-5")
            assert fifth is not None
            async with informer.follow(fifth):
                delete = ("delete", "jobsets", "--all", "-n", runs.namespace, "--wait=false")
                await asyncio.to_thread(runs.cluster.kubectl, *delete)
                await watch.until(
                    lambda: set(informer.router.runs) == {names[0], "run-5"}, "the removal of the deleted runs"
                )
                ended = watch.status("run-5", now)
                assert ended is not None and ended.phase is Phase.SUCCEEDED
                never = {**REFERENCE, "metadata": {"name": "never-created", "uid": "a-uid"}}
                async with informer.follow(never):
                    lost = watch.status("never-created", now)
                    assert lost is not None and lost.phase is Phase.LOST
            assert informer.router.runs == [names[0]]

    asyncio.run(follow())


def _essence(status: RunStatus) -> tuple[object, ...]:
    rows = tuple((row.pod, row.state, row.exit_code) for row in status.ranks)
    return status.phase, rows, status.failure and status.failure.message
