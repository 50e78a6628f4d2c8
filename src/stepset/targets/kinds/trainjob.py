"""The trainjob target: a TrainJob with a TrainingRuntime of its own, for clusters with Kubeflow Trainer.

The runtime has the fields that a TrainJob lacks (volumes, restarts, order, gang); the TrainJob has the fields that its
users expect. The manifests omit the fields that the controller adds.

Source: kubeflow/trainer v2.3.0 pkg/apis/trainer/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.targets import gang
from stepset.targets.companions import companions
from stepset.targets.kinds.injection import Injection, injection, trainer_group
from stepset.targets.kinds.jobset import job_annotations, jobset_metadata, jobset_spec, pod_templates
from stepset.targets.metadata import TRAINER_STEP, TTL, labels, metadata, workload_metadata
from stepset.targets.names import COMPLETION_INDEX, RESTART_ATTEMPT, PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.template import CONTAINER, PodStyle, with_container
from stepset.targets.request import RenderRequest

_VERSION = "trainer.kubeflow.org/v1alpha1"
_MAX_ITEMS = 128
"""Maximum length of the TrainJob's lists (v2.3.0 trainjob_types.go, Trainer); longer ones stay in the runtime."""
_TRAINER_FIELDS = ("image", "command", "args")
# `suspend`: a queue suspends the TrainJob, and then Trainer's controller suspends the JobSet.
# `ttlSecondsAfterFinished`: if a TTL deleted the JobSet, the controller would create it again, and the run would train
# again: the controller removes the condition `Failed` before it decides whether the TrainJob has ended (v2.3.0
# pkg/controller/trainjob_controller.go, removeFailedCondition; kubeflow/trainer#3779; tested).
_NOT_IN_RUNTIME = ("suspend", "ttlSecondsAfterFinished")


def render(request: RenderRequest) -> list[dict[str, Any]]:
    """Returns the manifests, in the order in which they must be applied."""
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
    templates = {name: _with_port_names(each) for name, each in pod_templates(request, style).items()}
    objects = [*companions(request, names, added.volumes), *gang.pod_groups(request, templates)]
    trainer = trainer_group(request).name
    container = next(c for c in templates[trainer]["spec"]["containers"] if c["name"] == CONTAINER)
    # The TrainJob's variables would reach every node, not only the launcher.
    wanted = _TRAINER_FIELDS if added.spreads_env else (*_TRAINER_FIELDS, "env")
    fields = [key for key in wanted if key == "image" or len(container.get(key, ())) <= _MAX_ITEMS]
    templates[trainer] = with_container(
        templates[trainer], lambda row: {key: value for key, value in row.items() if key not in fields}
    )
    trainjob = _trainjob(request, {key: container[key] for key in fields if key in container}, added)
    return [*objects, _runtime(request, templates, added), trainjob]


def _with_port_names(template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the template with a name for every port.

    The controller treats all ports without a name as the same port, and overwrites one with another. If a container
    has two of them, the API server rejects the JobSet, and only the controller's log shows it (v2.3.0
    pkg/apply/apply.go, UpsertPort; tested).
    """
    kinds = [kind for kind in ("initContainers", "containers") if kind in template["spec"]]
    named = {kind: [_with_names(container) for container in template["spec"][kind]] for kind in kinds}
    return {**template, "spec": {**template["spec"], **named}}


def _with_names(container: Mapping[str, Any]) -> dict[str, Any]:
    if "ports" not in container:
        return dict(container)
    ports = [
        {"name": f"{port.get('protocol', 'TCP').lower()}-{port['containerPort']}", **port}
        for port in container["ports"]
    ]
    return {**container, "ports": ports}


def _runtime(request: RenderRequest, templates: Mapping[str, Mapping[str, Any]], added: Injection) -> dict[str, Any]:
    spec = {key: value for key, value in jobset_spec(request, templates).items() if key not in _NOT_IN_RUNTIME}
    spec["replicatedJobs"] = [_replicated_job(request, row, added) for row in spec["replicatedJobs"]]
    return {
        "apiVersion": _VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata(request, request.run),
        "spec": {
            **without_empty(mlPolicy=dict(added.policy)),
            "template": {
                "metadata": {"labels": labels(request), "annotations": jobset_metadata(request)["annotations"]},
                "spec": spec,
            },
        },
    }


def _replicated_job(request: RenderRequest, row: Mapping[str, Any], added: Injection) -> dict[str, Any]:
    job = dict(row["template"]["spec"])
    if row["name"] in added.counts:
        del job["completions"], job["parallelism"]
    trainer = row["name"] == trainer_group(request).name
    labels = {TRAINER_STEP: "trainer"} if trainer else {}
    annotations = job_annotations(request, request.plan.group(row["name"]))
    metadata = without_empty(labels=labels, annotations=annotations)
    return {**row, "template": {**without_empty(metadata=metadata), "spec": job}}


def _trainjob(request: RenderRequest, fields: Mapping[str, Any], added: Injection) -> dict[str, Any]:
    # Without a policy, numNodes is the number of pods of the trainer's group.
    nodes = request.job.num_nodes if added.policy else trainer_group(request).count
    ttl = {} if request.job.ttl is None else {TTL: str(request.job.ttl)}
    return {
        "apiVersion": _VERSION,
        "kind": "TrainJob",
        "metadata": workload_metadata(request, more_labels=gang.queue_labels(request.job), more_annotations=ttl),
        "spec": {
            **gang.suspended(request.job),
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": request.run},
            "trainer": {"numNodes": nodes, **without_empty(numProcPerNode=added.num_proc_per_node), **fields},
        },
    }
