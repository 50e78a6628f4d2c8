"""Pods whose agents detect hangs after seconds. All tests start real processes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.pods import Pod, Running

_HERE = Path(__file__).parent
HANG = {"after": 4, "first": 120}
"""Seconds; `first` is long, because a busy machine takes long to import torch."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.local)


class Ranks:
    """The output of the agents of one run.

    Args:
        running: the agent of each pod.
    """

    def __init__(self, *running: Running) -> None:
        self.running = running

    def stalled(self, *ranks: int | None) -> dict[int | None, dict[str, Any]]:
        """Waits for the event `stalled` of each rank, and returns the last event of each."""
        found: dict[int | None, dict[str, Any]] = {}
        for running in self.running:
            while not set(ranks) <= set(found):
                event = json.loads(running.wait_for_line(b'{"event": "stalled"').partition(b"] ")[2])
                found[event.get("rank")] = event
                if len(self.running) > 1:
                    break
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Ranks]]:
    """Starts a program as the ranks of one pod. The agent starts the ranks, unless `config` has a launcher."""
    with ExitStack() as stack:

        def starter(*command: str, ranks: int = 2, **config: Any) -> Ranks:
            variables = {
                "RANK": "{rank}",
                "LOCAL_RANK": "{local_rank}",
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port()),
            }
            own = {} if "launcher" in config else {"processes": ranks, "process_env": variables}
            pod = Pod(tmp_path)
            return Ranks(stack.enter_context(pod.start(*command, **{"hang": HANG, "grace": 1, **own, **config})))

        yield starter


def free_port() -> int:
    """Returns a port that no process uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def main_process(event: dict[str, Any]) -> dict[str, Any]:
    """Returns the rank's own process."""
    (found,) = [each for each in event["processes"] if each["kind"] == "rank"]
    process: dict[str, Any] = found
    return process


def stack(process: dict[str, Any]) -> list[str]:
    """Returns the functions of the main thread, innermost first."""
    return [frame[0] for frame in process["threads"][0]["frames"]] if process["threads"] else []


def waits(event: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Returns the unfinished collectives of a rank: name, sequence number, and the last finished one of the group."""
    return [(each["name"], each["seq"], each["done"]) for each in event["collectives"] if each["seq"]]
