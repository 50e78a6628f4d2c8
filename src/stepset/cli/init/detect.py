"""Detects the framework of a script from the modules that the script imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Detected:
    """The framework of a script.

    Args:
        framework: the kind of the framework, for example `torch`.
        module: the imported module that determines the framework; empty if no such module is imported.
        needs: what the script must do to join the training world.
    """

    framework: str
    module: str
    needs: str


_PROCESS_GROUP = "the script must call torch.distributed.init_process_group()"
_RULES = (
    ("deepspeed", "deepspeed", "the script must call deepspeed.init_distributed() or deepspeed.initialize()"),
    ("horovod", "mpi", "the script must call hvd.init()"),
    ("mpi4py", "mpi", "the ranks meet in MPI.COMM_WORLD"),
    ("lightning.fabric", "torch", "Fabric needs num_nodes, and devices equal to procs_per_node"),
    ("lightning_fabric", "torch", "Fabric needs num_nodes, and devices equal to procs_per_node"),
    ("lightning", "torch", "the Trainer needs num_nodes, and devices equal to procs_per_node"),
    ("pytorch_lightning", "torch", "the Trainer needs num_nodes, and devices equal to procs_per_node"),
    ("accelerate", "torch", "the script must create an Accelerator"),
    ("torch.distributed", "torch", _PROCESS_GROUP),
    ("mlx", "mlx", "the script must call mx.distributed.init()"),
    ("jax", "jax", "the script must call jax.distributed.initialize()"),
    ("xgboost", "xgboost", "the script must join the tracker, as xgboost.collective.CommunicatorContext does"),
    ("transformers", "torch", "the Trainer joins the process group by itself"),
    ("torch", "torch", _PROCESS_GROUP),
)
"""The rules that determine the framework. If several rules match, the first rule is used.

Each rule contains a module, the framework of scripts that import the module, and what the script must do to join the
training world."""


def detect(tree: ast.AST) -> Detected:
    """Returns the framework of a parsed script. The framework is `plain` if the script imports no known framework.

    >>> detect(ast.parse("import torch.distributed as dist")).framework
    'torch'
    """
    found = set(_names(tree))
    for module, framework, needs in _RULES:
        if any(name == module or name.startswith(f"{module}.") for name in found):
            return Detected(framework, module, needs)
    return Detected("plain", "", "the ranks are independent; STEPSET_NODE_RANK is the index of each")


def _names(tree: ast.AST) -> Iterator[str]:
    """Yields the full names of all imports of a script, and all attributes of `torch` that the script uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from [f"torch.{node.attr}"] if node.value.id == "torch" else []
