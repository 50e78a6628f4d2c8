"""The target `job`, which renders a headless Service and an Indexed Job.

The target needs only the controllers of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepset.plan.model import NODE, LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.targets import gang
from stepset.targets.companions import companions, headless_service
from stepset.targets.kinds.jobset import job_spec, pod_templates
from stepset.targets.kinds.limits import INDEXED_JOB_ENV, INDEXED_PODS, indexed_name_budget, one_group
from stepset.targets.metadata import workload_metadata
from stepset.targets.names import COMPLETION_INDEX, SINGLE_GROUP_HOSTS, PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.template import PodStyle
from stepset.targets.request import RenderRequest
from stepset.targets.target_spec import TargetSpec


def render(request: RenderRequest) -> list[dict[str, Any]]:
    """Returns the manifests, in the order in which they must be applied."""
    job = request.job
    names = PodNames(request.plan, request.run, request.subdomain, SINGLE_GROUP_HOSTS)
    templates = pod_templates(request, PodStyle(names, COMPLETION_INDEX))
    # The Job controller sets the host names of the pods to <job>-<index>, but does not set the subdomain.
    node = templates[NODE]
    template = {**node, "spec": {**node["spec"], "subdomain": request.subdomain}}
    workload = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": workload_metadata(request, more_labels=gang.queue_labels(job)),
        "spec": {
            **gang.suspended(job),
            **without_empty(ttlSecondsAfterFinished=job.ttl),
            **job_spec(request, request.plan.group(NODE), template),
        },
    }
    return [*companions(request, names), headless_service(request), *gang.pod_groups(request, templates), workload]


def problems(job: TrainingJob, plan: LaunchPlan) -> Iterator[str]:
    """Yields one line for each feature of a job that an Indexed Job does not support."""
    yield from one_group(job, plan, "job")
    if job.restart.max_restarts and plan.world.elastic is None:
        yield (
            "restart.max_restarts: target job cannot start the whole gang again; leave it out, or use target jobset,"
            " trainjob or volcano"
        )


SPEC = TargetSpec(
    render=render,
    problems=problems,
    name_budget=indexed_name_budget,
    max_pods=INDEXED_PODS,
    reserved_env=INDEXED_JOB_ENV,
    own_fields=(),
    manifest_fields={},
)
