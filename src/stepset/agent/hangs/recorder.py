"""Reads the dumps of torch's Flight Recorder: the collective for which each process group waits, and its last one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from stepset.agent.events import number

MOST_GROUPS = 16
_MOST_SIZES = 8
_MOST_RANKS = 1024
_LARGEST = 2**53
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
}


def digest(dumps: Iterable[bytes]) -> list[dict[str, Any]]:
    """Returns, for each process group, its first unfinished collective and its last finished one.

    A rank may have started several collectives. The first unfinished one is the one for which it waits. Groups with
    unfinished collectives are first. If a rank has joined a group and has started no collective, its group has no
    collective. An entry with an unexpected form is ignored.
    """
    groups: dict[Any, dict[str, Any]] = {}
    for entries, members in _documents(dumps):
        for entry in entries:
            try:
                _add(groups, entry, members)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                continue
        if members and not entries:
            groups[""] = _group("", "", "", False, members)
    found = sorted(groups.values(), key=lambda group: (not group["seq"], -group["done"]))
    return found[:MOST_GROUPS]


def entries_of(dumps: Iterable[bytes]) -> Iterator[tuple[Any, Any]]:
    """Yields each entry of dumps, with the members of the groups. An entry may have any form."""
    for entries, members in _documents(dumps):
        for entry in entries:
            yield entry, members


def _documents(dumps: Iterable[bytes]) -> Iterator[tuple[list[Any], Any]]:
    """Yields the entries of each dump, and the members of the groups."""
    import json

    for dump in dumps:
        try:
            document = json.loads(dump.decode("utf-8", "replace"))
            entries, members = document.get("entries"), document.get("pg_config")
        except (ValueError, AttributeError, RecursionError, MemoryError):
            continue
        yield entries if isinstance(entries, list) else [], members


def name_of(entry: Any) -> tuple[str, str]:
    """Returns the backend and the name of a collective."""
    backend, _, name = str(entry["profiling_name"])[:100].rpartition(":")
    return backend, name


def _add(groups: dict[Any, dict[str, Any]], entry: Any, members: Any) -> None:
    group, description = (str(each)[:100] for each in entry["process_group"][:2])
    p2p = entry.get("is_p2p") is True
    seq = number(entry["p2p_seq_id" if p2p else "collective_seq_id"], _LARGEST)
    backend, name = name_of(entry)
    finished = entry.get("retired") is True or entry["state"] == "completed"
    found = groups.setdefault((group, backend, p2p), _group(group, description, backend, p2p, members))
    found["queued"] = max(found["queued"], seq)
    if finished:
        if seq >= found["done"]:
            found["done"], found["last"] = seq, name
    elif not found["seq"] or seq < found["seq"]:
        dtypes = entry.get("input_dtypes") or entry.get("output_dtypes") or [""]
        sizes = entry.get("input_sizes") or entry.get("output_sizes") or []
        found["seq"], found["name"], found["state"] = seq, name, str(entry["state"])[:20]
        found["sizes"] = [[number(n, _LARGEST) for n in size[:_MOST_SIZES]] for size in sizes[:_MOST_SIZES]]
        found["dtype"] = _DTYPES.get(str(dtypes[0]), str(dtypes[0]).lower()[:20])
        found["age"] = round(max(0.0, time.time() - number(entry["time_created_ns"]) / 1e9), 1)


def _group(group: str, description: str, backend: str, p2p: bool, members: Any) -> dict[str, Any]:
    """Returns a process group without collectives."""
    return {
        "group": group,
        "desc": description,
        "backend": backend,
        "seq": 0,
        "name": "",
        "sizes": [],
        "dtype": "",
        "state": "",
        "age": 0.0,
        "done": 0,
        "last": "",
        "queued": 0,
        "p2p": p2p,
        "ranks": _members(members, group),
    }


def _members(members: Any, group: str) -> list[int]:
    """Returns the ranks of a group. The dump contains them as text, such as "[0, 1]"."""
    try:
        return [int(word) for word in str(members[group]["ranks"])[: 8 * _MOST_RANKS].strip("[]").split(",")][
            :_MOST_RANKS
        ]
    except (KeyError, TypeError, ValueError):
        return []
