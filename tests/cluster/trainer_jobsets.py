"""Compares a JobSet of Trainer's controller with that of the jobset target; DIFFERENCES lists the known differences."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.plan.expand import expand
from tests.cluster.api import Api, Manifest

JOBSET = "jobset.x-k8s.io/v1alpha2"
ABSENT = None
"""The value of a field that an object does not have."""


@dataclass(frozen=True)
class Difference:
    """A field that differs without effect, or on purpose; docs/design/README.md explains each.

    Args:
        name: the difference, as in the table of docs/design/README.md.
        path: an expression for the whole path of the field.
        is_known: whether the values (the jobset target's, Trainer's) differ as known.
    """

    name: str
    path: str
    is_known: Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Found:
    """A field that differs.

    Args:
        path: its path; entries of lists have their names.
        ours: its value in the JobSet of the jobset target.
        theirs: its value in the JobSet that Trainer's controller created.
    """

    path: str
    ours: Any
    theirs: Any

    @property
    def known(self) -> str | None:
        """The name of the known difference; None for any other."""
        matching = (each for each in DIFFERENCES if re.fullmatch(each.path, self.path))
        return next((each.name for each in matching if each.is_known(self.ours, self.theirs)), None)


def _only_ours(ours: Any, theirs: Any) -> bool:
    return ours is not ABSENT and theirs is ABSENT


def _only_theirs(*values: str) -> Callable[[Any, Any], bool]:
    return lambda ours, theirs: ours is ABSENT and (theirs in values or not values)


_CONTAINER = r"replicatedJobs/[^/]+/template/spec/template/spec/(initContainers|containers)/[^/]+"
DIFFERENCES = (
    Difference("names of ports", rf"{_CONTAINER}/ports/[^/]+/name", _only_theirs()),
    Difference("`maxRestarts: 0`", "failurePolicy/maxRestarts", lambda ours, theirs: (ours, theirs) == (0, ABSENT)),
    Difference(
        "label of the ancestor step",
        "replicatedJobs/(node|launcher)/template/metadata/labels/trainer.kubeflow.org~1trainjob-ancestor-step",
        lambda ours, theirs: {ours, theirs} == {"trainer", ABSENT},
    ),
    Difference("`ttlSecondsAfterFinished`", "ttlSecondsAfterFinished", _only_ours),
    Difference("label of the queue", "metadata/labels/kueue.x-k8s.io~1queue-name", _only_ours),
    Difference(
        "`containerName` of a `resourceFieldRef`",
        rf"{_CONTAINER}/env/[^/]+/resourceFieldRef/containerName",
        _only_theirs(""),
    ),
)


def differences(ours: Manifest, theirs: Manifest) -> list[Found]:
    """Returns the fields that differ between two JobSets with the server's defaults.

    The order of ports, mounts and volumes has no meaning. Variables are compared as the process gets them, with
    references replaced.
    """
    return list(_differing(_comparable(ours), _comparable(theirs), ""))


def _differing(ours: Any, theirs: Any, path: str) -> Iterator[Found]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*ours, *theirs}):
            below = key.replace("/", "~1")
            yield from _differing(ours.get(key, ABSENT), theirs.get(key, ABSENT), f"{path}/{below}" if path else below)
    elif ours != theirs:
        yield Found(path, ours, theirs)


def suspended(workload: Manifest) -> Manifest:
    """Returns the workload, suspended: its controller creates no pods."""
    return {**workload, "spec": {**workload["spec"], "suspend": True}}


def start(api: Api, trainjob: Manifest) -> None:
    """Creates a TrainJob, suspended.

    Retries while the runtime is not found: the webhooks of Trainer and Kueue get it from a watch, with a delay.
    """
    for _ in range(200):
        message = api.refused(suspended(trainjob), dry_run=False)
        if message is None or "not found" not in message:
            break
        time.sleep(0.05)
    assert message is None


def _comparable(jobset: Manifest) -> Manifest:
    spec = jobset["spec"]
    metadata = {field: jobset["metadata"].get(field, {}) for field in ("labels", "annotations")}
    jobs = {row["name"]: {**_job(row), "position": place} for place, row in enumerate(spec["replicatedJobs"])}
    return {**spec, "metadata": metadata, "replicatedJobs": jobs}


def _job(row: Manifest) -> Manifest:
    template = row["template"]
    metadata = {field: template["metadata"].get(field, {}) for field in ("labels", "annotations")}
    pod = template["spec"]["template"]
    spec = {**pod["spec"], "volumes": {each["name"]: each for each in pod["spec"].get("volumes", ())}}
    for field in ("initContainers", "containers"):
        containers = enumerate(spec.get(field, ()))
        spec[field] = {each["name"]: {**_container(each), "position": place} for place, each in containers}
    job = {**template["spec"], "template": {**pod, "spec": spec}}
    return {**row, "template": {**template, "metadata": metadata, "spec": job}}


def _container(container: Manifest) -> Manifest:
    return {
        **container,
        "ports": {f"{port['containerPort']}-{port['protocol']}": port for port in container.get("ports", ())},
        "volumeMounts": {mount["mountPath"]: mount for mount in container.get("volumeMounts", ())},
        "env": _environment(container.get("env", ())),
    }


def _environment(rows: list[Manifest]) -> dict[str, Any]:
    known: dict[str, str] = {}
    found: dict[str, Any] = {}
    for row in rows:
        name = row["name"]
        # A text that no value contains stands for a value that only the cluster knows.
        known[name] = f"\x00{name}" if "valueFrom" in row else expand(row.get("value", ""), known)
        found[name] = row.get("valueFrom", known[name])
    return found
