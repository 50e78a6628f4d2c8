"""Reports the reasons for which a cluster would reject a job, before the job is sent to the cluster.

Each check yields lines of the form `field: what is wrong; what to do`. `field` is the path of a field in the job file.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from stepset.errors import BadInputError
from stepset.plan.model import NODE, LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.spec.names import DNS_1035
from stepset.spec.template import node_container, node_env_names
from stepset.targets import gang
from stepset.targets.kinds import TARGETS
from stepset.targets.pods.placement import node_selector_strategy
from stepset.targets.pods.ssh import uses_hydra
from stepset.targets.request import RenderRequest, check_target
from stepset.targets.validation.pod_checks import pod_problems
from stepset.targets.validation.syntax import label_problems, name_problem, namespace_problem
from stepset.targets.workload_kinds import WORKLOAD_KINDS

# The maximum number of entries in the field `dependsOn` of a JobSet's replicated job (kubernetes-sigs/jobset v0.12.0
# api/jobset/v1alpha2/jobset_types.go, ReplicatedJob.DependsOn).
_DEPENDENCIES = 5
_ANNOTATIONS_LIMIT = 256 * 1024
CONFIG_MAP_LIMIT = 1024 * 1024
"""The maximum total size of the values of a ConfigMap, in bytes.

Source: kubernetes v1.36 pkg/apis/core/validation (MaxSecretSize).
"""
_OWNERS = {field: target for target, spec in reversed(list(TARGETS.items())) for field in spec.own_fields}
"""The fields that only some targets have. For each field, the first of these targets."""


def check(job: TrainingJob, plan: LaunchPlan, target: str = "jobset", run: str | None = None) -> None:
    """Raises BadInputError if a cluster would reject a job. The error has one line for each problem.

    Args:
        run: the name of the run. The default is the name of the job.
    """
    check_target(target)
    _refuse(problems(job, plan, target, run or job.name))


def check_request(request: RenderRequest, target: str) -> None:
    """Raises BadInputError if a cluster would reject a run.

    The function performs all checks of `check`. In addition, the function checks the sources and the namespace of the
    run.
    """
    check_target(target)
    found = [*problems(request.job, request.plan, target, request.run)]
    runs = request.plan.group(request.plan.success.group)
    if request.sources.archive is not None and request.job.script is not None and runs.agent is None:
        names = ", ".join(name for name, _ in request.sources.files[:10])
        found.append(f"script: only stepset's agent unpacks its files ({names}); leave agent out")
    if runs.agent is None:
        found += (
            f"script: a ConfigMap cannot be mounted as {file.name!r}, because the name begins with '..'; rename it"
            for file in request.shipped
            if file.name.startswith("..")
        )
    if uses_hydra(request.job) and request.namespace is None:
        found.append(
            "framework.implementation: processes of Hydra (MPICH, Intel MPI) find the launcher by a name that contains"
            " the namespace; give the namespace"
        )
    if request.installer:
        found += _requirements(request.job, request.plan)
    if request.namespace is not None and (wrong := namespace_problem(request.namespace)):
        found.append(wrong)
    _refuse(found)


def _requirements(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each reason why the pods could not install the requirements."""
    runs = plan.group(plan.success.group)
    if runs.agent is None:
        yield "requirements: only pods with stepset's agent install them; leave agent out"
    elif node_container(job.pod_template).get("command"):
        yield "requirements: the command in pod_template replaces the one that installs them; use command of the job"
    if plan.ssh is not None:
        yield (
            "requirements: pods in which mpirun starts the ranks by ssh do not install them; put the packages into the"
            " image"
        )


def check_sizes(objects: Iterable[Mapping[str, Any]]) -> None:
    """Raises BadInputError if a ConfigMap is too large for an API server."""
    _refuse(
        f"ConfigMap {each['metadata']['name']}: {size} bytes; at most {CONFIG_MAP_LIMIT} can be shipped;"
        " put large files into the image, or lower num_nodes"
        for each in objects
        if each["kind"] == "ConfigMap" and (size := content_size(each)) > CONFIG_MAP_LIMIT
    )


def content_size(config: Mapping[str, Any]) -> int:
    """Returns the total size of a ConfigMap's values in bytes. The API server limits this size."""
    text = sum(len(value) if value.isascii() else len(value.encode()) for value in config.get("data", {}).values())
    return text + sum(len(b64decode(value)) for value in config.get("binaryData", {}).values())


def problems(job: TrainingJob, plan: LaunchPlan, target: str, run: str) -> Iterator[str]:
    """Yields one line for each problem."""
    yield from _name(job, plan, target, run)
    yield from _counts(plan, target)
    yield from _images(plan)
    yield from _metadata(job)
    yield from _dependencies(plan)
    yield from _gang(job, plan, target)
    yield from TARGETS[target].problems(job, plan)
    yield from _own_fields(job, target)
    yield from _variables(job, target)
    yield from pod_problems(job, plan)
    if job.requirements:
        yield from _requirements(job, plan)


def _own_fields(job: TrainingJob, target: str) -> Iterator[str]:
    """Yields one line for each field that only other targets have."""
    for field, owner in _OWNERS.items():
        if field not in TARGETS[target].own_fields and attrgetter(field)(job) is not None:
            kind = WORKLOAD_KINDS[owner].api.kind
            yield f"{field}: only a {kind} has it; leave it out, or use another target than {target}"


def _variables(job: TrainingJob, target: str) -> Iterator[str]:
    """Yields one line for each variable of a job that the target also sets."""
    fields = {f"env.{name}": name for name in job.env}
    fields |= {f"roles.{role.name}.env.{name}": name for role in job.roles for name in role.env}
    fields |= {f"pod_template.containers.{NODE}.env.{name}": name for name in node_env_names(job.pod_template)}
    for field, name in fields.items():
        if TARGETS[target].reserved_env.fullmatch(name):
            yield f"{field}: target {target} sets this variable itself; use another name"


def _refuse(found: Iterable[str]) -> None:
    lines = list(dict.fromkeys(found))
    if lines:
        raise BadInputError(*lines)


def _name(job: TrainingJob, plan: LaunchPlan, target: str, run: str) -> Iterator[str]:
    what = "name" if run == job.name else "the run's name"
    if not DNS_1035.fullmatch(run):
        yield f"{what}: {run!r} is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a letter"
    budget = TARGETS[target].name_budget(plan)
    if len(run) > budget:
        yield (
            f"{what}: {run!r} has {len(run)} characters; target {target} allows {budget} with these pod groups;"
            " shorten it"
        )


def _counts(plan: LaunchPlan, target: str) -> Iterator[str]:
    most = TARGETS[target].max_pods
    for group in plan.groups:
        if most is not None and group.count > most:
            field = "num_nodes" if group.name == NODE else f"roles.{group.name}.replicas"
            yield f"{field}: {group.count} pods; a Job allows {most}; lower it"


def _images(plan: LaunchPlan) -> Iterator[str]:
    for group in plan.groups:
        field = f"roles.{group.name}.image" if group.role else "image"
        if group.image is None:
            yield f"{field}: is missing; pods need one"
        elif group.image != group.image.strip():
            # kubernetes v1.36 pkg/apis/core/validation/validation.go (validateContainersOnlyForPod)
            yield f"{field}: {group.image!r} begins or ends with white space, which Kubernetes refuses; remove it"


def _metadata(job: TrainingJob) -> Iterator[str]:
    yield from label_problems("labels", job.labels)
    yield from label_problems("annotations", job.annotations, values=False)
    size = sum(len(k.encode()) + len(v.encode()) for k, v in job.annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        yield f"annotations: {size} bytes; Kubernetes allows {_ANNOTATIONS_LIMIT}; put long texts elsewhere"


def _dependencies(plan: LaunchPlan) -> Iterator[str]:
    for group in plan.groups:
        if len(group.start_after) > _DEPENDENCIES:
            field, who = (f"roles.{group.name}.after", "it starts") if group.role else ("roles", "the nodes start")
            yield (
                f"{field}: {len(group.start_after)} roles must complete before {who}; JobSet allows {_DEPENDENCIES};"
                " combine some of them, or let some run one after another (after)"
            )


def _gang(job: TrainingJob, plan: LaunchPlan, target: str) -> Iterator[str]:
    scheduling = job.scheduling
    kind, own_queue = gang.gang_of(job), WORKLOAD_KINDS[target].own_queue
    if kind == "kueue" and scheduling.queue_name is None:
        yield "scheduling.gang: kueue needs a queue; give scheduling.queue_name"
    if scheduling.queue_name is not None and kind in ("none", "coscheduling") and not own_queue:
        yield f"scheduling.queue_name: has no effect with gang: {kind}; leave one of them out"
    if scheduling.queue_name is not None and (wrong := name_problem("scheduling.queue_name", scheduling.queue_name)):
        yield wrong
    elif scheduling.queue_name is not None and kind == "kueue":
        yield from label_problems("scheduling", {"queue_name": scheduling.queue_name})
    exclusive, nodes = scheduling.topology.exclusive, plan.group(plan.success.group)
    # With the node-selector strategy, JobSet creates all pods at once (jobset v0.12.0 pkg/webhooks/pod_webhook.go).
    in_turn = exclusive is not None and not node_selector_strategy(job)
    if in_turn and kind in ("coscheduling", "volcano") and max(job.num_nodes, nodes.count) > 1:
        yield (
            f"scheduling.topology.exclusive: the run would never start with gang: {kind}: JobSet creates the other pods"
            " of the nodes after the first one is scheduled, and the gang scheduler schedules none until all exist; use"
            " gang: none or kueue"
        )
    if scheduling.min_member is None:
        return
    if kind in ("none", "kueue") and not own_queue:
        yield f"scheduling.min_member: has no effect with gang: {kind}; use gang: coscheduling or volcano"
    stage = next((stage for stage in gang.stages(plan) if any(g.in_world for g in stage)), ())
    most = sum(group.count for group in stage)
    if scheduling.min_member > most:
        yield f"scheduling.min_member: {scheduling.min_member} is more than the gang's pods ({most}); lower it"
