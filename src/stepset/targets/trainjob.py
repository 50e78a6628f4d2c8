"""The trainjob target: a TrainJob and a TrainingRuntime of its own, for clusters that Kubeflow Trainer runs.

The runtime holds what a TrainJob cannot say (volumes, restarts, order, gang); the TrainJob what its users look for.
What the controller adds by itself is left to it.

Source: kubeflow/trainer v2.3.0 pkg/apis/trainer/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.targets import gang
from stepset.targets.companions import companions
from stepset.targets.identity import TRAINER_STEP, labels, metadata
from stepset.targets.injection import Injection, injection, trainer_group
from stepset.targets.jobset import jobset_spec, pod_templates, topology_annotations
from stepset.targets.names import COMPLETION_INDEX, RESTART_ATTEMPT, PodNames
from stepset.targets.pod import CONTAINER, PodStyle
from stepset.targets.request import RenderRequest

_VERSION = "trainer.kubeflow.org/v1alpha1"
_OF_THE_TRAINJOB = ("image", "command", "args", "env")


def render(request: RenderRequest) -> list[dict[str, Any]]:
    """The manifests, in the order an apply needs."""
    added = injection(request)
    names = PodNames(request.plan, request.run, request.subdomain)
    style = PodStyle(
        names,
        COMPLETION_INDEX,
        RESTART_ATTEMPT,
        trainer_env=added.env,
        trainer_volumes=added.volumes,
        trainer_port=added.port,
    )
    templates = pod_templates(request, style)
    objects = [*companions(request, names, added.volumes), *gang.pod_groups(request, templates)]
    trainer = trainer_group(request).name
    container = next(c for c in templates[trainer]["spec"]["containers"] if c["name"] == CONTAINER)
    templates[trainer] = _without_trainer(templates[trainer])
    return [*objects, _runtime(request, templates, added), _trainjob(request, container, added)]


def _without_trainer(template: Mapping[str, Any]) -> dict[str, Any]:
    """The template less what the TrainJob says."""
    containers = [
        {k: v for k, v in container.items() if k not in _OF_THE_TRAINJOB}
        if container["name"] == CONTAINER
        else container
        for container in template["spec"]["containers"]
    ]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _runtime(request: RenderRequest, templates: Mapping[str, Mapping[str, Any]], added: Injection) -> dict[str, Any]:
    # The TrainJob is what a queue suspends; its controller hands that on.
    spec = {key: value for key, value in jobset_spec(request, templates).items() if key != "suspend"}
    spec["replicatedJobs"] = [_replicated_job(request, row, added) for row in spec["replicatedJobs"]]
    annotations = topology_annotations(request)
    return {
        "apiVersion": _VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata(request, request.run),
        "spec": {
            **({"mlPolicy": dict(added.policy)} if added.policy else {}),
            "template": {
                "metadata": {"labels": labels(request), **({"annotations": annotations} if annotations else {})},
                "spec": spec,
            },
        },
    }


def _replicated_job(request: RenderRequest, row: Mapping[str, Any], added: Injection) -> dict[str, Any]:
    job = dict(row["template"]["spec"])
    if row["name"] in added.counts:
        del job["completions"], job["parallelism"]
    trainer = row["name"] == trainer_group(request).name
    step = {"metadata": {"labels": {TRAINER_STEP: "trainer"}}} if trainer else {}
    return {**row, "template": {**step, "spec": job}}


def _trainjob(request: RenderRequest, container: Mapping[str, Any], added: Injection) -> dict[str, Any]:
    # Without a policy numNodes is the number of the training container's pods, and nothing else.
    nodes = request.job.num_nodes if added.policy else trainer_group(request).count
    number = added.num_proc_per_node
    return {
        "apiVersion": _VERSION,
        "kind": "TrainJob",
        "metadata": metadata(request, request.run, more_labels=gang.queue_labels(request.job)),
        "spec": {
            **gang.suspended(request.job),
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": request.run},
            "trainer": {
                "numNodes": nodes,
                **({"numProcPerNode": number} if number is not None else {}),
                **{key: container[key] for key in _OF_THE_TRAINJOB if key in container},
            },
        },
    }
