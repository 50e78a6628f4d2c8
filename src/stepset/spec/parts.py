"""The smaller parts of a job: storage, roles, restarts, scheduling, network."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from stepset.spec.base import AbsolutePath, Command, JobModel, TextList, Whole
from stepset.spec.environ import Env
from stepset.spec.names import check_dns_1035
from stepset.spec.quantity import Duration
from stepset.spec.resources import Resources


def _dns_1035(name: str) -> str:
    check_dns_1035(name)
    return name


Label = Annotated[str, AfterValidator(_dns_1035)]


class Storage(JobModel):
    """A PersistentVolumeClaim mounted in every pod, roles and launchers too; locally the path is used as it is."""

    path: AbsolutePath
    """Where it is mounted."""
    claim: str = Field(min_length=1)
    """Name of the PersistentVolumeClaim."""
    sub_path: str | None = None
    """Directory of the volume to mount; default: its root."""
    read_only: bool = False
    """Whether the volume is mounted read-only."""


class Role(JobModel):
    """Pods beside the world: they get no training environment and do not count in the world size."""

    name: Label
    """The prefix of its pods' names; a DNS-1035 label."""
    before: bool = False
    """Whether it completes before the nodes start (a download, a data set's preparation)."""
    replicas: Whole = Field(default=1, ge=1)
    image: str | None = None
    """Default: the job's image."""
    command: Command = Field(default_factory=list)
    args: TextList = Field(default_factory=list)
    """Arguments of command, or of the image's own."""
    env: Env
    """Its variables; it gets no others."""
    resources: Resources = Field(default_factory=Resources)
    """What each of its pods requests."""

    @model_validator(mode="after")
    def _something_to_run(self) -> Role:
        if not (self.image or self.command):
            raise ValueError(f"role {self.name!r} has neither image nor command; give one of them")
        return self


class Restart(JobModel):
    """What happens after a failure."""

    max_restarts: Whole = Field(default=0, ge=0)
    """How often the whole gang is started again; a disruption (eviction, preemption, node loss) does not count."""
    user_errors: Literal["restart", "fail"] = "restart"
    """`fail` makes an error of the training code final, regardless of max_restarts."""
    lost_node: Literal["report", "release"] = "report"
    """What to do about pods on a node that no longer answers: report it, or delete them by force."""
    lost_node_after: Duration = 300
    """How long a node must have been lost before its pods are deleted by force."""


class Topology(JobModel):
    """Where the pods may run in relation to each other."""

    exclusive: str | None = None
    """Node label of which each replicated job gets one value for itself (JobSet's exclusive topology)."""


class Scheduling(JobModel):
    """Which nodes, which queue, and whether all pods start together or none."""

    queue_name: str | None = Field(default=None, min_length=1)
    """Kueue LocalQueue, or Volcano queue."""
    priority_class: str | None = Field(default=None, min_length=1)
    """PriorityClass of the pods; default: the cluster's."""
    gang: Literal["none", "kueue", "coscheduling", "volcano"] | None = None
    """All pods or none; default: kueue with a queue_name, else none."""
    min_member: Whole | None = Field(default=None, ge=1)
    """Pods of the gang that must fit at once; default: all that start first."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the nodes must have."""
    tolerations: list[dict[str, Any]] = Field(default_factory=list)
    """Tolerations of the pods, as Kubernetes writes them."""
    affinity: dict[str, Any] = Field(default_factory=dict)
    """Affinity of the pods, as Kubernetes writes it."""
    topology: Topology = Topology()
    """Where the pods may run in relation to each other."""


class Network(JobModel):
    """How the ranks find each other."""

    port: Whole = Field(default=29500, ge=1, le=65535)
    """Rendezvous port on node 0; locally a free one is taken instead."""
    subdomain: Label | None = None
    """Name of the headless Service; default: the run's name."""
    cluster_domain: str = Field(default="cluster.local", min_length=1)
    """Domain of the cluster's names."""
    peer_timeout: Duration = 600
    """How long a pod waits for its peers' names to resolve."""
