"""The smaller parts of a job: storage, roles, restarts, scheduling, network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from stepset.spec.api_values import ApiMapping
from stepset.spec.base import AbsolutePath, Command, Count, JobModel, Switch, TextList, Whole
from stepset.spec.environ import Env
from stepset.spec.names import check_dns_1035
from stepset.spec.quantity import Duration
from stepset.spec.resources import Resources


def _dns_1035(name: str) -> str:
    check_dns_1035(name)
    return name


Label = Annotated[str, AfterValidator(_dns_1035)]


class Storage(JobModel):
    """A PersistentVolumeClaim mounted in every pod, also of roles and launchers; local runs use the path unchanged."""

    path: AbsolutePath
    """Mount path."""
    claim: str = Field(min_length=1)
    """Name of the PersistentVolumeClaim."""
    sub_path: str | None = None
    """Directory of the volume to mount; default: its root."""
    read_only: Switch = False
    """Whether the volume is mounted read-only."""


class Placement(JobModel):
    """Machines on which pods may run."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the machines must have."""
    tolerations: list[ApiMapping] = Field(default_factory=list)
    """Tolerations of the pods, in the form of the Kubernetes API."""
    affinity: ApiMapping = Field(default_factory=dict)
    """Affinity of the pods, in the form of the Kubernetes API."""


class Role(JobModel):
    """Pods outside the training world: they get no training environment and do not count in the world size."""

    name: Label
    """The role's name, a DNS-1035 label; the names of its pods contain it."""
    before: Switch = False
    """Whether the nodes start only when the role has completed, for example a download."""
    after: list[Label] = Field(default_factory=list)
    """Earlier roles with `before: true` that must complete first; default: none, so that all roles start together."""
    replicas: Count = Field(default=1, ge=1)
    image: str | None = None
    """Default: the job's image."""
    command: Command = Field(default_factory=list)
    args: TextList = Field(default_factory=list)
    """Arguments of command, or of the image's own command."""
    env: Env
    """Variables of the role's pods; the job's `env` and the training variables do not apply to them."""
    resources: Resources = Field(default_factory=Resources)
    """Resources that each of its pods requests."""
    scheduling: Placement = Placement()
    """Machines on which its pods may run; default: any. The job's node_selector, tolerations and affinity apply to the
    nodes only."""

    @model_validator(mode="after")
    def _something_to_run(self) -> Role:
        if not (self.image or self.command):
            raise ValueError(f"role {self.name!r} has neither image nor command; give one of them")
        return self


class Restart(JobModel):
    """What happens after a failure."""

    max_restarts: Whole = Field(default=0, ge=0)
    """How often the whole gang is restarted; a disruption (eviction, preemption, node loss) does not count (exceptions:
    Volcano, and JobSet before 0.10; docs/targets.md)."""
    user_errors: Literal["restart", "fail"] = "restart"
    """`fail` makes an error of the training code final, regardless of max_restarts."""
    lost_node: Literal["report", "release"] = "report"
    """What to do about pods on a node that no longer responds: report it, or release the pods by forced deletion."""
    lost_node_after: Duration = 300
    """How long a node must be unresponsive before its pods are released."""


class Topology(JobModel):
    """Placement of the pods relative to each other."""

    exclusive: str | None = None
    """Topology key: a label of machines, such as that of their racks. All nodes of the run then run in one rack, in
    which no other pod of a JobSet runs, not even the run's launcher and roles (JobSet's exclusive placement)."""


class Scheduling(Placement):
    """Machines of the nodes; queue and gang scheduling of all pods. A launcher with run_launcher_as_node is a node."""

    queue_name: str | None = Field(default=None, min_length=1)
    """Kueue LocalQueue, or Volcano queue."""
    priority_class: str | None = Field(default=None, min_length=1)
    """PriorityClass of the pods; default: the cluster's."""
    gang: Literal["none", "kueue", "coscheduling", "volcano"] | None = None
    """Scheduler that starts all pods or none; default: kueue with a queue_name, else none."""
    min_member: Whole | None = Field(default=None, ge=1)
    """Minimum number of node pods that must be schedulable together; default: all, or min_nodes of an elastic world."""
    topology: Topology = Topology()
    """Placement of the pods relative to each other."""
    launcher: Placement = Placement()
    """Machines on which a launcher that is not a node may run; default: any."""


class Network(JobModel):
    """How the ranks find each other."""

    port: Whole = Field(default=29500, ge=1, le=65535)
    """Rendezvous port on node 0; local runs use a free port instead."""
    subdomain: Label | None = None
    """Name of the headless Service; default: the run's name."""
    cluster_domain: str = Field(default="cluster.local", min_length=1)
    """DNS domain of the cluster."""
    peer_timeout: Duration = 600
    """How long a pod waits for its peers' names to resolve."""
    policy: Switch = False
    """Whether a NetworkPolicy allows only pods of the run to connect to pods of the run; no effect on local runs."""
