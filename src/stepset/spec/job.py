"""`TrainingJob`, the model of a job. Its field names are those of the job file, the CLI and all operators."""

from __future__ import annotations

import re
import warnings
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from stepset.defaults import ENTRIES
from stepset.safe_names import slug
from stepset.spec.api_values import ApiMapping
from stepset.spec.base import (
    AbsolutePath,
    Command,
    Count,
    JobModel,
    TextList,
    check_size,
    problems_of_keys,
    validation_error,
    with_other_problems,
)
from stepset.spec.environ import Env
from stepset.spec.misplaced import hint_elsewhere, object_problem
from stepset.spec.names import jobset_name_budget, name_in, program_name
from stepset.spec.options import KINDS, Framework, Torch, framework_hint
from stepset.spec.parts import (
    AgentChoice,
    Code,
    CodeVolume,
    HangChoice,
    HangTimes,
    Label,
    Network,
    Restart,
    Role,
    Scheduling,
    Storage,
)
from stepset.spec.quantity import Duration
from stepset.spec.requirement import RequirementList
from stepset.spec.resources import Resources, merge_resources
from stepset.spec.scalars import number, plain, shortened
from stepset.spec.template import container_resources, node_place

_INTEGER = TypeAdapter(int)
"""Validates whole numbers as pydantic does in all other fields. For example, 2.0 is accepted."""


def _framework_mapping(value: Any) -> Any:
    if not isinstance(value, (str, dict)):
        return value
    if isinstance(value, dict) and "kind" not in value:
        if kind := next((key for key in value if key in KINDS), None):
            raise ValueError(f"{kind!r} is a kind; write its options beside it: framework: {{kind: {kind}, ...}}")
        raise validation_error((("kind",), f"is missing; it must be one of {', '.join(KINDS)}"))
    kind = value if isinstance(value, str) else value["kind"]
    if kind not in KINDS:
        raise ValueError(f"unknown framework {kind!r}; {framework_hint(str(kind))}")
    return {"kind": value} if isinstance(value, str) else value


def _procs_per_node(value: Any) -> Any:
    if value in ("auto", "cpu", "gpu"):
        return value
    unknown = ValueError(f"{value!r} is not known; use auto, cpu, gpu, or a whole number of 1 or more")
    if isinstance(plain(value), bool):
        raise unknown
    try:
        count = _INTEGER.validate_python(number(value))
    except ValidationError:
        raise unknown from None
    if count < 1:
        raise unknown
    return check_size(count)


_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*")
"""The pattern of `package.module`, `module.function` and `module:function`."""


def _not_a_file(text: str) -> str:
    """Returns `text`. Raises ValueError if the text is the path of a Python file."""
    if text.endswith(".py") and not any(space in text for space in "\n;#'\""):
        raise ValueError(f"{text!r} is the path of a file; give it as script instead")
    return text


def _compiles(program: str) -> str:
    """Returns the source text of a program.

    Raises ValueError if the text is not a Python program, or if it is only the name of a module or of a function.
    """
    if _REFERENCE.fullmatch(program):
        raise ValueError(
            f"{program!r} is a name, not the source of a program; to run a module, give its name as module; to call a"
            " function, write a program that imports and calls it"
        )
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(program, "function", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = shortened("".join(program.splitlines()[(error.lineno or 1) - 1 :][:1]).strip())
        raise ValueError(f"line {error.lineno}: {error.msg}: {line!r}; correct the program") from error
    except (RecursionError, MemoryError, OverflowError) as error:
        raise ValueError("the program is too deeply nested for Python; simplify it") from error
    return program


def _without_references(name: str) -> str:
    """Returns a path or a name. Raises ValueError if it contains a reference `$(NAME)` or `$$`.

    Kubernetes would replace the reference, because the name becomes a part of a command or of a variable.
    """
    if "$(" in name or "$$" in name:
        raise ValueError(
            f"{name!r} contains '$(' or '$$', which Kubernetes replaces in commands and variables; use another path"
        )
    return name


ScriptPath = Annotated[str, AfterValidator(_without_references)]
CheckpointPath = Annotated[AbsolutePath, AfterValidator(_without_references)]
Program = Annotated[str, AfterValidator(_not_a_file), AfterValidator(_compiles)]
"""The source text of a Python program."""
ModuleName = Annotated[str, AfterValidator(_not_a_file), AfterValidator(_without_references)]
ProcsPerNode = Annotated[
    Any,
    BeforeValidator(_procs_per_node),
    WithJsonSchema({"anyOf": [{"enum": ["auto", "cpu", "gpu"]}, {"type": "integer", "minimum": 1}]}),
]


def _max_name_length(roles: Any) -> int:
    """Returns the maximum length of the name that stepset derives for a job.

    Long names of roles reduce this maximum.
    """
    rows = roles if isinstance(roles, (list, tuple)) else ()  # the model rejects other values later
    names = [role.get("name") if isinstance(role, dict) else getattr(role, "name", "") for role in rows]
    room = jobset_name_budget([("launcher", 1), *((str(name), 1000) for name in names)])
    return min(40, max(1, room))


PARTS: dict[str, type[JobModel]] = {"scheduling": Scheduling, "network": Network, "restart": Restart}
"""The parts of a job whose fields are often written at the top level of a job file."""


class TrainingJob(JobModel):
    """A distributed training job. The fields state what to run, on how many nodes, and with which resources.

    >>> TrainingJob(framework="torch", num_nodes=2, script="train.py").name
    'train'
    """

    name: Label
    """The name of the job, a DNS-1035 label. By default, the name is derived from script, module or command."""
    framework: Annotated[Framework, BeforeValidator(_framework_mapping)] = Torch()
    """The framework of the training code. The value is the kind of a framework, or a mapping with the kind and the
    options of the framework."""
    num_nodes: Count = Field(default=1, ge=1)
    """The number of pods that train."""
    procs_per_node: ProcsPerNode = "auto"
    """The number of processes per node. With auto, cpu or gpu, stepset derives the number from resources_per_node
    (docs/job-file.md)."""
    image: str | None = Field(default=None, min_length=1)
    """The container image. It is required on Kubernetes and ignored in local runs."""
    script: ScriptPath | None = Field(default=None, min_length=1)
    """The path of the Python file to run, relative to the job file."""
    module: ModuleName | None = Field(default=None, min_length=1)
    """The Python module to run, as with `python -m`."""
    command: Command | None = Field(default=None, min_length=1)
    """The program to run and its arguments, as a list."""
    function: Program | None = Field(default=None, min_length=1)
    """The source text of a Python program. The decorators set this field."""
    args: TextList = Field(default_factory=list)
    """The arguments of script, module or command. `$(NAME)` is replaced with the value of the variable NAME, and `$$`
    with `$`."""
    code: Code | None = None
    """The directory with the job's code. The ranks start in this directory. A string is the path of a local directory.
    stepset copies the files of this directory to the pods. It omits some files, such as files that an ignore file
    (`.stepsetignore` or `.gitignore`) excludes (docs/security.md). On a cluster, the compressed files must not exceed
    1 MiB (less in Kubeflow Pipelines). A mapping specifies a volume, which the pods mount read-only."""
    requirements: RequirementList = Field(default_factory=list)
    """The Python packages (PEP 508) that uv installs before the ranks start. uv does not install packages that the
    image already contains. stepset adds the `dependencies` in the metadata of a script (PEP 723) to this list
    (docs/kubernetes.md)."""
    env: Env
    """The environment variables of every training process."""
    resources_per_node: Resources = Field(default_factory=Resources)
    """The resources that each node requests."""
    storage: list[Storage] = Field(default_factory=list)
    """The volumes that every pod mounts."""
    checkpoint_dir: CheckpointPath | None = None
    """The path of a directory that still exists after the run. In a job file, the path must be absolute. The training
    code reads this path from STEPSET_CHECKPOINT_DIR. If the directory contains a checkpoint of this run or of an
    earlier run, stepset also sets STEPSET_RESUME_FROM to this path."""
    roles: list[Role] = Field(default_factory=list)
    """Additional groups of pods that do not train."""
    restart: Restart = Restart()
    """The maximum number of restarts of the gang, and the failures after which the gang restarts."""
    hang: HangChoice = HangTimes()
    """When stepset examines ranks that make no progress, reports which rank blocks the others, and may end the hang.
    With `off`, stepset does not look for such ranks, and starts the ranks without its hook. The field has no effect
    without the agent."""
    deadline: Duration | None = None
    """The maximum duration of the run. If the run has not finished after this time, the run fails. The target
    determines when this time begins (docs/targets.md)."""
    termination_grace_period: Duration = 60
    """The time after which a stopped pod or local node is killed. The ranks get SIGTERM at once. They get SIGKILL 10 s
    before the end of this time, or after half of a time of less than 20 s. On a cluster, the field sets
    `terminationGracePeriodSeconds`, unless `pod_template` sets it."""
    ttl: Duration | None = None
    """The time between the end of the run and the deletion of its objects (docs/targets.md). By default, the objects
    are not deleted."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """The placement, the queue and the gang scheduling of the pods."""
    network: Network = Network()
    """The ports and DNS names with which the ranks connect to each other."""
    service_account: str | None = Field(default=None, min_length=1)
    """The ServiceAccount of the pods. By default, stepset sets no ServiceAccount and the pods mount no token."""
    security: Literal["restricted"] | None = None
    """The Pod Security level that the pods meet. By default, the image and pod_template determine the privileges of the
    pods."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels for every object and pod of the run."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations for every object and pod of the run."""
    pod_template: ApiMapping = Field(default_factory=dict)
    """A strategic merge patch for the template of every pod. Use it for settings that have no field in the job file."""
    agent: AgentChoice = "auto"
    """Whether stepset's agent wraps the command. With `false`, the command stays unchanged. With `auto`, the agent
    wraps the command if the job needs Python in the image."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_unknown_keys_with_other_problems(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if problem := object_problem(data):
            raise validation_error(((), problem))
        unknown = problems_of_keys(cls, data, lambda key: hint_elsewhere(key, PARTS))
        if not unknown:
            return validate(data)
        try:
            validate({key: value for key, value in data.items() if key in cls.model_fields})
        except ValidationError as error:
            raise with_other_problems(unknown, error) from error
        raise validation_error(*(((), text) for text in unknown))

    @model_validator(mode="before")
    @classmethod
    def _derive_name(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("name") is not None:
            return data
        command, script = data.get("command"), data.get("script")
        path = PurePosixPath(script if isinstance(script, str) else "")
        source = (
            name_in((*path.parent.parts, path.stem))
            or (isinstance(data.get("module"), str) and name_in(data["module"].split(".")))
            or (isinstance(command, list) and command and program_name([str(word) for word in command]))
            or "train"
        )
        return {**data, "name": slug(str(source), _max_name_length(data.get("roles")))}

    @model_validator(mode="after")
    def _exactly_one_entry(self) -> TrainingJob:
        given = [entry for entry in ENTRIES if getattr(self, entry) is not None]
        if not given and not self.framework.needs_program:
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
        before: dict[str, None] = {}  # a dictionary keeps the order, and its lookups take constant time
        for role in self.roles:
            if unknown := [name for name in role.after if name not in before]:
                known = f"those are {', '.join(before)}" if before else "there is none"
                raise ValueError(
                    f"roles.{role.name}.after: {unknown[0]!r} is not an earlier role with before: true ({known}); list"
                    " the roles in the order of their start"
                )
            if role.before:
                before[role.name] = None
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
        place = (*node_place(self.pod_template).split("."), "resources")
        try:
            self.node_resources()
        except ValidationError as error:
            # The pod template cannot set `shm`, but its memory limit can be less than the `shm` of the job.
            found = [(d["loc"], d["msg"]) for d in error.errors(include_url=False)]
            raise validation_error(
                *(((("resources_per_node",) if loc == ("shm",) else place) + loc, text) for loc, text in found)
            ) from error
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

    @property
    def code_directory(self) -> str | None:
        """The local directory with the code. None if the job has no code, or if the code is on a volume."""
        return self.code if isinstance(self.code, str) else None

    @property
    def code_volume(self) -> CodeVolume | None:
        """The volume with the code. None if the code is not on a volume."""
        return self.code if isinstance(self.code, CodeVolume) else None

    @property
    def hang_times(self) -> HangTimes | None:
        """The times of the field `hang`. None if the value of the field is `off`."""
        return None if self.hang == "off" else self.hang

    def node_resources(self) -> Resources:
        """Returns the resources of a node.

        These are `resources_per_node`, merged with the resources of the training container in the pod template.
        """
        over = container_resources(self.pod_template)
        return merge_resources(self.resources_per_node, over) if over else self.resources_per_node

    @property
    def needs_launcher(self) -> bool:
        """Whether a separate launcher pod runs mpirun."""
        return self.framework.mpirun is not None

    def _group_sizes(self) -> list[tuple[str, int]]:
        sizes = [("node", self.num_nodes), *((role.name, role.replicas) for role in self.roles)]
        return [*sizes, ("launcher", 1)] if self.needs_launcher else sizes

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of the shortest job file that describes this job."""
        short = self.model_dump(mode="json", exclude_defaults=True)
        options = {k: v for k, v in short.pop("framework", {}).items() if k != "kind"}
        kind = self.framework.kind
        return {"name": short.pop("name"), "framework": {"kind": kind, **options} if options else kind, **short}
