"""Builds the environment of a local pod.

The environment contains the caller's variables, the plan's variables, and variables that are needed because several
nodes share one machine.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stepset.backends.local.agent_file import agent_file
from stepset.backends.local.net import loopback_interface
from stepset.backends.local.variables.gpus import VISIBLE, gpus_of_node, visible_gpus
from stepset.backends.local.variables.mpi import Places, mpi_rows
from stepset.errors import BadInputError
from stepset.frameworks import FRAMEWORKS
from stepset.frameworks.kinds.mpi import MASTER_VARIABLES
from stepset.plan.model import LAUNCHER, NODE, EnvEntry, LaunchPlan, PodGroup
from stepset.plan.values import SecretValue, Text, text
from stepset.spec.devices import devices_of

# Variables of another launcher that started this process. Ranks must not use the values of that launcher's world.
_FOREIGN = re.compile(
    "|".join((r"STEPSET_(?!HOME$)", *(names for each in FRAMEWORKS.values() for names in each.world_variables)))
)
_HINTS = {program: hint for each in FRAMEWORKS.values() for program, hint in each.programs.items()}


@dataclass(frozen=True)
class Host:
    """Properties of the machine and of the calling process.

    The properties are read once, before a local run starts.

    Args:
        environ: the caller's environment, without the variables that other launchers set.
        cores: the number of CPUs that this process may use.
        root: whether the user is root. MPI implementations refuse to run as root unless two variables are set.
        gpus: the GPUs that this process may use.
        secrets: the values from Secrets that the job's variables use. Each key of this mapping is a tuple: the name of
            a Secret, and the name of an entry in this Secret.
    """

    environ: Mapping[str, str]
    python: str
    agent: Path
    cores: int
    interface: str
    root: bool
    name: str
    gpus: tuple[str, ...] = ()
    secrets: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)


def this_host(plan: LaunchPlan, environ: Mapping[str, str], work_dir: Path) -> Host:
    """Returns the properties of this machine for a plan. Raises BadInputError if a secret or a program is missing."""
    kept = {name: value for name, value in environ.items() if not _FOREIGN.match(name)}
    kept["PATH"] = search_path(environ, sys.executable, sys.prefix)
    problems = [*_missing_programs(plan, kept["PATH"], work_dir)]
    secrets = {}
    for name, value in _secrets_of(plan):
        found = _secret(value, environ)
        if found is None:
            problems.append(
                f"env.{name}: secret {value.secret!r} has no key {value.key!r} on this machine;"
                f" set {_secret_variable(value)}, or put the value into $STEPSET_SECRETS_DIR/{value.secret}/{value.key}"
            )
        else:
            secrets[value.secret, value.key] = found
    if problems:
        raise BadInputError(*dict.fromkeys(problems))
    return Host(
        environ=kept,
        python=sys.executable,
        agent=agent_file(),
        cores=_cores(),
        interface=loopback_interface(),
        root=os.geteuid() == 0,
        name=socket.gethostname(),
        gpus=visible_gpus(environ),
        secrets=secrets,
    )


def local_entries(
    plan: LaunchPlan, group: PodGroup, index: int, host: Host, *, address: str, rsh: Path, scratch: Path
) -> tuple[EnvEntry, ...]:
    """Returns the variables that a pod needs because all nodes share a machine. The job's variables take precedence.

    Args:
        rsh: the path of the program that replaces ssh.
        scratch: a directory with a short path that only this pod uses.
    """
    if group.role:
        return ()
    interface = host.interface
    rows = [(f"{library}_SOCKET_IFNAME", interface, "all nodes are this machine") for library in ("GLOO", "NCCL", "TP")]
    if "OMP_NUM_THREADS" not in host.environ:
        threads = max(1, host.cores // max(1, world_processes(plan)))
        rows.append(("OMP_NUM_THREADS", str(threads), "cores / processes, so that the ranks do not compete"))
    node = index if group.name == NODE else plan.world.num_nodes - 1
    if own := gpus_of_node(host.gpus, node, plan.world.num_nodes, gpus_per_node(plan, group)):
        rows.append((VISIBLE, ",".join(own), "the node's share of this machine's GPUs"))
    elif host.gpus and any(entry.name == VISIBLE and entry.from_pod for entry in group.env):
        rows.append((VISIBLE, ",".join(host.gpus), "this machine's GPUs; the agent puts each process's own GPU first"))
    if plan.world.elastic:
        # Without this variable, c10d passes the name of the machine to the workers. All nodes have this name, and the
        # name may not resolve.
        rows.append(("PET_LOCAL_ADDR", address, "the node's own address"))
    if plan.ssh is not None:
        crowded = world_processes(plan) > host.cores
        places = Places(plan.world.num_nodes, interface, str(rsh), str(scratch), crowded=crowded, root=host.root)
        rows += mpi_rows(places, launcher=group.name == LAUNCHER)
    entries = tuple(EnvEntry(name, text(value), why, "local") for name, value, why in rows)
    if plan.ssh is not None and group.serves_ssh:
        entries += tuple(entry for entry in plan.group(LAUNCHER).env if entry.name in MASTER_VARIABLES)
    return entries


def world_processes(plan: LaunchPlan) -> int:
    """Returns the number of ranks. If the plan does not contain this number, returns the number of nodes."""
    return plan.world.size or plan.world.num_nodes


def most_processes() -> int | None:
    """Returns the number of processes that this machine can have at once, or None if this number is unknown."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):  # not Linux
        return None


def gpus_per_node(plan: LaunchPlan, group: PodGroup) -> int:
    """Returns the number of GPUs that a node requests.

    If a node requests no GPUs, returns the number of processes per node.
    """
    return devices_of(group.resources).processes or plan.world.procs_per_node or 0


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def search_path(environ: Mapping[str, str], python: str, prefix: str) -> str:
    """Returns the PATH of the ranks.

    `python3` on this PATH is the interpreter that runs stepset, unless another Python environment is active.
    """
    path = environ.get("PATH") or os.defpath
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = environ.get(variable)
        if active and Path(active).absolute() != Path(prefix).absolute():
            return path
    own = str(Path(python).absolute().parent)
    found = shutil.which("python3", path=path)
    return path if found and str(Path(found).parent) == own else f"{own}{os.pathsep}{path}"


def _missing_programs(plan: LaunchPlan, search_path: str, work_dir: Path) -> Iterable[str]:
    for group in plan.groups:
        where = f"roles.{group.name}.command" if group.role else "command"
        if not group.command:
            if not group.serves_ssh:
                yield f"roles.{group.name}: has only an image, and images do not run locally; give it a command"
            continue
        yield from _missing_program(where, group.command[0], search_path, work_dir)
        if plan.ssh is not None and group.agent is not None and group.agent.wrap is not None:
            yield from _missing_program(where, group.agent.wrap.program[0], search_path, work_dir)


def _missing_program(where: str, program: Text, search_path: str, work_dir: Path) -> Iterable[str]:
    # A name without a slash is looked up in PATH. A path is relative to the directory in which the command starts.
    word = "".join(str(part) for part in program.parts)
    place = str(work_dir / word) if "/" in word else word
    if not word or "$(" in word or shutil.which(place, path=search_path) is not None:
        return
    if Path(place).is_file() and "/" in word:
        yield f"{where}: {word!r} is not executable; run chmod +x, or start it with its interpreter"
    else:
        yield f"{where}: {word!r} is not found on this machine; {_HINTS.get(word, 'install it, or give its path')}"


def _secrets_of(plan: LaunchPlan) -> Iterable[tuple[str, SecretValue]]:
    for group in plan.groups:
        for entry in group.env:
            if isinstance(entry.value, SecretValue):
                yield entry.name, entry.value


def _secret_variable(value: SecretValue) -> str:
    return "STEPSET_SECRET_" + re.sub(r"[^A-Z0-9]", "_", f"{value.secret}_{value.key}".upper())


def _secret(value: SecretValue, environ: Mapping[str, str]) -> str | None:
    found = environ.get(_secret_variable(value))
    directory = environ.get("STEPSET_SECRETS_DIR")
    if found is None and directory:
        with suppress(OSError, ValueError):
            return Path(directory, value.secret, value.key).read_text(encoding="utf-8")
    return found
