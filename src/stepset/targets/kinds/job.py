"""The target `job`, which renders a headless Service and an Indexed Job.

The target needs only the controllers of Kubernetes.
"""

from __future__ import annotations

from typing import Any

from stepset.plan.model import NODE
from stepset.targets import gang
from stepset.targets.companions import companions
from stepset.targets.kinds.headless_service import headless_service
from stepset.targets.kinds.jobset import job_spec, pod_templates
from stepset.targets.metadata import workload_metadata
from stepset.targets.names import COMPLETION_INDEX, SINGLE_GROUP_HOSTS, PodNames
from stepset.targets.optional_fields import without_empty
from stepset.targets.pods.template import PodStyle
from stepset.targets.request import RenderRequest


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
