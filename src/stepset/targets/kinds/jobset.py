"""The default target `jobset`, which renders a JobSet, and requires the JobSet controller.

Source of the fields: kubernetes-sigs/jobset v0.12.0 (api/jobset/v1alpha2/jobset_types.go). Kubeflow Trainer v2.3.0 uses
the same labels and the same names of pods and containers, and Trainer's tools depend on these labels and names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepset.plan.model import NODE, LaunchPlan, PodGroup
from stepset.spec.job import TrainingJob
from stepset.spec.names import jobset_name_budget
from stepset.targets import gang
from stepset.targets.companions import companions
from stepset.targets.kinds.failure_policy import job_policies, jobset_failure_policy
from stepset.targets.kinds.limits import INDEXED_JOB_ENV, INDEXED_PODS
from stepset.targets.metadata import TRAINER_STEP, workload_metadata
from stepset.targets.names import COMPLETION_INDEX, RESTART_ATTEMPT, PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.placement import exclusive_group, node_selector_strategy
from stepset.targets.pods.template import PodStyle, pod_template
from stepset.targets.request import RenderRequest
from stepset.targets.target_spec import TargetSpec

# With this annotation, the pods of a replicated job use a topology domain exclusively. Only the replicated job of the
# nodes has the annotation. If the JobSet had the annotation, the launcher and each role would also need their own
# domains (jobset v0.12.0 pkg/controllers/jobset_controller.go, labelAndAnnotateObject).
_EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def render(request: RenderRequest) -> list[dict[str, Any]]:
    """Returns the manifests, in the order in which they must be applied."""
    names = PodNames(request.plan, request.run, request.subdomain)
    templates = pod_templates(request, PodStyle(names, COMPLETION_INDEX, RESTART_ATTEMPT))
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": workload_metadata(request, more_labels=gang.queue_labels(request.job)),
        "spec": jobset_spec(request, templates),
    }
    return [*companions(request, names), *gang.pod_groups(request, templates), jobset]


def problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each value that JobSet's controller would refuse."""
    if job.scheduling.topology.exclusive is not None and sum(group.in_world for group in plan.groups) > 1:
        # The launcher belongs to another Job, and JobSet keeps the pods of other Jobs away from the domain (jobset
        # v0.12.0 pkg/webhooks/pod_webhook.go, setExclusiveAffinities).
        yield (
            "scheduling.topology.exclusive: with run_launcher_as_node the launcher is a node, and JobSet would place it"
            " outside the domain of the other nodes; leave run_launcher_as_node out, or set num_nodes: 1"
        )


def name_budget(plan: LaunchPlan) -> int:
    """Returns the maximum length of a run's name. JobSet's webhook rejects a name that is too long."""
    return jobset_name_budget((group.name, group.count) for group in plan.groups)


def pod_templates(request: RenderRequest, style: PodStyle) -> dict[str, dict[str, Any]]:
    """Returns a mapping from the names of the groups to their pod templates."""
    gangs = gang.template_fields(request)
    return {group.name: pod_template(request, group, style, gangs.get(group.name)) for group in request.plan.groups}


def jobset_spec(request: RenderRequest, templates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the `spec` of a JobSet. The target `trainjob` also uses this function, for the TrainingRuntime."""
    job, plan = request.job, request.plan
    return {
        **gang.suspended(job),
        "network": {
            "enableDNSHostnames": True,
            "subdomain": request.subdomain,
            # Ranks must resolve the host names of pods that are not ready yet.
            "publishNotReadyAddresses": True,
        },
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [plan.success.group]},
        "failurePolicy": jobset_failure_policy(job, plan),
        **without_empty(ttlSecondsAfterFinished=job.ttl),
        "replicatedJobs": [_replicated_job(request, group, templates[group.name]) for group in plan.groups],
    }


def _replicated_job(request: RenderRequest, group: PodGroup, template: Mapping[str, Any]) -> dict[str, Any]:
    depends = [{"name": after.group, "status": after.condition} for after in group.start_after]
    step = {TRAINER_STEP: "trainer"} if group.name == NODE else {}
    metadata = without_empty(labels=step, annotations=job_annotations(request, group))
    return {
        "name": group.name,
        "replicas": 1,
        **without_empty(dependsOn=depends),
        "template": {**without_empty(metadata=metadata), "spec": job_spec(request, group, template)},
    }


def job_annotations(request: RenderRequest, group: PodGroup) -> dict[str, str]:
    """Returns the annotations of a group's Job.

    If the job sets `scheduling.topology.exclusive`, the annotations of the nodes request an exclusive topology domain.
    JobSet reads the strategy for exclusive domains from the same object as the request.
    """
    exclusive = request.job.scheduling.topology.exclusive
    if exclusive is None or group.name != exclusive_group(request.plan):
        return {}
    return {_EXCLUSIVE_TOPOLOGY: exclusive, **node_selector_strategy(request.job)}


def job_spec(request: RenderRequest, group: PodGroup, template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `spec` of the Job that creates the pods of a group."""
    job = request.job
    return {
        "completionMode": "Indexed",
        "completions": group.count,
        "parallelism": group.count,
        **job_policies(job, request.plan, group),
        **without_empty(activeDeadlineSeconds=job.deadline),
        "template": dict(template),
    }


SPEC = TargetSpec(
    render=render,
    problems=problems,
    name_budget=name_budget,
    max_pods=INDEXED_PODS,
    reserved_env=INDEXED_JOB_ENV,
    own_fields=("scheduling.topology.exclusive",),
    manifest_fields={r"spec\.network\.subdomain\b": "network.subdomain"},
)
