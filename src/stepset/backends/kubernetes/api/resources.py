"""The API resources of a run's objects, and the error messages if a cluster does not serve a resource.

stepset needs no API discovery, because `stepset.targets` renders only a fixed set of kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepset.backends.option_names import Interface, option
from stepset.targets.workload_kinds import WORKLOAD_KINDS, ApiKind

_CONTACT = "contact the cluster's administrator"

Manifest = Mapping[str, Any]
"""A Kubernetes object that was rendered by stepset or read from a server."""

_PLURALS = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "Pod": "pods",
    "PodGroup": "podgroups",
    "NetworkPolicy": "networkpolicies",
    **{api.kind: api.plural for kind in WORKLOAD_KINDS.values() for api in (kind.api, kind.templates)},
}

_GANG = "use another value of scheduling.gang"
_TARGET = "use {target}"
"""The advice to use the target `job`, which every cluster serves. `{target}` is replaced by the option."""
# Maps an API group to a tuple. The first element is the product that installs the group. The second element is advice
# for a cluster without the group. The method `absent` appends "or install it" to this advice.
_INSTALLED: Mapping[str, tuple[str, str]] = {
    **{kind.api.group: (kind.product, _TARGET) for kind in WORKLOAD_KINDS.values() if kind.product},
    "scheduling.volcano.sh": ("Volcano", _GANG),
    "scheduling.x-k8s.io": ("scheduler-plugins' coscheduling", _GANG),
    "kueue.x-k8s.io": ("Kueue", "leave queue_name out"),
}
# Maps the plural of a kind to the field of a job that requires the kind. All other kinds are required by the target.
_FIELDS = {"podgroups": "scheduling.gang", "localqueues": "scheduling.queue_name"}


@dataclass(frozen=True)
class Resource:
    """A kind of object, and its names in the paths of requests. `group` is empty for the core group."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str) -> str:
        """Returns the path of the collection in a namespace, or in all namespaces if `namespace` is empty."""
        place = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.discovery}{place}/{self.plural}"

    @property
    def discovery(self) -> str:
        """A path that exists if the server serves the API group and version. Every account may read this path."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def builtin(self) -> bool:
        """Whether every cluster serves the kind."""
        return self.group in ("", "apps", "batch", "networking.k8s.io")

    def absent(self, interface: Interface) -> str:
        """Returns the error message for a cluster that does not serve the kind.

        `interface` determines the names of options in the message.
        """
        version = f"{self.group}/{self.version}"
        name, remedy = _INSTALLED.get(self.group, (version, ""))
        remedy = f"{remedy.format(target=option(interface, 'target', 'job'))}, or install it" if remedy else _CONTACT
        field = _FIELDS.get(self.plural, "target")
        return f"{field}: {name} is not installed on this cluster ({version} is not served); {remedy}"


def resource_of(manifest: Manifest) -> Resource:
    """Returns the resource of an object."""
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    return Resource(group, version, _PLURALS[manifest["kind"]])


def resource_for(kind: ApiKind) -> Resource:
    """Returns the resource of a kind."""
    return Resource(kind.group, kind.version, kind.plural)


WORKLOADS: Mapping[str, Resource] = {
    target: resource_for(kind.api)
    for target, kind in sorted(WORKLOAD_KINDS.items(), key=lambda each: -len(each[1].followed))
}
"""Maps a target to the kind of its workloads.

TrainJobs come before JobSets, because a TrainJob creates a JobSet with the same name.
"""


def target_of(resource: Resource) -> str | None:
    """Returns the target whose workloads have this kind; None if no target has this kind."""
    kind = (resource.group, resource.plural)
    return next((target for target, each in WORKLOADS.items() if (each.group, each.plural) == kind), None)


PODS = Resource("", "v1", "pods")
NAMESPACES = Resource("", "v1", "namespaces")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
EVENTS = Resource("", "v1", "events")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses")
CONFIG_MAPS = Resource("", "v1", "configmaps")
SECRETS = Resource("", "v1", "secrets")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
JOBS = WORKLOADS["job"]
JOBSETS = WORKLOADS["jobset"]
QUEUE_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads")
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
"""The versions of Kueue's API. The newest version comes first."""
QUEUE_POSITIONS = tuple(Resource("visibility.kueue.x-k8s.io", version, "localqueues") for version in KUEUE_VERSIONS)
"""The API versions in which a LocalQueue has the subresource `pendingworkloads`. The newest version comes first.

The subresource contains the positions of workloads in the queue."""
