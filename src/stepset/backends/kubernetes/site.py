"""A namespace on a server, and the kinds of workloads a run may be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.backends.kubernetes.client import Connection, Reply
from stepset.backends.kubernetes.resources import Resource, resource_of

WORKLOADS: Mapping[str, Resource] = {
    "trainjob": Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
    "jobset": Resource("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "job": Resource("batch", "v1", "jobs"),
    "statefulset": Resource("apps", "v1", "statefulsets"),
    "volcano": Resource("batch.volcano.sh", "v1alpha1", "jobs"),
}
"""Target -> what it makes of a run. A TrainJob comes before the JobSet that is made of it under the same name."""

RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")
PODS = Resource("", "v1", "pods")
EVENTS = Resource("", "v1", "events")
JOBS = WORKLOADS["job"]
JOBSETS = WORKLOADS["jobset"]
QUEUE_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads")


@dataclass(frozen=True)
class Site:
    """Where runs live.

    Args:
        connection: the server, and who asks.
        namespace: on it.
    """

    connection: Connection
    namespace: str

    def all(self, resource: Resource) -> str:
        """Path of a collection."""
        return resource.path(self.namespace)

    def one(self, resource: Resource, name: str) -> str:
        """Path of an object."""
        return f"{resource.path(self.namespace)}/{name}"

    def path_of(self, manifest: Mapping[str, Any]) -> str:
        """Path of an object that was rendered or read."""
        return self.one(resource_of(manifest), manifest["metadata"]["name"])

    def create(self, manifest: Mapping[str, Any]) -> Reply:
        """Makes an object; fields that the server does not know are dropped with a warning."""
        query = {"fieldManager": "stepset", "fieldValidation": "Warn"}
        return self.connection.post(self.all(resource_of(manifest)), manifest, query)
