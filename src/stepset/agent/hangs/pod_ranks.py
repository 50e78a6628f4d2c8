"""Finds the ranks of a pod, reads their progress, and creates the document of the mode `stacks`."""

from __future__ import annotations

import os
import time
from typing import Any

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.hangs.answers import answers
from stepset.agent.hangs.processes import arguments, below, environment, running
from stepset.agent.hangs.samples import sample
from stepset.agent.launch import hook_directory
from stepset.agent.rank import RANK
from stepset.agent.redact import Redactor, make_redactor


def ranks_of(directory: str, agent: int) -> dict[Any, int]:
    """Returns the process of each rank that runs below an agent. If there is none, returns the launcher, for None.

    Args:
        directory: the agent's directory, whose file `ranks` contains a rank and a pid in each line.
        agent: the pid of the agent.
    """
    processes = running()
    parents = {pid: process.parent for pid, process in processes.items()}

    def is_below(pid: int) -> bool:
        for _ in range(100):
            pid = parents.get(pid, 0)
            if pid == agent:
                return True
        return False

    found: dict[Any, int] = {}
    with IF_POSSIBLE, open(os.path.join(directory, "ranks"), "rb") as file:
        for line in file.read(1 << 20).split(b"\n"):
            rank, _, pid = line.partition(b" ")
            if rank.isdigit() and pid.isdigit():
                found[int(rank[:9])] = int(pid[:9])
    found = {rank: pid for rank, pid in found.items() if is_below(pid)}
    if found:
        return found
    children = [each for each in below(agent, processes)[1:] if each.pid != os.getpid()]
    environments = {each.pid: environment(each.pid) for each in children}
    for child in children:  # a command that starts the ranks itself
        own, above = environments[child.pid], environments.get(child.parent, {})
        name = next((name for name in RANK if own.get(name, "").isdigit()), "")
        if name and own[name] != above.get(name):
            found.setdefault(int(own[name][:9]), child.pid)
    if not found and children:
        found[None] = children[0].pid
    return found


def progress(directory: str, agent: int, checkpoints: str) -> list[Any]:
    """Returns values that change when ranks make progress: their finished collectives, and the checkpoint files.

    The first value is whether any rank has finished a collective.
    """
    found, any_done = [], False
    for rank, each in answers(ranks_of(directory, agent), hook_directory(directory), stacks=False).items():
        for answer in each:
            for group in answer.collectives:
                any_done = any_done or bool(group["done"])
                found.append([rank, answer.process.pid, group["group"], group["done"], group["queued"]])
    return [any_done, found, _sizes(checkpoints)]


def _sizes(directory: str) -> list[int]:
    """Returns the number, the total size and the latest time of the files in a directory, at most 10,000 files."""
    count = total = latest = 0
    pending = [directory] if directory else []
    while pending and count < 10_000:
        with IF_POSSIBLE, os.scandir(pending.pop()) as entries:
            for entry in entries:
                with IF_POSSIBLE:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    about = entry.stat(follow_symlinks=False)
                    total, latest = total + about.st_size, max(latest, about.st_mtime_ns)
    return [count, total, latest]


def stacks_document(directory: str, wanted: list[int]) -> dict[str, Any]:
    """Returns two samples of the ranks of a pod, a second apart, compared, without the values of Secrets.

    Args:
        directory: the directory of the pod's agent.
        wanted: the ranks to sample. If it is empty, samples all ranks of the pod.
    """
    from stepset.agent.hangs.native import add_native

    at, why, found = round(time.time(), 3), "", {}
    try:
        with open(os.path.join(directory, "agent.pid"), "rb") as file:
            agent = int(file.read(20))
        redactor = _redactor_of(agent)
    except (OSError, ValueError):
        why = f"no agent with `hang` runs in {directory}"
    else:
        ranks = {rank: pid for rank, pid in ranks_of(directory, agent).items() if not wanted or rank in wanted}
        found = sample(ranks, hook_directory(directory), (0.0, 1.0))
        add_native(found.values())
        for rank in [rank for rank in wanted if rank not in found]:
            found[rank] = {"processes": [], "collectives": [], "why": f"rank {rank} has no process in this pod"}
        why = "" if found else "no rank runs in this pod"
    ranks_found = [{"rank": rank, **redactor.data(each)} for rank, each in found.items()]
    return {"version": 1, "at": at, "seconds": 1.0, "ranks": ranks_found, "why": why}


def _redactor_of(agent: int) -> Redactor:
    """Returns the redactor of a running agent, from its configuration and its environment."""
    from stepset.agent.config import read_config
    from stepset.agent.errors import AgentError

    words = arguments(agent)
    try:
        config = read_config(os.path.join(f"/proc/{agent}/cwd", words[words.index("run") + 1]))
    except AgentError as error:
        raise ValueError(str(error)) from error
    return make_redactor(environment(agent), config.secrets, config.secret_files)
