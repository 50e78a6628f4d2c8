"""Reads from torch's Flight Recorder when a rank has joined its last collectives: the content of the event `joins`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from stepset.agent.events import number
from stepset.agent.hangs.answers import answers
from stepset.agent.hangs.pod_ranks import ranks_of
from stepset.agent.hangs.processes import environment
from stepset.agent.hangs.recorder import entries_of, name_of
from stepset.agent.launch import hook_directory
from stepset.agent.redact import Redactor

_KEPT = 120  # collectives of a group; the reader compares 100, and the dumps of ranks are not of the same moment
_MOST_GROUPS = 2
_FEWEST = 20  # collectives of a group
_ALL_WAIT = ("all", "reduce_scatter", "barrier", "_all", "_reduce_scatter")


def joins(directory: str, agent: int, redactor: Redactor) -> list[dict[str, Any]]:
    """Returns, for each rank below an agent, when the rank has joined its last collectives.

    Args:
        directory: the directory of the agent.
        agent: the pid of the agent.
    """
    ranks, found = ranks_of(directory, agent), []
    for rank, each in answers(ranks, hook_directory(directory), stacks=False, read=last_joins).items():
        groups = list(chain.from_iterable(answer.collectives for answer in each))[:_MOST_GROUPS]
        if rank is not None and groups:
            found.append({"rank": rank, "gpu": _gpu(ranks[rank], groups), "groups": redactor.data(groups)})
    return found


def last_joins(dumps: Iterable[bytes]) -> list[dict[str, Any]]:
    """Returns the last collectives of the groups with the most collectives.

    `seq` contains the sequence numbers, and `at` the times in microseconds since the epoch. Each value but the first is
    the difference from the value before. `end` contains the number of microseconds from the join until the recorder
    noticed the completion, 0 if it is unknown. gloo records no completion. Collectives in which the ranks do not all
    wait for each other, such as `broadcast`, are left out.
    """
    groups: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for entry, _ in entries_of(dumps):
        try:
            _add(groups, entry)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            continue
    largest = sorted(groups.items(), key=lambda item: -len(item[1]))[:_MOST_GROUPS]
    return [_packed(group, backend, times) for (group, backend), times in largest if len(times) >= _FEWEST]


def _add(groups: dict[tuple[str, str], dict[int, tuple[int, int]]], entry: Any) -> None:
    group = str(entry["process_group"][0])[:100]
    backend, name = name_of(entry)
    if entry.get("is_p2p") is True or not name.startswith(_ALL_WAIT):
        return
    created = number(entry["time_created_ns"]) // 1000
    ended = number(entry.get("time_discovered_completed_ns") or 0) // 1000
    times = groups.setdefault((group, backend), {})
    times.setdefault(number(entry["collective_seq_id"]), (created, max(0, ended - created)))


def _packed(group: str, backend: str, times: dict[int, tuple[int, int]]) -> dict[str, Any]:
    last = sorted(times)[-_KEPT:]
    found: dict[str, Any] = {"group": group, "backend": backend, "seq": list(_differences(last))}
    found["at"] = list(_differences([times[seq][0] for seq in last]))
    if any(times[seq][1] for seq in last):
        found["end"] = [times[seq][1] for seq in last]
    return found


def _differences(values: list[int]) -> Iterator[int]:
    yield from (value - before for value, before in zip(values, [0, *values]))


def _gpu(pid: int, groups: list[dict[str, Any]]) -> str:
    """Returns the GPU of a rank as its environment describes it, or "" if it uses none or more than one."""
    about = environment(pid)
    local = about.get("LOCAL_RANK", "")
    if not local.isdigit() or all(each["backend"] != "nccl" for each in groups):
        return ""
    visible = about.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return visible[int(local)][:40] if visible != [""] and int(local[:4]) < len(visible) else local[:4]
