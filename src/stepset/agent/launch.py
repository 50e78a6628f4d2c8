"""The environments and command lines with which a pod starts its command and its ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from stepset.agent.config import Config
from stepset.agent.errors import ERROR_FILE, IF_POSSIBLE
from stepset.agent.process import which


def node_rank(env: Mapping[str, str]) -> int:
    """Returns the index of the pod in its group, or in the Indexed Job if the pod is not part of the world."""
    return first_number(env, ("STEPSET_NODE_RANK", "JOB_COMPLETION_INDEX"))


def first_number(env: Mapping[str, str], names: Iterable[str]) -> int:
    """Returns the value of the first variable that is a number, or 0 if no variable is a number."""
    return next((int(env[name]) for name in names if env.get(name, "").isdigit()), 0)


def set_rank_env(env: dict[str, str], directory: str, before: int = 0) -> None:
    """Sets the variables that every rank gets. Does not change variables that the job sets.

    Args:
        env: the environment, which is changed.
        directory: the directory of the agent.
        before: the argument of `newest_checkpoint`.
    """
    env.pop("STEPSET_AGENT_DIR", None)
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.setdefault("PYTHONFAULTHANDLER", "1")
    env.setdefault("STEPSET_RESULT_FILE", os.path.join(directory, "result"))
    # The pod's agent looks for a checkpoint once for all ranks. A rank that looks later could find a file of another
    # rank of this run. A rank that torchrun has restarted looks for a checkpoint itself.
    resume = env.pop("STEPSET_RESUME_FROM", None)
    if resume is None or first_number(env, ("TORCHELASTIC_RESTART_COUNT",)):
        resume = newest_checkpoint(env, before) and env["STEPSET_CHECKPOINT_DIR"]
    if resume:
        env["STEPSET_RESUME_FROM"] = resume


def hook_directory(directory: str) -> str:
    """Returns the directory of the hook, from which every Python of a rank imports `sitecustomize`.

    `directory` is that of the agent.
    """
    return os.path.join(directory, "hook")


def add_hook(env: dict[str, str], directory: str) -> None:
    """Puts the directory of the hook in front of PYTHONPATH, unless PYTHONPATH contains it, or there is no hook.

    Args:
        env: the environment, which is changed.
        directory: the directory of the agent.
    """
    hook = hook_directory(directory)
    paths = [path for path in (env.get("PYTHONPATH"),) if path]
    if os.path.isdir(hook) and hook not in ":".join(paths).split(":") and ":" not in hook:
        env["PYTHONPATH"] = ":".join([hook, *paths])


def newest_checkpoint(env: Mapping[str, str], before: int = 0) -> tuple[int, str] | None:
    """Returns the time and the path of the newest entry of STEPSET_CHECKPOINT_DIR, or None if there is no entry.

    Ignores hidden entries, the `lost+found` of a new volume, and entries older than STEPSET_FRESH. In the first
    attempt, also ignores entries newer than `before`, because another pod of the run has written these entries. If
    `before` is 0, there is no limit. All times are in nanoseconds since the epoch.
    """
    since = first_number(env, ("STEPSET_FRESH",))
    again = first_number(env, ("STEPSET_ATTEMPT",)) or not before
    newest = None
    with IF_POSSIBLE:
        for entry in os.scandir(env.get("STEPSET_CHECKPOINT_DIR") or os.devnull):
            with IF_POSSIBLE:  # a link may lead to a deleted checkpoint
                at, name = entry.stat().st_mtime_ns, entry.name
                if since <= at and (again or at <= before) and name[0] != "." and name != "lost+found":
                    newest = max(newest or (0, ""), (at, entry.path))
    return newest


def pod_env(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Derives the environment of the pod's command from the environment of the agent."""
    own = dict(env)
    own.pop("STEPSET_LIFELINE", None)
    own.pop("STEPSET_AGENT_DIR", None)  # set if a process of another run started this run
    before = config.attempt + first_number(own, ("STEPSET_RESUMES",))
    if before:
        own["STEPSET_ATTEMPT"] = str(before + first_number(own, ("STEPSET_ATTEMPT",)))
    if config.in_world:
        set_rank_env(own, config.dir, config.written)
        if config.launcher:
            own.setdefault("STEPSET_RESUME_FROM", "")  # no checkpoint: `agent.py rank` does not look again
    if config.serve:
        # Set only in a pod that serves a launcher in another pod: in the launcher's own pod, Hydra would pass the
        # variable to the ranks of other pods.
        own["STEPSET_AGENT_DIR"] = config.dir
    own.setdefault(ERROR_FILE, os.path.join(config.dir, "error.json"))
    own.setdefault("PYTHONUNBUFFERED", "1")
    if "PET_NNODES" in own and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in own:
        own.setdefault("PET_SHUTDOWN_TIMEOUT", str(int(config.grace)))  # for a command that starts torchrun (2.15)
    if config.launcher_restarts and own.get("LOGLEVEL") in ("CRITICAL", "FATAL"):
        own["LOGLEVEL"] = "ERROR"  # torchrun reports a failed exit barrier at this level only
    return own


def process_env(config: Config, env: Mapping[str, str], node: int, local: int) -> dict[str, str]:
    """Returns the environment of one process of the pod, which includes the variables of the config's `process_env`.

    Args:
        env: the environment of the pod's command.
        node: the index of the pod in its group.
        local: the index of the process in the pod. It is 0 for a command that starts ranks.
    """
    own = dict(env)
    places = {
        "{rank}": node * config.procs_per_node + local,
        "{local_rank}": local,
        "{node_rank}": node,
        "{first}": int(node == 0),
    }
    for name, value in config.process_env.items():
        if value.startswith("{devices}"):
            value = own_device_first(env.get(name), env.get("NVIDIA_VISIBLE_DEVICES", ""), value[9:], local)
        for place, number in places.items():
            value = value.replace(place, str(number))
        if value:
            own[name] = value
    return own


def own_device_first(cuda: str | None, plugin: str, indexes: str, local: int) -> str:
    """Returns the pod's CUDA devices in the form of CUDA_VISIBLE_DEVICES. The device of process `local` is the first.

    Args:
        cuda: the value of CUDA_VISIBLE_DEVICES in the pod.
        plugin: the value of NVIDIA_VISIBLE_DEVICES in the pod. It is used if it contains UUIDs from the device plugin,
            such as GPU-1a2b. CUDA cannot use other values, such as `all` or the indexes of the machine's devices.
        indexes: the list to use if neither variable contains devices. If it is empty, CUDA_VISIBLE_DEVICES is not set.
    """
    listed = cuda if cuda is not None else plugin if plugin[3:4] == "-" else indexes
    devices = listed.split(",")
    first = local % len(devices)
    return ",".join(devices[first:] + devices[:first])


def launcher_command(config: Config, command: Sequence[str], env: Mapping[str, str], agent: str) -> list[str]:
    """Returns the launcher's command line, with `agent.py rank` before the program of every rank.

    Args:
        command: the pod's command.
        env: the launcher's environment.
        agent: the path of the agent's file or of its compiled copy.
    """
    launcher = [expand(word, env) for word in config.launcher]
    program = [expand(word, env) for word in config.program]
    if program[:1] == ["python3"]:
        program[0] = python_of(launcher[0], env) or program[0]
    options = ["--dir", config.dir]
    if config.world_size:
        options += ["--world", str(config.world_size)]
    if config.mpi:
        options += ["--report"]
    for option, values in (("--secret", config.secrets), ("--secret-file", config.secret_files)):
        options += [word for value in values for word in (option, value)]
    rank = [sys.executable or "python3", "-I", "-S", agent, "rank", *options, "--"]
    return [*launcher, *rank, *program, *command[config.command_len :]]


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` as Kubernetes does in a command. Unknown names are not changed, and `$$` becomes `$`.

    Source: kubernetes/kubernetes third_party/forked/golang/expansion/expand.go.
    """
    import re

    # The text is split at the last `)`. Otherwise, the regex would scan to the end of the text for each unclosed `$(`.
    closed, end, rest = text.rpartition(")")
    found = re.sub(r"\$(?:\$|\(([^)]*)\))", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), closed + end)
    return found + rest.replace("$$", "$")


def python_of(program: str, env: Mapping[str, str]) -> str | None:
    """Returns the path of the Python interpreter that a launcher's script names in its first lines, or None.

    The script and `python3` on PATH may belong to different environments. Ranks need the environment of the launcher.
    """
    import re

    try:
        with open(which(program, env) or program, "rb") as file:
            start = file.read(1024)
    except OSError:
        return None
    # pip writes the second form if the first form would be too long for the kernel.
    found = re.match(rb"#! ?(/\S*/python[0-9.]*)\s*\n", start) or re.match(
        rb"#!/bin/sh\n'''exec' \"?(/[^\"\n]*/python[0-9.]*)\"? ", start
    )
    return os.fsdecode(found[1]) if found else None
