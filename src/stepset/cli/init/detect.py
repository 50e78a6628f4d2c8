"""Detects the framework of a script from the modules that the script imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from stepset.frameworks import FRAMEWORKS


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


_RULES = sorted(
    ((rule, kind) for kind, framework in FRAMEWORKS.items() for rule in framework.imports),
    key=lambda each: ("first", "usual", "last").index(each[0].order),
)
"""The modules that determine the framework, each with the kind of its framework. The first match is used."""


def detect(tree: ast.AST) -> Detected:
    """Returns the framework of a parsed script. The framework is `plain` if the script imports no known framework.

    >>> detect(ast.parse("import torch.distributed as dist")).framework
    'torch'
    """
    found = set(_names(tree))
    for rule, kind in _RULES:
        if any(name == rule.module or name.startswith(f"{rule.module}.") for name in found):
            return Detected(kind, rule.module, rule.needs)
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
