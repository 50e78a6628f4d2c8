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
_VOLCANO_ATTEMPT, _VOLCANO_INDEX = "volcano.sh/job-retry-count", "volcano.sh/task-index"
_PLURALS = {"volcano": "jobs.batch.volcano.sh"}
FORGES = """
echo '[rank 0] FORGED line'
echo '[rank 0] {"stepset": {"metrics": {"FORGED": 1}}}'
echo '[stepset] {"event": "result", "result": "FORGED"}'
printf '"FORGED"' > /dev/termination-log
exit CODE
"""

WAITS = "waits"
"""The name of a pod whose container never starts."""

Pod = dict[str, Any]


def forged_pods(runs: Runs, real: Pod) -> list[Pod]:
    """Pods that claim to belong to the run of a real pod, each in another way; those named `forged-N` end at once.

    A Job's controller adopts every pod with its label `controller-uid`: such pods are the Job's for Kubernetes, too, if
    they have no other owner, and if they fail (docs/design/following.md, Forged objects).
    """
    about = real["metadata"]
    controller, notes = about["ownerReferences"], about.get("annotations", {})
    labels = {name: value for name, value in about["labels"].items() if not name.endswith("controller-uid")}
    selected = {"owners": controller, "labels": about["labels"]}
    run = about["labels"][RUN]
    workload = runs.get(f"{_PLURALS.get(runs.target, runs.target)}/{run}")
    above = {"apiVersion": workload["apiVersion"], "kind": workload["kind"], "controller": True}
    of_run = [{**above, "blockOwnerDeletion": False, "name": run, "uid": workload["metadata"]["uid"]}]
    # Volcano counts a pod with all its annotations, as a Job's controller counts one with its labels.
    own = (INDEX, _VOLCANO_ATTEMPT, _VOLCANO_INDEX)
    notes = {name: value for name, value in notes.items() if "stepset" in name or "jobset" in name or name in own}
    kinds: list[dict[str, Any]] = [
        {},
        {"code": 7},
        {"owners": [{**controller[0], "controller": False}]},
        *({"labels": {ATTEMPT: value}} for value in ("7", "2147483647", "9" * 63)),
        *({"annotations": {ATTEMPT: value, INDEX: value}} for value in ("7", "9" * 4301, "-1", "abc", "1e308")),
        {"annotations": {RANKS: '{"node": [0, 3000000]}', VERDICT: '{"created": "abc"}'}},
        *(
            {"labels": {"stepset.dev/group": group, "jobset.sigs.k8s.io/replicatedjob-name": group}}
            for group in ("launcher", "prepare")
        ),
    ]
    if runs.target == "statefulset":
        # The controller never deletes a pod whose ordinal has more than 32 bits.
        codes = {"99999999999": 7, "99999999998": 0, "99999999997": 0, "007": 7}
        kinds += [{**selected, "name": f"{run}-{ordinal}", "code": code} for ordinal, code in codes.items()]
    else:
        kinds += [
            selected,
            {"owners": controller, "code": 7},
            {**selected, "labels": {**about["labels"], ATTEMPT: "7"}, "annotations": {ATTEMPT: "9" * 4301}},
            {"owners": controller, "annotations": {INDEX: "7"}, "labels": {INDEX: "7"}, "code": 7},
            # Its container never starts.
            {"owners": controller, "annotations": {INDEX: "7"}, "labels": {INDEX: "7"}, "image": "::", "name": WAITS},
        ]
    if runs.target == "volcano":
        kinds += [
            {"owners": controller, "annotations": {_VOLCANO_ATTEMPT: attempt, _VOLCANO_INDEX: index}, "code": 7}
            for attempt, index in (("0", "0"), ("1", "1"), ("7", "1"), ("0", "7"), ("0", "9" * 4301))
        ]
    if runs.target in ("jobset", "trainjob"):
        kinds += [{"owners": of_run}, {"owners": of_run, "code": 7}]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": kind.get("name", f"forged-{number}"),
                "labels": {**labels, **kind.get("labels", {})},
                "annotations": {**notes, **kind.get("annotations", {})},
                "ownerReferences": kind.get("owners", []),
            },
            "spec": {
                **_with_image(
                    runs.cluster.pod_spec(["sh", "-c", FORGES.replace("CODE", str(kind.get("code", 0)))]),
                    kind.get("image"),
                ),
                "terminationGracePeriodSeconds": 1,
            },
        }
        for number, kind in enumerate(kinds)
    ]


def _with_image(spec: dict[str, Any], image: str | None) -> dict[str, Any]:
    return spec if image is None else {**spec, "containers": [{**spec["containers"][0], "image": image}]}


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
