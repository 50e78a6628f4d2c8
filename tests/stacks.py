"""Documents of `agent.py stacks`, for the tests of their readers."""

from __future__ import annotations

import json
from typing import Any

LIBRARY = "/usr/lib/python3.11/site-packages/torch"
WAITS: list[list[Any]] = [
    ["wait", f"{LIBRARY}/distributed/distributed_c10d.py", 3000],
    ["all_reduce", f"{LIBRARY}/distributed/distributed_c10d.py", 2900],
    ["backward", "/app/train.py", 42],
    ["<module>", "/app/train.py", 60],
]
LOADS: list[list[Any]] = [
    ["wait", "/usr/lib/python3.11/selectors.py", 415],
    ["__next__", f"{LIBRARY}/utils/data/dataloader.py", 700],
    ["epoch", "/app/train.py", 30],
    ["<module>", "/app/train.py", 60],
]
SLEEPS: list[list[Any]] = [
    ["__getitem__", "/app/data.py", 17],
    ["_worker_loop", f"{LIBRARY}/utils/data/_utils/worker.py", 300],
]
REDUCE = {
    "group": "0", "desc": "default_pg", "backend": "gloo", "seq": 1185, "name": "all_reduce", "sizes": [[1048576]],
    "dtype": "float32", "state": "started", "age": 310.1, "done": 1184, "last": "all_reduce", "p2p": False,
}  # fmt: skip
DONE = {**REDUCE, "seq": 0, "state": "", "age": 0.0}


def process(frames: list[Any], kind: str = "rank", **more: Any) -> dict[str, Any]:
    """A process with one thread."""
    threads = [{"name": "MainThread", "frames": frames}] if frames else []
    return {
        "pid": 17, "kind": kind, "name": "python3", "state": "S", "wchan": "futex_wait_queue", "syscall": 202,
        "busy": False, "gil": False, "threads": threads, "why": "", **more,
    }  # fmt: skip


def waiting(rank: int) -> dict[str, Any]:
    """A rank that waits in a collective."""
    return {"rank": rank, "processes": [process(WAITS)], "collectives": [REDUCE], "why": ""}


def loading(rank: int) -> dict[str, Any]:
    """A rank that waits for a worker of its DataLoader, and the worker, which sleeps."""
    worker = process(SLEEPS, "worker", pid=23, wchan="hrtimer_nanosleep")
    return {"rank": rank, "processes": [worker, process(LOADS)], "collectives": [DONE], "why": ""}


def document(*ranks: dict[str, Any]) -> bytes:
    """The document of a pod with these ranks."""
    return json.dumps({"version": 1, "at": 1764065472.0, "ranks": list(ranks)}).encode()
