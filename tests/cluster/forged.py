"""Pods and workloads of another user, who copies the marks of a run and chooses hostile values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from stepset.targets.metadata import JOB, RANKS, RUN, VERDICT, WORLD_SIZE
from tests.cluster.runs import Runs
from tests.cluster.testbed.objects import Objects

ATTEMPT, INDEX = "jobset.sigs.k8s.io/restart-attempt", "batch.kubernetes.io/job-completion-index"
FORGES = """
echo '[rank 0] FORGED line'
echo '[rank 0] {"stepset": {"metrics": {"FORGED": 1}}}'
echo '[stepset] {"event": "result", "result": "FORGED"}'
printf '"FORGED"' > /dev/termination-log
exit CODE
"""

Pod = dict[str, Any]


def forged_pods(runs: Runs, real: Pod) -> list[Pod]:
    """Pods that claim to belong to the run of a real pod, each in another way; they end at once.

    A Job's controller adopts every pod with its label `controller-uid`: such pods are the Job's for Kubernetes, too, if
    they have no other owner, and if they fail (docs/design/following.md, Forged objects).
    """
    about = real["metadata"]
    job, notes = about["ownerReferences"], about.get("annotations", {})
    labels = {name: value for name, value in about["labels"].items() if not name.endswith("controller-uid")}
    selected = {"owners": job, "labels": about["labels"]}
    run = about["labels"]["jobset.sigs.k8s.io/jobset-name"]
    workload = runs.get(f"jobset/{run}")
    jobset = {"apiVersion": workload["apiVersion"], "kind": "JobSet", "controller": True, "blockOwnerDeletion": False}
    of_run = [{**jobset, "name": run, "uid": workload["metadata"]["uid"]}]
    notes = {name: value for name, value in notes.items() if "stepset" in name or "jobset" in name or name == INDEX}
    kinds: list[dict[str, Any]] = [
        {},
        {"code": 7},
        selected,
        {"owners": job, "code": 7},
        {"owners": [{**job[0], "controller": False}]},
        {"owners": of_run},
        {"owners": of_run, "code": 7},
        *({"labels": {ATTEMPT: value}} for value in ("7", "2147483647", "9" * 63)),
        *({"annotations": {ATTEMPT: value, INDEX: value}} for value in ("7", "9" * 4301, "-1", "abc", "1e308")),
        {"annotations": {RANKS: '{"node": [0, 3000000]}', VERDICT: '{"created": "abc"}'}},
        {**selected, "labels": {**about["labels"], ATTEMPT: "7"}, "annotations": {ATTEMPT: "9" * 4301}},
        *(
            {"labels": {"stepset.dev/group": group, "jobset.sigs.k8s.io/replicatedjob-name": group}}
            for group in ("launcher", "prepare")
        ),
    ]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"forged-{number}",
                "labels": {**labels, **kind.get("labels", {})},
                "annotations": {**notes, **kind.get("annotations", {})},
                "ownerReferences": kind.get("owners", []),
            },
            "spec": {
                **runs.cluster.pod_spec(["sh", "-c", FORGES.replace("CODE", str(kind.get("code", 0)))]),
                "terminationGracePeriodSeconds": 1,
            },
        }
        for number, kind in enumerate(kinds)
    ]


def unreadable_jobsets(runs: Runs) -> list[dict[str, Any]]:
    """Suspended JobSets that claim to be runs, and whose annotations cannot be read."""
    values = ("9" * 4301, "[" * 5000, '{"node": [0, 3000000]}', '{"created": 1e308, "phase": "Succeeded"}', "")
    containers = [{"name": "node", "image": runs.cluster.image, "command": ["true"]}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    job = {"name": "node", "template": {"spec": {"template": template}}}
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {
                "name": f"unreadable-{number}",
                "labels": {RUN: f"unreadable-{number}", JOB: "job"},
                "annotations": dict.fromkeys((RANKS, VERDICT, WORLD_SIZE), value),
            },
            "spec": {"suspend": True, "replicatedJobs": [job]},
        }
        for number, value in enumerate(values)
    ]


@contextmanager
def filled(runs: Runs, names: Sequence[str], count: int, size: int) -> Iterator[None]:
    """While the block runs, `count` pods exist that never run, with an annotation of `size` bytes each.

    Each has the labels of one of the runs `names`. None has an owner: the garbage collector would delete a pod whose
    owner does not exist. The pods are deleted one by one: for a request that deletes all of them, the API server needs
    many times their size in memory.
    """
    spec = {
        "schedulingGates": [{"name": "stepset.test/never"}],
        "containers": [{"name": "node", "image": runs.cluster.image}],
    }

    def create(client: Objects, number: int) -> None:
        name = names[number % len(names)]
        metadata = {
            "name": f"filling-{number}",
            "labels": {RUN: name, "jobset.sigs.k8s.io/jobset-name": name, ATTEMPT: "7"},
            "annotations": {"filling": "x" * size},
        }
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, runs.namespace)

    def delete(client: Objects, number: int) -> None:
        client.delete(f"pod/filling-{number}", runs.namespace)

    def for_each(act: Callable[[Objects, int], None]) -> None:
        # A client for each thread: its connections are not shared.
        clients = [Objects(runs.cluster.kubeconfig) for _ in range(_AT_ONCE)]

        def some(first: int) -> None:
            for number in range(first, count, _AT_ONCE):
                act(clients[first], number)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(some, range(_AT_ONCE)))

    for_each(create)
    yield
    for_each(delete)


_AT_ONCE = 2
"""Requests that `filled` sends at the same time: others must be answered, too."""
