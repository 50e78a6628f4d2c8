"""POSIX shell code that derives variables and commands in a pod, from the variables of its platform."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Mapping

from stepset.plan.expand import references
from stepset.plan.values import Attempt, NodeRank, Part, PodHost, PortNumber, Text
from stepset.targets.names import InManifest, PodNames

PREFIX = "stepset_"
"""Prefix of the script's own variables; a job cannot set variables with this prefix."""
ATTEMPT = f"{PREFIX}attempt"
"""The shell variable with the number of earlier starts."""

_SHELL_NAME = re.compile(r"(?!BASH)[A-Za-z_][A-Za-z0-9_]*")
# Variables that dash, bash, busybox or mksh set themselves, refuse to set, or take for settings of the shell.
_OF_SHELLS = frozenset(
    {
        "_", "COMP_WORDBREAKS", "DIRSTACK", "ENV", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "FUNCNEST",
        "GROUPS", "HISTCMD", "IFS", "LINENO", "OLDPWD", "OPTARG", "OPTIND", "PGRP", "PIPESTATUS", "PPID", "PS1", "PS2",
        "PS4", "PWD", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "TMOUT", "UID", "USER_ID",
    }
)  # fmt: skip


def is_derived(value: Text) -> bool:
    """Whether a pod derives this text from its platform's variables."""
    return any(isinstance(part, (NodeRank, PodHost, PortNumber, Attempt)) for part in value.parts)


def refers_to(value: Text, variables: Container[str]) -> bool:
    """Whether the text refers to one of these variables as `$(NAME)`."""
    plain = (part for part in value.parts if isinstance(part, str))
    return any(found.name in variables for part in plain for found in references(part))


def quote(text: str, variables: Mapping[str, str]) -> str:
    """One shell word for `text`, for a script in a container's `command`.

    The kubelet expands the script before the shell runs, therefore `$` is doubled.

    Args:
        text: a text in which `$(NAME)` and `$$` have the meaning of Kubernetes.
        variables: name -> the shell variable with its value; references to other names stay as they are.

    >>> quote("it's $(A) of $(B)", {"A": "A"})
    '\\'it\\'"\\'"\\'s \\'"${A}"\\' of $$(B)\\''
    """
    words, last = [], 0
    for start, end, name in references(text):
        if name is not None and name not in variables:
            continue
        words.append(_literal(text[last:start]))
        words.append(_literal("$") if name is None else f'"${{{variables[name]}}}"')
        last = end
    words.append(_literal(text[last:]))
    return "".join(words) or "''"


def _literal(text: str) -> str:
    return shlex.quote(text).replace("$", "$$") if text else ""


def derive(value: Text, names: PodNames, cluster_domain: str, variables: Mapping[str, str]) -> str:
    """A shell word for a text of the plan, derived from POD_NAME, SVC_NAME, POD_PORT, POD_NAMESPACE and `variables`."""
    in_manifest = InManifest(names)

    def one(part: Part) -> str:
        match part:
            case NodeRank():
                return '"${POD_NAME##*-}"'
            case Attempt():
                return f'"${{{ATTEMPT}}}"'
            case PodHost(_, index):
                return f'"${{POD_NAME%-*}}-{index}.${{SVC_NAME}}.${{POD_NAMESPACE}}.svc."{_literal(cluster_domain)}'
            case PortNumber("master"):
                return '"${POD_PORT}"'
        return quote(in_manifest(part), variables)

    return "".join(one(part) for part in value.parts) or "''"


def is_shell_name(name: str) -> bool:
    """Whether a shell passes a variable of this name to its commands; Kubernetes also allows '-' and '.'."""
    return bool(_SHELL_NAME.fullmatch(name)) and name not in _OF_SHELLS


def is_settings_name(name: str) -> bool:
    """Whether a shell would take a variable of this name for a setting of its own."""
    return not is_shell_name(name) and name.replace("_", "").isalnum()
