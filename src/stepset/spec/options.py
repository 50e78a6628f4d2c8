"""The models of the field `framework`. Each framework has its own model with its own options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from stepset.spec.base import AbsolutePath, JobModel, Switch, Whole, did_you_mean, nearest
from stepset.spec.resources import Resources
from stepset.spec.scalars import as_text


def _one_setting_each(conf: dict[str, str]) -> dict[str, str]:
    """Returns `conf`. Raises ValueError if torchrun could not parse a setting, or if `conf` contains `is_host`.

    torchrun gets all settings as one string of the form `key=value,key=value`. Therefore keys and values must not
    contain commas (torch 2.15 torch/distributed/elastic/rendezvous/utils.py, _parse_rendezvous_config).
    """
    if "is_host" in conf:
        raise ValueError("is_host is set by stepset, 1 on node 0 and 0 elsewhere; leave it out")
    for key, value in conf.items():
        if not key.strip() or set(key) & set(",="):
            raise ValueError(f"{key!r} is not the name of a setting; write one such as read_timeout")
        if not value.strip() or "," in value:
            raise ValueError(f"{key}: {value!r} cannot be passed to torchrun; give one value, without a comma")
    return conf


RendezvousValue = Annotated[
    str, BeforeValidator(as_text), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})
]


class Elastic(JobModel):
    """The options of an elastic job. The ranks continue when nodes join or leave."""

    min_nodes: Whole | None = Field(default=None, ge=1)
    """The minimum number of nodes with which training continues. The default is max_nodes if max_nodes is given, and
    num_nodes otherwise."""
    max_nodes: Whole | None = Field(default=None, ge=1)
    """The maximum number of nodes. The default is min_nodes if min_nodes is given, and num_nodes otherwise."""
    max_restarts: Whole = Field(default=3, ge=0)
    """The maximum number of times that torchrun restarts its workers after a worker has failed (PET_MAX_RESTARTS)."""
    rdzv_id: str | None = Field(default=None, min_length=1)
    """The rendezvous ID. By default, each run has a random ID."""
    rdzv_conf: Annotated[dict[str, RendezvousValue], AfterValidator(_one_setting_each)] = Field(default_factory=dict)
    """Further rendezvous settings, such as read_timeout."""

    @model_validator(mode="after")
    def _min_within_max(self) -> Elastic:
        if self.min_nodes and self.max_nodes and self.min_nodes > self.max_nodes:
            raise ValueError(
                f"min_nodes {self.min_nodes} is more than max_nodes {self.max_nodes}; lower it or raise max_nodes"
            )
        return self

    def bounds(self, num_nodes: int) -> tuple[int, int]:
        """Returns the minimum and the maximum number of nodes.

        If only one of `min_nodes` and `max_nodes` is given, both numbers are equal to this field. If neither is given,
        both numbers are `num_nodes`.
        Source: kubeflow/training-operator release-1.9 pytorch_defaults.go (setElasticPolicy).
        """
        return (self.min_nodes or self.max_nodes or num_nodes, self.max_nodes or self.min_nodes or num_nodes)


class FrameworkOptions(JobModel):
    """The base of the models. Each model also has a field `kind`, whose default is the name of the framework."""

    needs_program: ClassVar[bool] = True
    """Whether a job must name its program, for example with `script`. False if the framework has its own programs."""

    @property
    def mpirun(self) -> MPI | None:
        """The options with which mpirun starts the ranks from a launcher pod. None if mpirun does not start them."""
        return None


class NodeLaunched(FrameworkOptions):
    """The option of frameworks whose launcher, such as torchrun, runs in every pod."""

    launch: Literal["auto", "command"] = "auto"
    """What starts the ranks of a job with a `command`. With `command`, the command itself starts the ranks, and stepset
    neither changes nor checks the command. With `auto`, the command itself starts the ranks if the command contains a
    launcher, is a shell script, or may connect the nodes itself. Otherwise, stepset puts its launcher before the
    command."""

    @property
    def node_launcher(self) -> str | None:
        """The launcher that starts the ranks in each node, unless the job's command starts them.

        None if the agent or mpirun starts the ranks, or with `launch: command`.
        """
        launcher = getattr(self, "launcher", "torchrun")
        return None if self.launch == "command" or launcher in ("none", "mpirun") else launcher


class Torch(NodeLaunched):
    """PyTorch. By default, torchrun starts the ranks."""

    kind: Literal["torch"] = "torch"
    launcher: Literal["torchrun", "none"] = "torchrun"
    """What starts the ranks of a node. With `none`, stepset itself starts the script once for each rank."""
    elastic: Elastic | None = None
    """The options of an elastic job, whose number of nodes may change. By default, the number of nodes is fixed."""
    env_layer: Literal["launcher", "worker", "both"] | None = None
    """Which variables the pods get. `launcher` means the variables of torchrun, such as PET_NNODES. `worker` means the
    variables of a training process, such as RANK. The default is `launcher` if torchrun starts the ranks, and `worker`
    if stepset starts them."""

    @model_validator(mode="after")
    def _elastic_needs_torchrun(self) -> Torch:
        if self.elastic and self.launcher == "none":
            raise ValueError("elastic needs launcher 'torchrun': a script without a launcher cannot re-form the world")
        if self.launcher == "none" and self.launch == "command":
            raise ValueError(
                "launch 'command' lets the command start the ranks, which launcher 'none' starts; give one"
            )
        if self.launcher == "none" and self.env_layer == "launcher":
            raise ValueError("env_layer 'launcher' sets PET_*, which only launcher 'torchrun' reads; leave it out")
        return self


class TorchTune(NodeLaunched):
    """TorchTune recipes, which `tune run` starts."""

    needs_program: ClassVar[bool] = False  # TorchTune has a recipe for each model

    kind: Literal["torchtune"] = "torchtune"
    model: str | None = Field(default=None, min_length=1)
    """A model for which TorchTune has a built-in recipe and config. One of llama3_2/1B, llama3_2/3B, llama3_3/70B and
    qwen2_5/1.5B."""
    recipe: str | None = Field(default=None, min_length=1)
    """The name or the file of a recipe. By default, stepset selects the recipe. The selection depends on the model, the
    number of nodes, the devices and the args."""
    config: str | None = Field(default=None, min_length=1)
    """The name or the file of a config. By default, stepset selects the config together with the recipe."""

    @model_validator(mode="after")
    def _recipe_with_config(self) -> TorchTune:
        if bool(self.recipe) != bool(self.config):
            raise ValueError("recipe and config belong together; give both, or only model")
        return self


class DeepSpeed(NodeLaunched):
    """DeepSpeed. By default, torchrun starts the ranks."""

    kind: Literal["deepspeed"] = "deepspeed"
    launcher: Literal["torchrun", "deepspeed", "mpirun"] = "torchrun"
    """What starts the ranks. `deepspeed` is DeepSpeed's launcher, which runs in every pod with --no_ssh. `mpirun` runs
    in a launcher pod and starts the ranks over ssh."""

    @property
    def mpirun(self) -> MPI | None:
        """The options with which mpirun starts the ranks, if `launcher` is `mpirun`."""
        return MPI(launch=self.launch) if self.launcher == "mpirun" else None


class MPI(FrameworkOptions):
    """Any program that mpirun starts."""

    kind: Literal["mpi"] = "mpi"
    implementation: Literal["openmpi", "intel", "mpich"] = "openmpi"
    """The MPI implementation of the mpirun in the image."""
    launch: Literal["auto", "mpirun", "command"] = "auto"
    """What starts the ranks. With `mpirun`, stepset inserts mpirun before the command. With `command`, the command
    itself starts the ranks. With `auto`, the command itself starts the ranks if the command contains a launcher or
    is a shell script. Otherwise, stepset inserts mpirun."""
    run_launcher_as_node: Switch = False
    """Whether the launcher pod is one of the num_nodes nodes."""
    launcher_resources: Resources = Field(default_factory=Resources)
    """The resources of a launcher pod that is not a node. By default, the launcher pod requests no resources."""
    ssh_port: Whole = Field(default=2222, ge=1, le=65535)
    """The port on which the ssh servers of the nodes listen."""
    ssh_auth_mount_path: AbsolutePath = "/home/mpiuser/.ssh"
    """The directory in which the pods mount the ssh keys. Usually, this is the directory `.ssh` in the home
    directory of the image's user."""

    @property
    def mpirun(self) -> MPI | None:
        """These options. mpirun starts the ranks of every MPI job."""
        return self

    @model_validator(mode="after")
    def _resources_of_a_separate_launcher(self) -> MPI:
        if self.run_launcher_as_node and self.launcher_resources != Resources():
            raise ValueError(
                "launcher_resources: with run_launcher_as_node the launcher has resources_per_node; leave one out"
            )
        return self


class MLX(FrameworkOptions):
    """MLX. By default, the ranks form a ring of TCP connections."""

    kind: Literal["mlx"] = "mlx"
    backend: Literal["ring", "mpi"] = "ring"
    """How the ranks communicate. With `mpi`, mpirun starts the ranks."""

    @property
    def mpirun(self) -> MPI | None:
        """The options with which mpirun starts the ranks, if `backend` is `mpi`."""
        return MPI() if self.backend == "mpi" else None


class JAX(FrameworkOptions):
    """JAX, with one process per node."""

    kind: Literal["jax"] = "jax"


class XGBoost(FrameworkOptions):
    """XGBoost. Its tracker runs on node 0."""

    kind: Literal["xgboost"] = "xgboost"


class LightGBM(FrameworkOptions):
    """LightGBM. Its machines connect over TCP sockets."""

    kind: Literal["lightgbm"] = "lightgbm"


class Plain(FrameworkOptions):
    """Any command, which every pod runs. stepset sets no variables of a training framework."""

    kind: Literal["plain"] = "plain"


Framework = Annotated[
    Torch | TorchTune | DeepSpeed | MPI | MLX | JAX | XGBoost | LightGBM | Plain, Field(discriminator="kind")
]
MODELS: Mapping[str, type[FrameworkOptions]] = {
    model.model_fields["kind"].default: model for model in get_args(get_args(Framework)[0])
}
"""A mapping from the values of `framework.kind` to the models, in the order of `Framework`."""
KINDS = tuple(MODELS)
_RUN_BY_TORCH = frozenset(
    {
        "accelerate", "ddp", "fsdp", "hf", "hugging-face", "huggingface", "lightning", "pytorch", "pytorch-lightning",
        "torchrun", "transformers", "trl",
    }
)  # fmt: skip
"""Names of libraries and launchers whose training code runs with the framework `torch`."""


def framework_hint(kind: str) -> str:
    """Returns a hint for an unknown value of `framework.kind`.

    >>> framework_hint("Lightning"), framework_hint("jaxx")
    ("did you mean 'torch'?", "did you mean 'jax'?")
    """
    return did_you_mean("torch") if kind.lower().replace("_", "-") in _RUN_BY_TORCH else nearest(kind, KINDS)
