"""Finds variables of the shell that affect frameworks. A run on a cluster does not receive variables of the shell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from stepset.backends.option_names import Interface
from stepset.spec.template import node_env_names

if TYPE_CHECKING:  # code that only reads the states of runs must not import pydantic
    from stepset.spec.job import TrainingJob

PREFIXES: Mapping[str, str] = {
    "ACCELERATE_": "https://huggingface.co/docs/accelerate, accelerate.state and accelerate.utils.launch",
    "CLEARML_": "https://clear.ml/docs, environment variables",
    "COMET_": "https://www.comet.com/docs, configuration",
    "CUBLAS_": "https://docs.nvidia.com/cuda/cublas, CUBLAS_WORKSPACE_CONFIG",
    "DS_": "https://www.deepspeed.ai, deepspeed.launcher",
    "FI_": "https://ofiwg.github.io/libfabric, fi_provider(7)",
    "FSDP_": "https://huggingface.co/docs/accelerate, FullyShardedDataParallelPlugin",
    "GLOO_": "https://docs.pytorch.org/docs/stable/distributed.html",
    "HF_": "https://huggingface.co/docs/huggingface_hub, environment variables",
    "HUGGINGFACE_": "https://huggingface.co/docs/huggingface_hub, environment variables",
    "JAX_": "https://docs.jax.dev, configuration options",
    "LT_": "https://lightning.ai/docs/fabric, lightning.fabric.cli",
    "MLFLOW_": "https://mlflow.org/docs, mlflow.environment_variables",
    "NCCL_": "https://docs.nvidia.com/deeplearning/nccl, environment variables",
    "NEPTUNE_": "https://docs.neptune.ai, environment variables",
    "OMP_": "https://www.openmp.org, specification 5.2, chapter 21",
    "PL_": "https://lightning.ai/docs/pytorch, lightning.pytorch",
    "PYTORCH_": "https://docs.pytorch.org/docs/stable/torch_environment_variables.html",
    "TOKENIZERS_": "https://github.com/huggingface/tokenizers, TOKENIZERS_PARALLELISM",
    "TORCH_": "https://docs.pytorch.org/docs/stable/torch_environment_variables.html",
    "TRANSFORMERS_": "https://huggingface.co/docs/transformers, installation",
    "WANDB_": "https://docs.wandb.ai, environment variables",
    "XLA_": "https://openxla.org/xla, XLA_FLAGS",
}
"""Maps the prefix of variables to the documentation of these variables.

The value is a string with a site, and a page or module of the site."""

_SHOWN = 20


def unpassed_variables(job: TrainingJob, environ: Mapping[str, str], interface: Interface) -> tuple[str, ...]:
    """Returns notes on variables of the shell. Frameworks read these variables, but the job does not set them.

    One note lists the names of the variables. Another note is about PYTHONPATH. The notes contain no values of
    variables. `interface` determines the names of options in the notes. If the job sets all of these variables, the
    result is empty.
    """
    given = {*job.env, *node_env_names(job.pod_template)}
    return (*_with_prefixes(given, environ, interface), *_modules(given, environ))


def _modules(given: Collection[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    if not environ.get("PYTHONPATH") or "PYTHONPATH" in given:
        return ()
    return (
        "env: the cluster does not get the modules of this shell's PYTHONPATH; code: DIR ships a directory, or install"
        " the modules in the image",
    )


def _with_prefixes(given: Collection[str], environ: Mapping[str, str], interface: Interface) -> tuple[str, ...]:
    names = sorted(name for name in environ if name.startswith(tuple(PREFIXES)) and name not in given)
    if not names:
        return ()
    flag = "--env NAME or " if interface == "cli" else ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"env: the cluster does not get these variables of this shell: {', '.join(names[:_SHOWN])}{more};"
        f" {flag}env in the job passes one; put tokens and keys into a Secret"
        " (env: {NAME: {secret, key}})",
    )
