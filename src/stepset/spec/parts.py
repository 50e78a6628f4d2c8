"""The models of the smaller parts of a job: storage, roles, restarts, scheduling and network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from stepset.spec.api_values import ApiMapping
from stepset.spec.base import AbsolutePath, Command, Count, JobModel, Switch, TextList, Whole
from stepset.spec.environ import Env
from stepset.spec.names import check_dns_1035
from stepset.spec.quantity import Duration
from stepset.spec.resources import Resources
from stepset.spec.scalars import plain, shortened

Label = Annotated[str, AfterValidator(check_dns_1035)]


class Storage(JobModel):
    """A PersistentVolumeClaim that all pods of the run mount. Local runs use a local directory."""

    _other_names: ClassVar[Mapping[str, str]] = {"mount_path": "path", "pvc": "claim", "claim_name": "claim"}

    path: AbsolutePath
    """The path at which the volume is mounted. A local run uses the directory with this path on the local machine."""
    claim: str = Field(min_length=1)
    """The name of the PersistentVolumeClaim."""
    sub_path: str | None = None
    """The path of a directory in the volume. The pods mount only this directory. By default, they mount the root
    directory of the volume."""
    read_only: Switch = False
    """Whether the volume is mounted read-only."""


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} is outside the volume; give a directory inside it, such as src/train")
    return path


class CodeVolume(JobModel):
    """A volume that contains the code. The pods of a run mount this volume. Local runs do not support such a volume.

    >>> CodeVolume(claim="training-code", path="digits").source
    {'persistentVolumeClaim': {'claimName': 'training-code', 'readOnly': True}}
    """

    claim: str | None = Field(default=None, min_length=1)
    """The name of a PersistentVolumeClaim that contains the code."""
    image: str | None = Field(default=None, min_length=1)
    """The reference of an OCI image or artifact that contains the code. The pods mount the image as an image volume
    (docs/kubernetes.md)."""
    path: Annotated[str, AfterValidator(_inside)] = ""
    """The path of the code in the volume. The default is the root directory of the volume."""

    @model_validator(mode="after")
    def _one_source(self) -> CodeVolume:
        if (self.claim is None) == (self.image is None):
            found = "none is given" if self.claim is None else "both are given"
            raise ValueError(f"exactly one of claim, image is required; {found}")
        return self

    @property
    def source(self) -> dict[str, Any]:
        """The volume source in the form of the Kubernetes API, such as `persistentVolumeClaim`."""
        if self.claim is not None:
            return {"persistentVolumeClaim": {"claimName": self.claim, "readOnly": True}}
        return {"image": {"reference": self.image}}


def _code_form(value: Any) -> str:
    return "CodeVolume" if isinstance(value, (dict, CodeVolume)) else "CodeDirectory"


Code = Annotated[
    Annotated[Annotated[str, Field(min_length=1)], Tag("CodeDirectory")] | Annotated[CodeVolume, Tag("CodeVolume")],
    Discriminator(_code_form),
]
"""The directory of the job's code, or a volume that contains it."""


class Placement(JobModel):
    """The machines on which pods may run."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    """The labels that a machine must have."""
    tolerations: list[ApiMapping] = Field(default_factory=list)
    """The tolerations of the pods, in the form of the Kubernetes API."""
    affinity: ApiMapping = Field(default_factory=dict)
    """The affinity of the pods, in the form of the Kubernetes API."""


class Role(JobModel):
    """A group of pods that do not train. These pods get no training variables and are not part of the world size."""

    name: Label
    """The name of the role, a DNS-1035 label. The names of the role's pods contain this name."""
    before: Switch = False
    """Whether the nodes wait until the role has completed. For example, set this field for a role that downloads
    data."""
    after: list[Label] = Field(default_factory=list)
    """The names of earlier roles with `before: true` that must complete before this role starts. By default, all roles
    start at the same time."""
    replicas: Count = Field(default=1, ge=1)
    """The number of pods of the role."""
    image: str | None = None
    """The container image. The default is the image of the job."""
    command: Command = Field(default_factory=list)
    """The program to run and its arguments, as a list. By default, the pods run the command of the image."""
    args: TextList = Field(default_factory=list)
    """The arguments of the command."""
    env: Env
    """The environment variables of the role's pods. These pods do not get the job's `env` or the training variables."""
    resources: Resources = Field(default_factory=Resources)
    """The resources that each pod of the role requests."""
    scheduling: Placement = Placement()
    """The machines on which the role's pods may run. By default, the pods may run on any machine. The job's
    node_selector, tolerations and affinity do not apply to the pods of roles."""

    @model_validator(mode="after")
    def _something_to_run(self) -> Role:
        if not (self.image or self.command):
            raise ValueError(f"role {self.name!r} has neither image nor command; give one of them")
        return self


class Restart(JobModel):
    """What happens after a failure."""

    max_restarts: Whole = Field(default=0, ge=0)
    """The maximum number of restarts of the whole gang. Restarts after a disruption (eviction, preemption or node loss)
    do not count towards this number, except with Volcano and with JobSet before 0.10 (docs/targets.md)."""
    user_errors: Literal["restart", "fail"] = "restart"
    """What happens after an error of the training code. With `fail`, the run fails, regardless of max_restarts."""
    lost_node: Literal["report", "release"] = "report"
    """What stepset does if a node no longer responds. With `report`, stepset reports the node. With `release`, stepset
    also deletes the pods of the node by force."""
    lost_node_after: Duration = 300
    """With `lost_node: release`, stepset deletes the pods of a lost node by force when this time has passed since their
    deletion was due. By default, Kubernetes deletes the pods about 6 minutes after their node stopped responding
    (docs/kubernetes.md), and the deletion is due a minute later."""


class HangTimes(JobModel):
    """When stepset examines ranks without progress, and what it then does. Lines, steps, collectives are progress."""

    after: Duration = 300
    """The time without progress after which stepset examines the ranks. If the run has already paused for longer,
    stepset waits for five times the longest pause instead."""
    first: Duration = 1800
    """The time without progress that is allowed before the first step of the training. Imports, downloads and
    compilation often take long."""
    action: Literal["report", "restart", "fail"] = "report"
    """What happens if a pod contains the rank that blocks the others. With `report`, stepset reports the hang, and the
    run continues. With `restart`, the pod fails after the report, and the gang is restarted as after an error of the
    training code, up to `restart.max_restarts` times. With `fail`, the run fails without a restart."""


def _hang_form(value: Any) -> Any:
    chosen = plain(value)
    if isinstance(chosen, (dict, HangTimes)):
        return chosen
    # YAML 1.1 reads `off` as false.
    if str(chosen).lower() in ("off", "false"):
        return "off"
    raise ValueError(f"{shortened(repr(value))} is not known; use off, or times such as {{after: 5m, first: 30m}}")


HangChoice = Annotated[
    Annotated[Literal["off"], Tag("HangOff")] | Annotated[HangTimes, Tag("HangTimes")],
    Discriminator(lambda value: "HangOff" if value == "off" else "HangTimes"),
    BeforeValidator(_hang_form),
]


def _agent_choice(value: Any) -> Any:
    text = str(plain(value)).lower()
    if text not in ("auto", "true", "false"):
        raise ValueError(f"{value!r} is not known; use auto, true or false")
    return {"auto": "auto", "true": True, "false": False}[text]


AgentChoice = Annotated[Any, BeforeValidator(_agent_choice), WithJsonSchema({"enum": ["auto", True, False]})]


class Topology(JobModel):
    """The placement of the pods relative to each other."""

    exclusive: str | None = None
    """The key of a label that divides the machines into domains, such as racks. All nodes of the run are placed in one
    domain (JobSet's exclusive placement). No other pods that belong to a JobSet can be placed in this domain. The
    launcher and the roles of the run cannot run in this domain either."""


class Scheduling(Placement):
    """The queue and the gang scheduling of all pods of the run, and the machines on which the nodes may be placed."""

    queue_name: str | None = Field(default=None, min_length=1)
    """The name of a LocalQueue of Kueue, or of a queue of Volcano."""
    priority_class: str | None = Field(default=None, min_length=1)
    """The PriorityClass of the pods. By default, the default PriorityClass of the cluster applies."""
    gang: Literal["none", "kueue", "coscheduling", "volcano"] | None = None
    """The scheduler that starts either all pods or none. The default is kueue if queue_name is given, and otherwise
    none."""
    min_member: Whole | None = Field(default=None, ge=1)
    """The minimum number of nodes that the scheduler must be able to start together. The default is the number of all
    nodes, or the min_nodes of an elastic job."""
    topology: Topology = Topology()
    """The placement of the pods relative to each other."""
    launcher: Placement = Placement()
    """The machines on which the launcher pod may run. A job can set this field only if the launcher is not one of its
    nodes. By default, the launcher pod may run on any machine."""


class Network(JobModel):
    """The ports and DNS names with which the ranks connect to each other."""

    port: Whole = Field(default=29500, ge=1, le=65535)
    """The rendezvous port on node 0. Local runs use a free port instead."""
    subdomain: Label | None = None
    """The name of the headless Service. The default is the name of the run."""
    cluster_domain: str = Field(default="cluster.local", min_length=1)
    """The DNS domain of the cluster."""
    peer_timeout: Duration = 600
    """The maximum time for which a pod waits until the host names of the other pods resolve."""
    policy: Switch = False
    """Whether stepset creates a NetworkPolicy. The policy allows connections to the pods of the run only from pods of
    the same run. The field has no effect on local runs."""
