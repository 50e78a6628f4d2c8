"""The options of each framework: the keys beside `kind` in the job file's `framework`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from stepset.spec.base import AbsolutePath, JobModel, Switch, Whole
from stepset.spec.resources import Resources
from stepset.spec.scalars import as_text


def _one_setting_each(conf: dict[str, str]) -> dict[str, str]:
    """Rejects settings that torchrun would misread, because it receives them joined as `key=value,key=value`.

    Source: torch 2.15 torch/distributed/elastic/rendezvous/utils.py, _parse_rendezvous_config.
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
    """Torch training that continues while nodes join and leave."""

    min_nodes: Whole | None = Field(default=None, ge=1)
    """Minimum number of nodes with which training continues; default: max_nodes."""
    max_nodes: Whole | None = Field(default=None, ge=1)
    """Maximum number of nodes; default: min_nodes, or num_nodes when neither is given."""
    max_restarts: Whole = Field(default=3, ge=0)
    """How often torchrun restarts its workers after one of them failed (PET_MAX_RESTARTS)."""
    rdzv_id: str | None = Field(default=None, min_length=1)
    """Rendezvous id; default: random for each run, so that no other process can guess it."""
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
        """Returns (min, max) nodes; a missing bound equals the other one, two missing bounds equal `num_nodes`.

        Source: kubeflow/training-operator release-1.9 pytorch_defaults.go (setElasticPolicy).
        """
        return (self.min_nodes or self.max_nodes or num_nodes, self.max_nodes or self.min_nodes or num_nodes)


class Torch(JobModel):
    """PyTorch: torchrun by default."""

    kind: Literal["torch"] = "torch"
    launcher: Literal["torchrun", "none"] = "torchrun"
    """`torchrun` starts the ranks of a node; with `none` stepset starts the script itself, once per rank."""
    elastic: Elastic | None = None
    """Settings for a world whose size may change; default: the size is fixed."""
    env_layer: Literal["launcher", "worker", "both"] | None = None
    """Variables of the pods: PET_* (launcher), RANK etc. (worker), or both; default: launcher, or worker for `none`."""

    @model_validator(mode="after")
    def _elastic_needs_torchrun(self) -> Torch:
        if self.elastic and self.launcher == "none":
            raise ValueError("elastic needs launcher 'torchrun': a script without a launcher cannot re-form the world")
        if self.launcher == "none" and self.env_layer == "launcher":
            raise ValueError("env_layer 'launcher' sets PET_*, which only launcher 'torchrun' reads; leave it out")
        return self


class TorchTune(JobModel):
    """TorchTune recipes, launched by `tune run`."""

    kind: Literal["torchtune"] = "torchtune"
    model: str | None = Field(default=None, min_length=1)
    """Model with a built-in recipe and config: llama3_2/1B, llama3_2/3B, llama3_3/70B, qwen2_5/1.5B."""
    recipe: str | None = Field(default=None, min_length=1)
    """Recipe name or file; default: chosen from model, nodes, devices and args."""
    config: str | None = Field(default=None, min_length=1)
    """Config name or file; default: chosen like the recipe."""

    @model_validator(mode="after")
    def _recipe_with_config(self) -> TorchTune:
        if bool(self.recipe) != bool(self.config):
            raise ValueError("recipe and config belong together; give both, or only model")
        return self


class DeepSpeed(JobModel):
    """DeepSpeed: torchrun by default."""

    kind: Literal["deepspeed"] = "deepspeed"
    launcher: Literal["torchrun", "deepspeed", "mpirun"] = "torchrun"
    """`deepspeed` starts its own launcher in every pod with --no_ssh; `mpirun` starts ranks over ssh."""


class MPI(JobModel):
    """Any program started by mpirun."""

    kind: Literal["mpi"] = "mpi"
    implementation: Literal["openmpi", "intel", "mpich"] = "openmpi"
    """The MPI implementation of the image's mpirun."""
    launch: Literal["auto", "mpirun", "command"] = "auto"
    """What starts the ranks: `mpirun`, which stepset writes before the command; or the `command` itself. `auto` means
    `command` if the command names a launcher or is a shell script, else `mpirun`."""
    run_launcher_as_node: Switch = False
    """Whether the launcher pod is one of the num_nodes nodes."""
    launcher_resources: Resources = Field(default_factory=Resources)
    """Resources of a launcher that is not a node; default: none are requested."""
    ssh_port: Whole = Field(default=2222, ge=1, le=65535)
    """Port of the nodes' ssh servers."""
    ssh_auth_mount_path: AbsolutePath = "/home/mpiuser/.ssh"
    """Directory of the ssh keys, in the home directory of the image's user."""

    @model_validator(mode="after")
    def _resources_of_a_separate_launcher(self) -> MPI:
        if self.run_launcher_as_node and self.launcher_resources != Resources():
            raise ValueError(
                "launcher_resources: with run_launcher_as_node the launcher has resources_per_node; leave one out"
            )
        return self


class MLX(JobModel):
    """MLX: ring over TCP by default."""

    kind: Literal["mlx"] = "mlx"
    backend: Literal["ring", "mpi"] = "ring"
    """How the ranks communicate."""


class JAX(JobModel):
    """JAX: one process per node."""

    kind: Literal["jax"] = "jax"


class XGBoost(JobModel):
    """XGBoost with its tracker on node 0."""

    kind: Literal["xgboost"] = "xgboost"


class Plain(JobModel):
    """Any command in every pod; stepset sets no training environment."""

    kind: Literal["plain"] = "plain"


Framework = Annotated[Torch | TorchTune | DeepSpeed | MPI | MLX | JAX | XGBoost | Plain, Field(discriminator="kind")]
KINDS = ("torch", "torchtune", "deepspeed", "mpi", "mlx", "jax", "xgboost", "plain")
