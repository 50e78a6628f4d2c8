"""TrainingJob: the model of a job, with the same field names in the job file, the CLI and every operator."""

from __future__ import annotations

import warnings
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator

from stepset.spec.api_values import ApiMapping
from stepset.spec.base import AbsolutePath, Command, Count, JobModel, TextList, check_size, nearest, validation_error
from stepset.spec.environ import Env
from stepset.spec.names import jobset_name_budget, slug
from stepset.spec.options import KINDS, MLX, MPI, DeepSpeed, Framework, Torch
from stepset.spec.parts import Label, Network, Restart, Role, Scheduling, Storage
from stepset.spec.quantity import Duration
from stepset.spec.resources import Resources, merge_resources
from stepset.spec.scalars import number, plain, shortened
from stepset.spec.template import NODE, container_resources

ENTRIES = ("script", "module", "command", "function")


def _framework_mapping(value: Any) -> Any:
    if not isinstance(value, (str, dict)):
        return value
    if isinstance(value, dict) and "kind" not in value:
        raise validation_error((("kind",), f"is missing; it must be one of {', '.join(KINDS)}"))
    kind = value if isinstance(value, str) else value["kind"]
    if kind not in KINDS:
        raise ValueError(f"unknown framework {kind!r}; {nearest(str(kind), KINDS)}")
    return {"kind": value} if isinstance(value, str) else value


def _procs_per_node(value: Any) -> Any:
    if value in ("auto", "cpu", "gpu"):
        return value
    text = str(plain(value) if isinstance(plain(value), bool) else number(value))
    if isinstance(plain(value), bool) or not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError(f"{value!r} is not known; use auto, cpu, gpu, or a whole number of 1 or more")
    return check_size(int(text))


def _agent_choice(value: Any) -> Any:
    text = str(plain(value)).lower()
    if text not in ("auto", "true", "false"):
        raise ValueError(f"{value!r} is not known; use auto, true or false")
    return {"auto": "auto", "true": True, "false": False}[text]


def _compiles(program: str) -> str:
    """Returns the source text of a program; ValueError if it is not Python."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(program, "function", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = shortened("".join(program.splitlines()[(error.lineno or 1) - 1 :][:1]).strip())
        raise ValueError(f"line {error.lineno}: {error.msg}: {line!r}; correct the program") from error
    except (RecursionError, MemoryError, OverflowError) as error:
        raise ValueError("the program is too deeply nested for Python; simplify it") from error
    return program


Program = Annotated[str, AfterValidator(_compiles)]
"""The source text of a Python program."""
ProcsPerNode = Annotated[
    Any,
    BeforeValidator(_procs_per_node),
    WithJsonSchema({"anyOf": [{"enum": ["auto", "cpu", "gpu"]}, {"type": "integer", "minimum": 1}]}),
]
AgentChoice = Annotated[Any, BeforeValidator(_agent_choice), WithJsonSchema({"enum": ["auto", True, False]})]


def _max_name_length(roles: Any) -> int:
    """Returns the maximum length of a derived name: 40, or less if a role has a long name."""
    rows = roles if isinstance(roles, (list, tuple)) else ()  # anything else is rejected by the model
    names = [role.get("name") if isinstance(role, dict) else getattr(role, "name", "") for role in rows]
    room = jobset_name_budget([("launcher", 1), *((str(name), 1000) for name in names)])
    return min(40, max(1, room))


class TrainingJob(JobModel):
    """A distributed training run: what to run, on how many nodes, with which resources.

    >>> TrainingJob(framework="torch", num_nodes=2, script="train.py").name
    'train'
    """

    name: Label
    """DNS-1035 label; default: made from script, module or command."""
    framework: Annotated[Framework, BeforeValidator(_framework_mapping)] = Torch()
    """The framework, which starts and connects the ranks: a kind, or a mapping of kind and options; default: torch."""
    num_nodes: Count = Field(default=1, ge=1)
    """Pods that join the training world."""
    procs_per_node: ProcsPerNode = "auto"
    """Processes per node: a number, or auto, cpu or gpu to count them from resources_per_node (docs/job-file.md)."""
    image: str | None = Field(default=None, min_length=1)
    """Container image; needed on Kubernetes, ignored locally."""
    script: str | None = Field(default=None, min_length=1)
    """Python file to run, relative to the job file."""
    module: str | None = Field(default=None, min_length=1)
    """Python module to run, as `python -m` does."""
    command: Command | None = Field(default=None, min_length=1)
    """Program to run and its arguments, as a list."""
    function: Program | None = Field(default=None, min_length=1)
    """Source text of a Python program; set by the decorators."""
    args: TextList = Field(default_factory=list)
    """Arguments of script, module or command."""
    code: str | None = Field(default=None, min_length=1)
    """Directory whose files, except ignored ones, are shipped with the job, at most 1 MiB packed (96 KiB in Kubeflow
    Pipelines); the ranks start in it."""
    env: Env
    """Variables for every process of the world."""
    resources_per_node: Resources = Field(default_factory=Resources)
    """Resources that each pod requests."""
    storage: list[Storage] = Field(default_factory=list)
    """Volumes mounted in every pod."""
    checkpoint_dir: AbsolutePath | None = None
    """Directory that outlives the run; the training code reads its path from STEPSET_CHECKPOINT_DIR, and also from
    STEPSET_RESUME_FROM if the directory contains a checkpoint, of this run or of an earlier one."""
    roles: list[Role] = Field(default_factory=list)
    """Pods outside the training world."""
    restart: Restart = Restart()
    """How often the gang is restarted, and after which failures."""
    deadline: Duration | None = None
    """The run fails if it is not over after this time; docs/targets.md states for each target when the count starts."""
    ttl: Duration | None = None
    """The run's objects are deleted this long after its end; docs/targets.md states by whom; default: kept."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """Nodes, queue, and gang scheduling of the pods."""
    network: Network = Network()
    """Ports and names by which the ranks find each other."""
    service_account: str | None = Field(default=None, min_length=1)
    """ServiceAccount of the pods; default: none, and no token is mounted."""
    security: Literal["restricted"] | None = None
    """Pod Security level that the pods meet; default: none, the image and pod_template determine their privileges."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of every object and pod of the run."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of every object and pod of the run."""
    pod_template: ApiMapping = Field(default_factory=dict)
    """Strategic merge patch that is applied to every pod template, for settings without a field in the job file."""
    agent: AgentChoice = "auto"
    """Whether stepset's agent wraps the command; `false` leaves the command unchanged."""

    @model_validator(mode="before")
    @classmethod
    def _derive_name(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("name") is not None:
            return data
        command = data.get("command")
        source = (
            (isinstance(data.get("script"), str) and PurePosixPath(data["script"]).stem)
            or (isinstance(data.get("module"), str) and data["module"].rsplit(".", 1)[-1])
            or (isinstance(command, list) and command and PurePosixPath(str(command[0])).name)
            or "train"
        )
        return {**data, "name": slug(str(source), _max_name_length(data.get("roles")))}

    @model_validator(mode="after")
    def _exactly_one_entry(self) -> TrainingJob:
        given = [entry for entry in ENTRIES if getattr(self, entry) is not None]
        # A TorchTune model has a built-in recipe.
        if not given and self.framework.kind == "torchtune":
            return self
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "none is given"
            raise ValueError(f"exactly one of {', '.join(ENTRIES)} is required; {found}")
        return self

    @model_validator(mode="after")
    def _group_names_are_distinct(self) -> TrainingJob:
        taken = {"node", "launcher"}
        for role in self.roles:
            if role.name in taken:
                raise ValueError(f"roles: the name {role.name!r} is taken; give each role a name of its own")
            taken.add(role.name)
        return self

    @model_validator(mode="after")
    def _roles_follow_earlier_ones(self) -> TrainingJob:
        before: list[str] = []
        for role in self.roles:
            if unknown := [name for name in role.after if name not in before]:
                known = f"those are {', '.join(before)}" if before else "there is none"
                raise ValueError(
                    f"roles.{role.name}.after: {unknown[0]!r} is not an earlier role with before: true ({known}); list"
                    " the roles in the order of their start"
                )
            if role.before:
                before.append(role.name)
        return self

    @model_validator(mode="after")
    def _elastic_bounds_hold_num_nodes(self) -> TrainingJob:
        if isinstance(self.framework, Torch) and self.framework.elastic:
            low, high = self.framework.elastic.bounds(self.num_nodes)
            if not low <= self.num_nodes <= high:
                raise ValueError(
                    f"num_nodes: {self.num_nodes} is outside framework.elastic's {low} to {high} nodes;"
                    " num_nodes is the initial number"
                )
        return self

    @model_validator(mode="after")
    def _template_resources_can_be_read(self) -> TrainingJob:
        if not self.pod_template:
            return self
        place = ("pod_template", "containers", NODE, "resources")
        try:
            self.node_resources()
        except ValidationError as error:
            raise validation_error(*((place + d["loc"], d["msg"]) for d in error.errors(include_url=False))) from error
        except ValueError as error:
            raise validation_error((place, str(error))) from error
        return self

    @model_validator(mode="after")
    def _name_within_budget(self) -> TrainingJob:
        budget = jobset_name_budget(self._group_sizes())
        if budget < 1:
            longest = max(self._group_sizes(), key=lambda size: len(size[0]))[0]
            raise ValueError(
                f"roles: {longest!r} has {len(longest)} characters, which leaves no room for the job's name in pod"
                " names of 63 characters; shorten it"
            )
        if len(self.name) > budget:
            raise ValueError(
                f"name: {self.name!r} has {len(self.name)} characters; with these pod groups at most {budget} fit into"
                " Kubernetes' 63-character pod names; shorten it"
            )
        return self

    def node_resources(self) -> Resources:
        """Returns the resources of a pod of the world: `resources_per_node`, merged with the pod template."""
        over = container_resources(self.pod_template)
        return merge_resources(self.resources_per_node, over) if over else self.resources_per_node

    @property
    def needs_launcher(self) -> bool:
        """Whether a separate launcher pod runs mpirun."""
        f = self.framework
        return (
            isinstance(f, MPI)
            or (isinstance(f, DeepSpeed) and f.launcher == "mpirun")
            or (isinstance(f, MLX) and f.backend == "mpi")
        )

    def _group_sizes(self) -> list[tuple[str, int]]:
        sizes = [("node", self.num_nodes), *((role.name, role.replicas) for role in self.roles)]
        return [*sizes, ("launcher", 1)] if self.needs_launcher else sizes

    def to_dict(self) -> dict[str, Any]:
        """Returns the job as the shortest equivalent job file."""
        short = self.model_dump(mode="json", exclude_defaults=True)
        options = {k: v for k, v in short.pop("framework", {}).items() if k != "kind"}
        kind = self.framework.kind
        return {"name": short.pop("name"), "framework": {"kind": kind, **options} if options else kind, **short}
