"""Runs that a real Kueue cannot admit without a change.

Each run states the change. If its queue is inactive, the run waits. Otherwise, it fails after two minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import stepset
from stepset.errors import BadInputError
from stepset.run_status import FailureKind, Phase
from stepset.targets.dump import to_yaml
from tests.cluster.many import Many
from tests.cluster.queues import apply_objects, queue
from tests.cluster.remedies import reading_classes
from tests.cluster.runs import ACCOUNT, RecordingListener, Runs, runs_in
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError

pytestmark = pytest.mark.cluster

CODE = "print('trained')"
SMALL: dict[str, Any] = {"resources_per_node": {"requests": {"cpu": "10m"}}}
CANNOT = r"the run waits in queue \S+ and cannot be admitted without a change: "
# Run -> queue, fields of its job, and a pattern of Kueue's message and the change.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "large": (
        "team-a",
        {"resources_per_node": {"requests": {"cpu": 3}}},
        r"couldn't assign .* maximum capacity \(1\); request less \(resources_per_node, num_nodes\), or have the quota",
    ),
    "device": (
        "team-a",
        {"resources_per_node": {"gpus": 1}},
        r"couldn't assign .*resource nvidia.com/gpu unavailable in ClusterQueue; the queue has no quota for nvidia.com",
    ),
    "flavorless": (
        "flavorless",
        SMALL,
        r"ClusterQueue \S+ is inactive; `kubectl describe clusterqueue \S+` states why",
    ),
    "stopped": ("stopped", SMALL, r"LocalQueue stopped is inactive; have an administrator resume it"),
}


@pytest.fixture(scope="module")
def waiting(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """The runs of the table, started together."""
    with cluster.namespace() as namespace, queue(cluster, namespace, 1):
        without = f"{namespace}-flavorless"
        quota = {"name": f"{namespace}-none", "resources": [{"name": "cpu", "nominalQuota": 1}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        apply_objects(
            cluster,
            namespace,
            {
                "kind": "ClusterQueue",
                "metadata": {"name": without},
                "spec": {"namespaceSelector": {}, "resourceGroups": groups},
            },
            {"kind": "LocalQueue", "metadata": {"name": "flavorless"}, "spec": {"clusterQueue": without}},
            {
                "kind": "LocalQueue",
                "metadata": {"name": "stopped"},
                "spec": {"clusterQueue": namespace, "stopPolicy": "Hold"},
            },
        )
        jobs = {
            name: {"text": CODE, "scheduling": {"queue_name": queue_name}, **fields}
            for name, (queue_name, fields, _) in CASES.items()
        }
        try:
            with runs_in(cluster, namespace, tmp_path_factory.mktemp("runs")) as runs:
                yield Many(runs, jobs)
        finally:
            cluster.kubectl("delete", "clusterqueue", without, "--wait=false")


def test_a_run_in_a_missing_queue_is_refused(runs: Runs) -> None:
    with queue(runs.cluster, runs.namespace, 1), pytest.raises(BadInputError) as found:
        runs.start(CODE, **SMALL, scheduling={"queue_name": "nope"})
    where = f"in namespace {runs.namespace}; use one that exists: team-a"
    assert str(found.value) == f"scheduling.queue_name: LocalQueue 'nope' does not exist {where}"
    assert runs.left() == []


@pytest.mark.parametrize("run", CASES)
def test_the_waiting_run_states_the_change(waiting: Many, run: str) -> None:
    listener = waiting.listener(run)
    pattern = CANNOT + CASES[run][2]

    def stated() -> bool:
        trouble = listener.statuses[-1].trouble if listener.statuses else None
        return trouble is not None and re.match(pattern, trouble.message) is not None

    listener.wait_until(stated, "the change")
    line = waiting.runs.cli("status", run).stdout
    assert re.search(pattern, " ".join(line.split())), line


@pytest.mark.parametrize("run", ["large", "device"])
def test_the_run_fails_after_two_minutes_and_frees_its_place(waiting: Many, run: str) -> None:
    status = waiting.end(run)
    failure = status.failure
    assert failure is not None
    assert (status.phase, failure.kind, int(status.exit_code)) == (Phase.FAILED, FailureKind.UNSCHEDULABLE, 3)
    assert re.match(CANNOT + CASES[run][2], failure.message)
    assert failure.message.endswith("; gave up after 120 s in which the problem was not fixed")
    waiting.runs.cluster.wait("its removal", lambda: run not in _jobsets(waiting.runs))
    assert failure.advice == "Make the change that the message names, or use another queue, and run the job again."


def test_a_run_in_a_stopped_queue_outlasts_the_limit_and_starts_when_the_queue_is_resumed(waiting: Many) -> None:
    for run in ("large", "device"):  # These runs have waited until the limit of two minutes. All runs started together.
        waiting.end(run)
    runs = waiting.runs
    assert {"stopped", "flavorless"} <= _jobsets(runs)
    for run in ("stopped", "flavorless"):
        status = waiting.listener(run).statuses[-1]
        assert (status.phase, status.reason) == (Phase.PENDING, "Queued")
    resume = '{"spec": {"stopPolicy": "None"}}'
    runs.cluster.kubectl("patch", "localqueue", "stopped", "-n", runs.namespace, "--type=merge", "-p", resume)
    assert waiting.end("stopped").phase is Phase.SUCCEEDED


def _jobsets(runs: Runs) -> set[str]:
    return {each["metadata"]["name"] for each in runs.get("jobsets")["items"]}


PRIORITY: dict[str, dict[str, Any]] = {
    "WorkloadPriorityClass": {"labels": {"kueue.x-k8s.io/priority-class": "nope"}},
    "PriorityClass": {"scheduling": {"priority_class": "nope"}},
}


@pytest.mark.parametrize("kind", PRIORITY)
def test_a_run_whose_priority_class_is_missing_names_it_and_fails(runs: Runs, kind: str) -> None:
    """Without the permission to read the classes, the trouble names the class as one that may be missing."""
    cluster, fields = runs.cluster, PRIORITY[kind]
    with queue(cluster, runs.namespace, 1) as name:
        scheduling = {"queue_name": name, **fields.get("scheduling", {})}
        handle, listener = runs.start(CODE, **{**SMALL, **fields, "scheduling": scheduling})
        said = f"has no place in queue {name}: check that {kind} nope exists, and that Kueue manages JobSets"
        listener.wait_until(lambda: said in _trouble(listener), "the class that may be missing")
        with reading_classes(cluster, runs.namespace, ACCOUNT):
            said = f"has no place in queue {name}: {kind} 'nope' does not exist; "
            listener.wait_until(lambda: said in _trouble(listener), "the missing class")
            assert said in " ".join(runs.cli("status", "run").stdout.split())
            status = handle.wait()
        failure = status.failure
        assert status.phase is Phase.FAILED and failure is not None and said in failure.message
        assert failure.message.endswith("; gave up after 120 s in which the problem was not fixed")


@pytest.mark.parametrize(("flags", "restarts"), [((), False), (("--force-conflicts",), True)])
def test_a_second_apply_of_a_rendered_run_restarts_it_only_by_force(
    runs: Runs, flags: tuple[str, ...], restarts: bool
) -> None:
    """docs/guides/gitops.md: the manifest suspends the run, and Kueue has resumed it."""
    cluster, words = runs.cluster, ("apply", "--server-side", "-f", "-")
    with queue(cluster, runs.namespace, 1) as name:
        job = runs.job("time.sleep(1000)", **SMALL, scheduling={"queue_name": name}, num_nodes=1)
        manifests = to_yaml(stepset.render(job, namespace=runs.namespace, run_name="run"))
        cluster.kubectl(*words, text=manifests)
        cluster.wait("the pod", lambda: bool(_uids(runs)))
        before = _uids(runs)
        if restarts:
            cluster.kubectl(*words, *flags, text=manifests)
            cluster.wait("another pod", lambda: bool(_uids(runs) - before))
        else:
            with pytest.raises(TestbedError, match=r'conflict with "kueue".*: \.spec\.suspend'):
                cluster.kubectl(*words, text=manifests)
            assert _uids(runs) == before


def _uids(runs: Runs) -> set[str]:
    return {each["metadata"]["uid"] for each in runs.pods()}


def _trouble(listener: RecordingListener) -> str:
    trouble = listener.statuses[-1].trouble if listener.statuses else None
    return trouble.message if trouble is not None else ""
