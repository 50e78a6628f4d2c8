"""Creates POSIX shell code for the target `statefulset`.

The code derives the variables and the command of a pod from the variables that the platform sets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Mapping

from stepset.plan.expand import references
from stepset.plan.values import Attempt, NodeRank, Part, PodHost, PortNumber, Text
from stepset.targets.names import InManifest, PodNames

PREFIX = "stepset_"
"""The prefix of the script's internal variables. A job cannot set variables with this prefix."""
ATTEMPT = f"{PREFIX}attempt"
"""The shell variable that contains the number of earlier starts of the container."""

_SHELL_NAME = re.compile(r"(?!BASH)[A-Za-z_][A-Za-z0-9_]*")
# Variables that have a special meaning in some shells (dash, bash, busybox, mksh).
_OF_SHELLS = frozenset(
    {
        "_", "COMP_WORDBREAKS", "DIRSTACK", "ENV", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "FUNCNEST",
        "GROUPS", "HISTCMD", "IFS", "LINENO", "OLDPWD", "OPTARG", "OPTIND", "PGRP", "PIPESTATUS", "PPID", "PS1", "PS2",
        "PS4", "PWD", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "TMOUT", "UID", "USER_ID",
    }
)  # fmt: skip


def is_derived(value: Text) -> bool:
    """Returns whether a value contains placeholders that the shell code must derive."""
    return any(isinstance(part, (NodeRank, PodHost, PortNumber, Attempt)) for part in value.parts)


def refers_to(value: Text, variables: Container[str]) -> bool:
    """Returns whether a value contains a reference `$(NAME)` to one of the given variables."""
    plain = (part for part in value.parts if isinstance(part, str))
    return any(found.name in variables for part in plain for found in references(part))


def quote(text: str, variables: Mapping[str, str]) -> str:
    """Quotes a string as one word of a shell script in a container's `command`.

    The kubelet replaces references in the script before the shell runs. Therefore each `$` of the string is doubled.

    Args:
        text: a string in which `$(NAME)` and `$$` have the same meaning as in Kubernetes.
        variables: a mapping from NAME to the shell variable that contains the value of NAME. A reference `$(NAME)` to
            any other variable is not changed.

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
    """Converts a value of the plan to one word of a shell script.

    The word can refer to POD_NAME, SVC_NAME, POD_PORT, POD_NAMESPACE and to shell variables in `variables`.

    Args:
        cluster_domain: the DNS domain of the cluster.
        variables: a mapping from each NAME in references `$(NAME)` to the name of the shell variable that contains the
            value of NAME.
    """
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
    """Returns whether all shells pass a variable with this name to the commands that they run.

    Kubernetes allows names that contain `-` or `.`, but some shells do not pass variables with such names.
    """
    return bool(_SHELL_NAME.fullmatch(name)) and name not in _OF_SHELLS


def is_settings_name(name: str) -> bool:
    """Returns whether a shell may use a variable with this name as a setting, such as PS1."""
    return not is_shell_name(name) and name.replace("_", "").isalnum()
