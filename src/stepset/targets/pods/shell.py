"""Variables and commands as POSIX shell, for pods that derive them themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable

from stepset.plan.values import NodeRank, Part, PodHost, PortNumber, Text
from stepset.targets.names import InManifest, PodNames

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")

_SHELL_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def is_derived(value: Text) -> bool:
    """Whether a pod derives this text from its platform's variables."""
    return any(isinstance(part, (NodeRank, PodHost, PortNumber)) for part in value.parts)


def refers_to(value: Text, variables: Container[str]) -> bool:
    """Whether the text refers to one of these variables as `$(NAME)`."""
    plain = (part for part in value.parts if isinstance(part, str))
    return any(match.group(1) in variables for part in plain for match in _REFERENCE.finditer(part))


def quote(text: str, variables: Container[str]) -> str:
    """One shell word for `text`, in which `$(NAME)` expands a known variable as in Kubernetes.

    >>> quote("it's $(A) of $(B)", {"A"})
    '\\'it\\'"\\'"\\'s \\'"${A}"\\' of $(B)\\''
    """
    words, last = [], 0
    for match in _REFERENCE.finditer(text):
        name = match.group(1)
        if name is not None and name not in variables:
            continue
        words.append(_literal(text[last : match.start()]))
        words.append(_literal("$") if name is None else f'"${{{name}}}"')
        last = match.end()
    words.append(_literal(text[last:]))
    return "".join(words) or "''"


def _literal(text: str) -> str:
    return shlex.quote(text) if text else ""


def derive(value: Text, names: PodNames, cluster_domain: str, variables: Container[str]) -> str:
    """A shell word for a text of the plan, derived from POD_NAME, SVC_NAME, POD_PORT, POD_NAMESPACE and `variables`."""
    in_manifest = InManifest(names)

    def one(part: Part) -> str:
        match part:
            case NodeRank():
                return '"${POD_NAME##*-}"'
            case PodHost(_, index):
                return f'"${{POD_NAME%-*}}-{index}.${{SVC_NAME}}.${{POD_NAMESPACE}}.svc."{_literal(cluster_domain)}'
            case PortNumber("master"):
                return '"${POD_PORT}"'
        return quote(in_manifest(part), variables)

    return "".join(one(part) for part in value.parts) or "''"


def is_shell_name(name: str) -> bool:
    """Whether a shell variable can have this name; Kubernetes also allows '-' and '.'."""
    return bool(_SHELL_NAME.match(name))


def exports(rows: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """(lines that export the variables, prefix of a command for names that a shell does not allow)."""
    pairs = list(rows)
    lines = [f"export {name}={word}" for name, word in pairs if is_shell_name(name)]
    words = [f"{name}={word}" for name, word in pairs if not is_shell_name(name)]
    return lines, ["env", *words] if words else []
