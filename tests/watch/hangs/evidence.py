"""Evidence as agents report it, for cases that were not recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepset.hang import Hang
from stepset.run_status import RankStatus
from stepset.watch.agent_events import read_events
from stepset.watch.hangs.evidence import read_evidence
from stepset.watch.hangs.rules import hang_of

SITE = "/venv/lib/python3/site-packages"
TRAIN = ["step", "/app/train.py", 42]
BACKWARD = [
    ["_engine_run_backward", f"{SITE}/torch/autograd/graph.py", 1113],
    ["backward", f"{SITE}/torch/_tensor.py", 623],
    TRAIN,
]
ALL_REDUCE = [["all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py", 4181], TRAIN]
INIT = [
    ["_store_based_barrier", f"{SITE}/torch/distributed/distributed_c10d.py", 900],
    ["init_process_group", f"{SITE}/torch/distributed/distributed_c10d.py", 1800],
    ["main", "/app/train.py", 5],
]
SLEEP = [["load", "/app/data.py", 17], TRAIN]
SHUTDOWN = [["_shutdown", "/usr/lib/python3.11/threading.py", 1553]]


def process(frames: Sequence[Any] = (), *more: Sequence[Any], **fields: Any) -> dict[str, Any]:
    """A process with the stacks of its threads."""
    threads = [{"name": "", "frames": list(each)} for each in (frames, *more) if each]
    about = {"pid": 17, "kind": "rank", "name": "python3", "state": "S", "busy": False}
    return {**about, "changed": fields.get("busy", False), "threads": threads, **fields}


def flying(number: int = 1185, name: str = "all_reduce", group: str = "0", **fields: Any) -> dict[str, Any]:
    """A collective that has not completed."""
    rest = {"sizes": [[1048576]], "dtype": "float32", "state": "started", "done": number - 1, "last": "all_reduce"}
    desc = "default_pg" if group == "0" else "undefined"
    return {"group": group, "desc": desc, "backend": "nccl", "seq": number, "name": name, **rest, **fields}


def done(number: int = 1184, group: str = "0") -> dict[str, Any]:
    """A group in which all collectives have completed."""
    return {"group": group, "desc": "default_pg" if group == "0" else "undefined", "done": number, "last": "all_reduce"}


def stalled(rank: int, *processes: dict[str, Any], collectives: Sequence[Any] = (), **fields: Any) -> dict[str, Any]:
    """An event `stalled`."""
    head = {"event": "stalled", "rank": rank, "at": 1310.2, "silent": 310.2, "longest": 12.0, "again": 0}
    return {**head, "processes": list(processes), "collectives": list(collectives), **fields}


def hang(*events: dict[str, Any], exited: Sequence[int] = (), absent: Sequence[int] = ()) -> Hang | None:
    """The hang of a run in which the agents of running ranks have printed these events."""
    evidence = {read["rank"]: found for read in read_events(events) if (found := read_evidence(read["stalled"]))}
    states = {
        **dict.fromkeys(evidence, "Running"),
        **dict.fromkeys(exited, "Succeeded"),
        **dict.fromkeys(absent, "Pending"),
    }
    rows = [
        RankStatus(f"rank {rank}", rank, f"node-{rank}", f"node {rank}", state)
        for rank, state in sorted(states.items())
    ]
    return hang_of(rows, evidence)
