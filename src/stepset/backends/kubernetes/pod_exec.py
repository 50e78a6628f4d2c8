"""Determines the pod and the command for `stepset exec`. The command runs in the environment of the selected rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.pod_command import PodCommand
from stepset.backends.kubernetes.api.resources import PODS
from stepset.backends.kubernetes.logs.pods import log_pod
from stepset.backends.running import running_row
from stepset.errors import InfrastructureError
from stepset.run_status import RunStatus

# This program runs in the pod. The program finds the first process of the rank, and uses the environment and the
# working directory of the rank's process. Then the program replaces itself with the command (execvp).
# A launcher starts each rank with `agent.py rank --dir ...`.
_AS_RANK = """
import os, sys
rank, command, found = sys.argv[1], sys.argv[2:], []
for pid in {*filter(str.isdigit, os.listdir("/proc"))} - {str(os.getpid())}:
    try:
        env = dict(e.split(b"=", 1) for e in open(f"/proc/{pid}/environ", "rb").read().split(b"\\0") if b"=" in e)
        words = open(f"/proc/{pid}/cmdline", "rb").read()
        agent = b"/agent" in words and (b"\\0run\\0" in words or b"\\0rank\\0--dir\\0" in words)
        started = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[19])
        name = next((n for n in NAMES if n in env), None)
        if name and env[name].decode() == rank:
            found.append((name == NAMES[-1], agent, started, os.readlink(f"/proc/{pid}/cwd"), env))
    except (OSError, ValueError):
        pass
if not found:
    print(f"stepset: rank {rank} has no process in this pod now", file=sys.stderr)
    sys.exit(3)
*_, directory, env = min(found, key=lambda each: each[:3])
try:
    os.chdir(directory)
    os.execvpe(command[0], command, env)
except OSError as error:
    print(f"stepset: {command[0]}: {error.strerror}", file=sys.stderr)
    sys.exit(126 if isinstance(error, PermissionError) else 127)
"""
_NAMES = (
    b"OMPI_COMM_WORLD_RANK",
    b"PMIX_RANK",
    b"PMI_RANK",
    b"RANK",
    b"JAX_PROCESS_ID",
    b"MLX_RANK",
    b"DMLC_TASK_ID",
    b"STEPSET_NODE_RANK",
)
"""The environment variables that may contain the number of a rank. The first variable that is set is used.

If a framework numbers only the nodes (`plain`), a rank has only the last variable. Launchers also have this variable.
Therefore a process with another variable is preferred.
"""


async def pod_command(
    namespaced: NamespacedClient, status: RunStatus, source: str, command: Sequence[str]
) -> PodCommand:
    """Returns the command to start in the pod of a source such as `rank 2`.

    If the source is a rank and the agent runs in the pod, the command gets the environment of the rank.

    Raises:
        BadInputError: the source is not running.
        InfrastructureError: the pod cannot be read, for example because it no longer exists.
    """
    row = running_row(status, source)
    reply = await namespaced.client.get(namespaced.one(PODS, row.pod))
    if not reply.accepted:
        raise InfrastructureError(f"pod {row.pod}: cannot be read: {reply.message or f'HTTP {reply.status}'}")
    pod = log_pod(reply.body)
    words = list(command)
    if row.rank is not None and pod.agent:
        script = _AS_RANK.replace("NAMES", repr(_NAMES))
        words = ["python3", "-I", "-S", "-c", script, str(row.rank), *words]
    return PodCommand(namespaced.namespace, pod.name, pod.container, words, replace(namespaced.grant, exec=True))
