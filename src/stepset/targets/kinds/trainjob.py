"""The target `trainjob`, for clusters with Kubeflow Trainer. The target renders a TrainJob and a TrainingRuntime.

The TrainJob contains the fields that users of Kubeflow Trainer expect in a TrainJob. The TrainingRuntime contains
settings for which a TrainJob has no fields, such as volumes, restarts and gang scheduling. The manifests omit all
fields that Trainer's controller adds.

Source: kubeflow/trainer v2.3.0 pkg/apis/trainer/v1alpha1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.targets import gang
from stepset.targets.companions import companions
from stepset.targets.kinds import jobset
from stepset.targets.kinds.injection import Injection, injection, trainer_group
from stepset.targets.kinds.jobset import job_annotations, jobset_spec, pod_templates
from stepset.targets.kinds.limits import INDEXED_JOB_ENV, INDEXED_PODS
from stepset.targets.metadata import TRAINER_STEP, TTL, labels, metadata, workload_metadata
from stepset.targets.names import COMPLETION_INDEX, RESTART_ATTEMPT, PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.template import CONTAINER, PodStyle, with_container
from stepset.targets.request import RenderRequest
from stepset.targets.target_spec import TargetSpec

_VERSION = "trainer.kubeflow.org/v1alpha1"
_MAX_ITEMS = 128
"""The maximum length of a list in a TrainJob (v2.3.0 trainjob_types.go, Trainer).

A list with more entries is placed in the TrainingRuntime.
"""
_TRAINER_FIELDS = ("image", "command", "args")
# These fields of a JobSet must not be in the TrainingRuntime.
# - `suspend`: Kueue suspends the TrainJob, and Trainer's controller then suspends the JobSet.
# - `ttlSecondsAfterFinished`: When a failed JobSet is deleted because of its TTL, Trainer's controller creates a new
#   JobSet, and the job runs again. The reason is that the controller removes the TrainJob's condition `Failed` (v2.3.0
#   pkg/controller/trainjob_controller.go, removeFailedCondition, kubeflow/trainer#3779, tested).
_NOT_IN_RUNTIME = ("suspend", "ttlSecondsAfterFinished")
# Matches characters that the controller's YAML parser changes or rejects. The controller writes the TrainingRuntime and
# the JobSet as YAML. The parser replaces U+0085 with a space. The parser rejects the other characters of this pattern,
# and only the log of the controller contains the error (kubeflow/trainer v2.3.0 pkg/runtime/core/snapshot.go,
# go.yaml.in/yaml v2 readerc.go, tested). Control characters below U+0020 are allowed, because the controller first
# encodes the objects as JSON, in which these characters are escaped.
_UNREADABLE = re.compile("[\x7f-\x9f\ufffe\uffff]")
_NOT_IN_JOBSET = frozenset({"function", "code"})


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
    # If the controller adds the TrainJob's variables to all containers, the TrainJob must not contain `env`. Otherwise,
    # the nodes would get the launcher's variables.
    wanted = _TRAINER_FIELDS if added.spreads_env else (*_TRAINER_FIELDS, "env")
    fields = [key for key in wanted if key == "image" or len(container.get(key, ())) <= _MAX_ITEMS]
    templates[trainer] = with_container(
        templates[trainer], lambda row: {key: value for key, value in row.items() if key not in fields}
    )
    trainjob = _trainjob(request, {key: container[key] for key in fields if key in container}, added)
    return [*objects, _runtime(request, templates, added), trainjob]


def problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each value that the controllers of JobSet or Kubeflow Trainer would refuse."""
    yield from jobset.problems(job, plan)
    yield from unreadable_texts(job)


def _with_port_names(template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a pod template in which every port has a name.

    The controller treats all ports without a name as one port. If a container has two ports without a name, the API
    server rejects the JobSet, and only the log of the controller contains the error (v2.3.0 pkg/apply/apply.go,
    UpsertPort, tested).
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
                "metadata": {"labels": labels(request), "annotations": workload_metadata(request)["annotations"]},
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
    # Without a policy, the controller uses numNodes as the number of pods of the trainer's group.
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


def unreadable_texts(job: TrainingJob) -> Iterator[str]:
    """Yields one line for each string of a job that Trainer's controller cannot process."""
    for field, text in _texts(_shown(job.to_dict()), ""):
        if found := _UNREADABLE.search(text):
            yield (
                f"{field}: contains the character U+{ord(found[0]):04X}, which Kubeflow Trainer cannot read; leave it"
                " out, or use target jobset"
            )


def _shown(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a job that are copied to the JobSet. `code` is included only if it is a volume."""
    return {key: value for key, value in job.items() if key not in _NOT_IN_JOBSET or isinstance(value, Mapping)}


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Yields every string in the value of a field, together with the path of the string.

    The path contains the names of list entries. If an entry has no name, the path contains the index of the entry.
    """
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(below, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            name = below.get("name") if isinstance(below, Mapping) else None
            yield from _texts(below, f"{field}[{index}]" if name is None else f"{field}.{name}")


SPEC = TargetSpec(
    render=render,
    problems=problems,
    name_budget=jobset.name_budget,
    max_pods=INDEXED_PODS,
    reserved_env=INDEXED_JOB_ENV,
    own_fields=jobset.SPEC.own_fields,
    manifest_fields={
        r"spec\.template\.spec\.network\.subdomain\b": "network.subdomain",
        r"spec\.trainer\.numProcPerNode$": "procs_per_node",
        r"spec\.trainer\.(image|command|args)\b": r"\1",
    },
)
