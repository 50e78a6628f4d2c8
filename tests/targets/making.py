"""Short ways to a rendered job, for the tests of the targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepset.plan.model import LaunchPlan
from stepset.rendering import make_request
from stepset.sources import Sources
from stepset.spec import parse_job
from stepset.targets.render import TARGETS
from stepset.targets.request import RenderRequest

Manifest = dict[str, Any]

IMAGE = "registry.example/train:1"
SCRIPT = b"print('training')\n"


def request(
    run: str | None = None, namespace: str | None = None, owner: str | None = None, **job: Any
) -> RenderRequest:
    """A request for a job that has an image and a script, unless it says otherwise."""
    runs = {"script": "train.py"} if not {"script", "module", "command", "function"} & job.keys() else {}
    parsed = parse_job({"name": "digits", "image": IMAGE, **runs, **job})
    script = SCRIPT if parsed.script is not None and parsed.code is None else None
    archive = b"\x1f\x8b packed code" if parsed.code is not None else None
    sources = Sources(Path("/nowhere"), Path("/nowhere"), script=script, archive=archive)
    return make_request(parsed, sources, run=run, namespace=namespace, owner=owner)


def plan(**job: Any) -> LaunchPlan:
    return request(**job).plan


def rendered(target: str = "jobset", **job: Any) -> list[Manifest]:
    """The manifests of such a job; preflight is not asked."""
    return TARGETS[target](request(**job))


def of_kind(objects: list[Manifest], kind: str) -> Manifest:
    """The only object of that kind."""
    found = [each for each in objects if each["kind"] == kind]
    assert len(found) == 1, [each["kind"] for each in objects]
    return found[0]


def workload(objects: list[Manifest]) -> Manifest:
    """What runs; it comes last."""
    return objects[-1]


def replicated_job(objects: list[Manifest], name: str = "node") -> Manifest:
    """A replicated job of the JobSet."""
    return next(each for each in of_kind(objects, "JobSet")["spec"]["replicatedJobs"] if each["name"] == name)


def pod(objects: list[Manifest], group: str = "node") -> Manifest:
    """The pod template of a group, whatever holds it."""
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
    """A container of a group's pods."""
    found: Manifest = next(each for each in pod(objects, group)["spec"]["containers"] if each["name"] == name)
    return found


def env(objects: list[Manifest], group: str = "node") -> dict[str, Any]:
    """Variables of a group's training container: name -> value or field path."""
    return {row["name"]: _shown(row) for row in container(objects, group).get("env", [])}


def _shown(row: Manifest) -> Any:
    source = row.get("valueFrom", {})
    return source["fieldRef"]["fieldPath"] if "fieldRef" in source else row.get("value", source)


def agent_config(objects: list[Manifest], group: str = "node") -> Manifest:
    """What a group's agent is told."""
    for each in objects:
        if each["kind"] == "ConfigMap" and f"{group}.json" in each.get("data", {}):
            config: Manifest = json.loads(each["data"][f"{group}.json"])
            return config
    raise AssertionError(f"no agent config for {group}")
