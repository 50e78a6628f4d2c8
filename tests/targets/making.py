"""Helpers that render jobs for the tests of the targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepset.plan.model import LaunchPlan
from stepset.rendering import make_request
from stepset.sources import Sources
from stepset.spec import parse_job
from stepset.targets.kinds import TARGETS
from stepset.targets.request import RenderRequest

Manifest = dict[str, Any]

IMAGE = "registry.example/train:1"
SCRIPT = b"print('training')\n"


def request(
    run: str | None = None, namespace: str | None = None, owner: str | None = None, **job: Any
) -> RenderRequest:
    """Returns a request for a job with an image and a script by default."""
    runs = {"script": "train.py"} if not {"script", "module", "command", "function"} & job.keys() else {}
    parsed = parse_job({"name": "digits", "image": IMAGE, **runs, **job})
    script = SCRIPT if parsed.script is not None and parsed.code is None else None
    archive = b"\x1f\x8b packed code" if parsed.code is not None else None
    sources = Sources(Path("/nowhere"), Path("/nowhere"), script=script, archive=archive)
    return make_request(parsed, sources, run=run, namespace=namespace, owner=owner)


def plan(**job: Any) -> LaunchPlan:
    return request(**job).plan


def rendered(target: str = "jobset", **job: Any) -> list[Manifest]:
    """Returns the manifests of such a job, without the preflight."""
    return TARGETS[target].render(request(**job))


def of_kind(objects: list[Manifest], kind: str) -> Manifest:
    """Returns the only object of this kind."""
    found = [each for each in objects if each["kind"] == kind]
    assert len(found) == 1, [each["kind"] for each in objects]
    return found[0]


def workload(objects: list[Manifest]) -> Manifest:
    """Returns the workload, which is the last object."""
    return objects[-1]


def replicated_job(objects: list[Manifest], name: str = "node") -> Manifest:
    """A replicated job of the JobSet."""
    return next(each for each in of_kind(objects, "JobSet")["spec"]["replicatedJobs"] if each["name"] == name)


def pod(objects: list[Manifest], group: str = "node") -> Manifest:
    """Returns the pod template of a group, in any kind of workload."""
    last = workload(objects)
    spec = last["spec"]
    if last["kind"] == "JobSet":
        template = replicated_job(objects, group)["template"]["spec"]["template"]
    elif last["kind"] == "TrainJob":
        jobs = of_kind(objects, "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
        template = next(each for each in jobs if each["name"] == group)["template"]["spec"]["template"]
    elif "tasks" in spec:
        template = next(each for each in spec["tasks"] if each["name"] == group)["template"]
    else:
        template = spec["template"]
    found: Manifest = template
    return found


def container(objects: list[Manifest], group: str = "node", name: str = "node") -> Manifest:
    """A container or a sidecar of a group's pods."""
    spec = pod(objects, group)["spec"]
    rows = [*spec["containers"], *spec.get("initContainers", ())]
    found: Manifest = next(each for each in rows if each["name"] == name)
    return found


def launcher(objects: list[Manifest]) -> Manifest:
    """Returns the launcher's container of an MPI job, with what Trainer copies into it from a TrainJob."""
    found, trainer = container(objects, "launcher"), workload(objects)["spec"].get("trainer", {})
    return {**found, **{name: trainer[name] for name in ("command", "args", "env") if name in trainer}}


def env(objects: list[Manifest], group: str = "node") -> dict[str, Any]:
    """Variables of a group's training container: name -> value or field path."""
    return variables_of(container(objects, group))


def variables_of(container: Manifest) -> dict[str, Any]:
    """Variables of a container: name -> value or field path."""
    return {row["name"]: _shown(row) for row in container.get("env", [])}


def _shown(row: Manifest) -> Any:
    source = row.get("valueFrom", {})
    return source["fieldRef"]["fieldPath"] if "fieldRef" in source else row.get("value", source)


def agent_config(objects: list[Manifest], group: str = "node") -> Manifest:
    """Returns the config of a group's agent."""
    for each in objects:
        if each["kind"] == "ConfigMap" and f"{group}.json" in each.get("data", {}):
            config: Manifest = json.loads(each["data"][f"{group}.json"])
            return config
    raise AssertionError(f"no agent config for {group}")
