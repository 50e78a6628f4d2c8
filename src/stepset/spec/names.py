"""The rules of Kubernetes and JobSet for names, and the maximum length of a job's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from stepset.safe_names import LABEL_LIMIT, slug

DNS_1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_VALUED_OPTIONS = ("-X", "-W", "--check-hash-based-pycs")
"""The options of Python whose value is the next word."""
_LAST_OPTION = re.compile(r"-[bBdEhiIOPqRsSuvVx]*(?P<option>[cm])(?P<value>.*)", re.DOTALL)
"""Matches the last option of Python: `-c` or `-m`, possibly combined with other options, such as `-um`."""
_LAUNCHERS = (
    "mpi4py",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
"""The modules that start another program."""
_COMMON_NAMES = ("main", "__main__", "src", "..", "/")
"""Parts of names and paths that many programs have."""
_POD_SUFFIX = 6  # the length of the suffix "-xxxxx", which Kubernetes appends to the names of pods


def check_dns_1035(name: str) -> str:
    """Returns `name`. Raises ValueError if it is not a DNS-1035 label, which names of JobSets and Services must be."""
    if not DNS_1035.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a letter"
            f" (for example {slug(name)!r})"
        )
    if len(name) > LABEL_LIMIT:
        raise ValueError(f"{name!r} has {len(name)} characters; at most {LABEL_LIMIT} are allowed")
    return name


def jobset_name_budget(groups: Iterable[tuple[str, int]]) -> int:
    """Returns the maximum length of a JobSet's name.

    The name of a pod is `<jobset>-<group>-0-<index>-<5 random>`. This name must be a DNS label (kubernetes-sigs/jobset
    v0.12.0 pkg/webhooks/jobset_webhook.go:236-258).

    Args:
        groups: for each replicated job, its name and its number of pods.

    >>> jobset_name_budget([("node", 2)]), jobset_name_budget([("node", 100)]), jobset_name_budget([("launcher", 1)])
    (48, 47, 44)
    """
    return min(LABEL_LIMIT - len(f"-{name}-0-{count - 1}") - _POD_SUFFIX for name, count in groups)


def program_name(command: Sequence[str]) -> str:
    """Returns the name of the program that a command runs. For Python, this is the name of the script or module.

    >>> program_name(["/opt/bin/solver", "a.py"]), program_name(["python3", "-u", "src/pi.py", "--n", "3"])
    ('solver', 'pi')
    >>> program_name(["python3", "-m", "pkg.train"]), program_name(["python3", "-m", "mpi4py", "pi.py"])
    ('train', 'pi')
    >>> program_name(["python3", "-c", "print()"]), program_name(["python3", "train", "--data", "x.py"])
    ('python3', 'train')
    """
    program = PurePosixPath(command[0]).name
    if not re.fullmatch(r"python[0-9.]*", program):
        return program
    words = list(command[1:])
    while words:
        word = words.pop(0)
        if word in _VALUED_OPTIONS:
            words = words[1:]
        elif not word.startswith("-"):
            return PurePosixPath(word).name.removesuffix(".py") or program
        elif found := _LAST_OPTION.fullmatch(word):
            # The value is either the rest of the word or the next word.
            module = found["value"] or "".join(words[:1])
            rest = words if found["value"] else words[1:]
            return (module and found["option"] == "m" and _module_name(module, rest)) or program
    return program


def name_in(parts: Sequence[str]) -> str:
    """Returns the last part of a module's name or a script's path that distinguishes the program from others.

    >>> name_in(("trainer", "main")), name_in(("trainer", "evaluate")), name_in(("main",))
    ('trainer', 'evaluate', 'main')
    """
    return next((part for part in reversed(parts) if part not in _COMMON_NAMES), parts[-1])


def _module_name(module: str, rest: Sequence[str]) -> str:
    """Returns the name of a module. If the module starts another program, returns the name of that program.

    Args:
        rest: the words of the command after the module.
    """
    if module in _LAUNCHERS:
        for before, word in pairwise(("", *rest)):
            if before == "-m":
                return name_in(word.split("."))
            if word.endswith(".py") and not word.startswith("-"):
                return PurePosixPath(word).stem
    return name_in(module.split("."))
