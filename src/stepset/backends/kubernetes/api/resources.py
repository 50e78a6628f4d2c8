"""The API resources of a run's objects, and the remedy if the cluster does not serve one. Pure.

The kinds are those that `stepset.targets` renders, so no discovery is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]
"""A Kubernetes object, rendered or read."""

_PLURALS = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "Pod": "pods",
    "StatefulSet": "statefulsets",
    "Job": "jobs",
    "JobSet": "jobsets",
    "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
    "PodGroup": "podgroups",
    "NetworkPolicy": "networkpolicies",
}

_JOB_INSTEAD = "use --target job or statefulset, or install it"
_GANG_INSTEAD = "use another value of scheduling.gang, or install it"
# API group -> the product that installs it, and the remedy.
_INSTALLED: Mapping[str, tuple[str, str]] = {
    "jobset.x-k8s.io": ("JobSet", _JOB_INSTEAD),
    "trainer.kubeflow.org": ("Kubeflow Trainer", "use --target jobset or job, or install it"),
    "batch.volcano.sh": ("Volcano", "use another --target, or install it"),
    "scheduling.volcano.sh": ("Volcano", _GANG_INSTEAD),
    "scheduling.x-k8s.io": ("scheduler-plugins' coscheduling", _GANG_INSTEAD),
}


@dataclass(frozen=True)
class Resource:
    """A kind of object in request paths: its plural, and its API group, which is empty for the core group."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str) -> str:
        """Returns the path of the collection in a namespace."""
        return f"{self.discovery}/namespaces/{namespace}/{self.plural}"

    @property
    def discovery(self) -> str:
        """A path that every account may read, and that exists if the server serves the kind's API group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def builtin(self) -> bool:
        """Whether every cluster serves the kind."""
        return self.group in ("", "apps", "batch", "networking.k8s.io")

    @property
    def absent(self) -> str:
        """The message for a cluster that does not serve the kind."""
        version = f"{self.group}/{self.version}"
        name, remedy = _INSTALLED.get(self.group, (version, "contact the cluster's administrator"))
        field = "scheduling.gang" if self.plural == "podgroups" else "target"
        return f"{field}: {name} is not installed on this cluster ({version} is not served); {remedy}"


def resource_of(manifest: Manifest) -> Resource:
    """Returns the resource of an object."""
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    return Resource(group, version, _PLURALS[manifest["kind"]])


WORKLOADS: Mapping[str, Resource] = {
    "trainjob": Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
    "jobset": Resource("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "job": Resource("batch", "v1", "jobs"),
    "statefulset": Resource("apps", "v1", "statefulsets"),
    "volcano": Resource("batch.volcano.sh", "v1alpha1", "jobs"),
}
"""Target -> the kind of the run's workload. TrainJobs precede the JobSets of the same names that they create."""


def target_of(resource: Resource) -> str | None:
    """Returns the target whose workloads are of a kind; None for any other kind."""
    kind = (resource.group, resource.plural)
    return next((target for target, each in WORKLOADS.items() if (each.group, each.plural) == kind), None)


RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")
PODS = Resource("", "v1", "pods")
EVENTS = Resource("", "v1", "events")
CONFIG_MAPS = Resource("", "v1", "configmaps")
JOBS = WORKLOADS["job"]
JOBSETS = WORKLOADS["jobset"]
QUEUE_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads")
QUEUE_POSITIONS = tuple(
    Resource("visibility.kueue.x-k8s.io", version, "localqueues") for version in ("v1beta2", "v1beta1")
)
"""The LocalQueues whose subresource `pendingworkloads` states positions, the newest version first."""
