"""Reads the pod templates of a workload, and the names of the priority classes and ConfigMaps in the templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepset.targets.workload_kinds import WORKLOAD_KINDS
from stepset.unstructured import part, rows, text

_PATHS = {(each.templates.group, each.templates.kind): each.template_path for each in WORKLOAD_KINDS.values()}


def template_path(found: Mapping[str, Any]) -> str | None:
    """Returns the path of the pod templates in an object. `[]` follows the name of a list.

    Returns "" for a pod, which is its own template, and None for an object without pod templates.
    """
    if text(found, "kind") == "Pod":
        return ""
    return _PATHS.get((text(found, "apiVersion").partition("/")[0], text(found, "kind")))


def templates_of(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the pod templates in an object, one for each group. For a pod, returns the pod itself.

    The object can be an object of the server with missing or invalid fields. The template at such a field is empty.
    """
    path = template_path(found)
    if not path:
        return [] if path is None else [found]
    outer, many, inner = path.partition("[].")
    if not many:
        return [part(found, *path.split("."))]
    *parents, name = outer.split(".")
    return [part(row, *inner.split(".")) for row in rows(part(found, *parents), name)]


def priority_classes(found: Mapping[str, Any]) -> list[str]:
    """Returns the names of the PriorityClasses in the pod templates of an object, each name once."""
    names = (text(part(template, "spec"), "priorityClassName") for template in templates_of(found))
    return list(dict.fromkeys(name for name in names if name))


def own_config_maps(spec: object, run: str) -> list[str]:
    """Returns the names of the ConfigMaps of a run in the volumes of a workload's spec, each name once.

    The name of a ConfigMap of the run begins with the name of the run. All other ConfigMaps belong to the user.
    """
    names = (text(part(volume, "configMap"), "name") for volume in volumes_in(spec))
    return list(dict.fromkeys(name for name in names if name.startswith(f"{run}-")))


def volumes_in(spec: object) -> Iterator[Mapping[str, Any]]:
    """Yields the volumes of all pod templates in a workload's spec."""
    children = spec.values() if isinstance(spec, Mapping) else spec if isinstance(spec, list) else ()
    for child in children:
        yield from volumes_in(child)
    yield from rows(spec, "volumes") if isinstance(spec, Mapping) else ()
