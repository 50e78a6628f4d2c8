"""Reports the reasons for which a cluster would reject a job, before the job is sent to the cluster.

Each check yields lines of the form `field: what is wrong; what to do`. `field` is the path of a field in the job file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepset.errors import BadInputError
from stepset.plan.model import NODE, LaunchPlan
from stepset.safe_names import LABEL_LIMIT
from stepset.spec.job import TrainingJob
from stepset.spec.names import DNS_1035, jobset_name_budget
from stepset.spec.template import node_container
from stepset.targets import gang
from stepset.targets.config_maps import CONFIG_MAP_LIMIT, content_size
from stepset.targets.pods.placement import node_selector_strategy
from stepset.targets.pods.template import needs_namespace
from stepset.targets.request import RenderRequest, check_target
from stepset.targets.validation.capabilities import missing_capabilities
from stepset.targets.validation.pods import pod_problems
from stepset.targets.validation.reserved_names import name_conflicts
from stepset.targets.validation.syntax import label_problems, name_problem, namespace_problem
from stepset.targets.validation.unreadable_texts import unreadable_texts

# The maximum number of entries in the field `dependsOn` of a JobSet's replicated job (kubernetes-sigs/jobset v0.12.0
# api/jobset/v1alpha2/jobset_types.go, ReplicatedJob.DependsOn).
_DEPENDENCIES = 5
# The maximum length of the suffix in the label controller-revision-hash. The value of this label consists of the name
# of the StatefulSet and the suffix.
_REVISION_SUFFIX = 11
# The maximum number of pods of an Indexed Job (kubernetes v1.36 pkg/apis/batch/validation/validation.go).
_INDEXED_PODS = 100_000
_INDEXED_TARGETS = ("jobset", "trainjob", "job")
_ANNOTATIONS_LIMIT = 256 * 1024


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
    if needs_namespace(request.job) and request.namespace is None:
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
    found = []
    for each in objects:
        if each["kind"] == "ConfigMap" and (size := content_size(each)) > CONFIG_MAP_LIMIT:
            found.append(
                f"ConfigMap {each['metadata']['name']}: {size} bytes; at most {CONFIG_MAP_LIMIT} can be shipped;"
                " put large files into the image, or lower num_nodes"
            )
    _refuse(found)


def problems(job: TrainingJob, plan: LaunchPlan, target: str, run: str) -> Iterator[str]:
    """Yields one line for each problem."""
    yield from _name(job, plan, target, run)
    yield from _counts(plan, target)
    yield from _images(plan)
    yield from _metadata(job)
    yield from _dependencies(plan)
    yield from _gang(job, plan, target)
    yield from missing_capabilities(job, plan, target)
    yield from name_conflicts(job, target)
    if target == "trainjob":
        yield from unreadable_texts(job)
    yield from pod_problems(job, plan)
    if job.requirements:
        yield from _requirements(job, plan)


def _refuse(found: Iterable[str]) -> None:
    lines = list(dict.fromkeys(found))
    if lines:
        raise BadInputError(*lines)


def name_budget(plan: LaunchPlan, target: str) -> int:
    """Returns the maximum length of a run's name.

    The length is limited for the following reasons:

    - The name is a part of the pods' host names. A host name must not exceed 63 characters.
    - For a JobSet, JobSet's webhook rejects a name that is too long.
    - For a StatefulSet, the name is a part of the value of a label.
    """
    if target in ("jobset", "trainjob"):
        return jobset_name_budget((group.name, group.count) for group in plan.groups)
    if target == "volcano":
        return min(LABEL_LIMIT - len(f"-{group.name}-{group.count - 1}") for group in plan.groups)
    count = max(group.count for group in plan.groups)
    if target == "statefulset":
        return min(LABEL_LIMIT - _REVISION_SUFFIX, LABEL_LIMIT - len(f"-{count - 1}"))
    return LABEL_LIMIT - len(f"-{count - 1}")


def _name(job: TrainingJob, plan: LaunchPlan, target: str, run: str) -> Iterator[str]:
    what = "name" if run == job.name else "the run's name"
    if not DNS_1035.fullmatch(run):
        yield f"{what}: {run!r} is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a letter"
    budget = name_budget(plan, target)
    if len(run) > budget:
        yield (
            f"{what}: {run!r} has {len(run)} characters; target {target} allows {budget} with these pod groups;"
            " shorten it"
        )


def _counts(plan: LaunchPlan, target: str) -> Iterator[str]:
    for group in plan.groups:
        if target in _INDEXED_TARGETS and group.count > _INDEXED_PODS:
            field = "num_nodes" if group.name == NODE else f"roles.{group.name}.replicas"
            yield f"{field}: {group.count} pods; a Job allows {_INDEXED_PODS}; lower it"


def _images(plan: LaunchPlan) -> Iterator[str]:
    for group in plan.groups:
        field = "image" if group.in_world or group.name == plan.success.group else f"roles.{group.name}.image"
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
            field = "roles" if group.in_world or group.name == plan.success.group else f"roles.{group.name}.after"
            who = "the nodes start" if field == "roles" else "it starts"
            yield (
                f"{field}: {len(group.start_after)} roles must complete before {who}; JobSet allows {_DEPENDENCIES};"
                " combine some of them, or let some run one after another (after)"
            )


def _gang(job: TrainingJob, plan: LaunchPlan, target: str) -> Iterator[str]:
    scheduling = job.scheduling
    kind = gang.gang_of(job)
    if kind == "kueue" and scheduling.queue_name is None:
        yield "scheduling.gang: kueue needs a queue; give scheduling.queue_name"
    if scheduling.queue_name is not None and kind in ("none", "coscheduling") and target != "volcano":
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
    if exclusive is not None and target in ("jobset", "trainjob") and sum(group.in_world for group in plan.groups) > 1:
        # The launcher belongs to another Job, and JobSet keeps the pods of other Jobs away from the domain (jobset
        # v0.12.0 pkg/webhooks/pod_webhook.go, setExclusiveAffinities).
        yield (
            "scheduling.topology.exclusive: with run_launcher_as_node the launcher is a node, and JobSet would place it"
            " outside the domain of the other nodes; leave run_launcher_as_node out, or set num_nodes: 1"
        )
    if scheduling.min_member is None:
        return
    if kind in ("none", "kueue") and target != "volcano":
        yield f"scheduling.min_member: has no effect with gang: {kind}; use gang: coscheduling or volcano"
    stage = next((stage for stage in gang.stages(plan) if any(g.in_world for g in stage)), ())
    most = sum(group.count for group in stage)
    if scheduling.min_member > most:
        yield f"scheduling.min_member: {scheduling.min_member} is more than the gang's pods ({most}); lower it"
