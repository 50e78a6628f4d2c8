"""`rank` reports whether its program has ever had a connection, without which it cannot be in a process group."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.agent.pods import AGENT
from tests.waiting import LIMIT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="connections are read from Linux's /proc")

WAIT = "import os, time; time.sleep(7)"
CONNECT = "import os, socket; s = socket.create_connection(('127.0.0.1', int(os.environ['MASTER_PORT'])))"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CONNECT + '; ' + WAIT!r}])"
PROGRAMS = {
    "alone": WAIT,
    "alone for a moment": "pass",
    "connected": f"{CONNECT}; {WAIT}",
    "connected for a moment": f"{CONNECT}; s.close(); {WAIT}",
    "with a connected child": CHILD,
    "without a port": WAIT,
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The event `exited` of each program; they run at the same time, and each has a server of its own."""
    servers = {name: socket.create_server(("127.0.0.1", 0)) for name in PROGRAMS}
    started = {}
    for name, program in PROGRAMS.items():
        directory = str(tmp_path_factory.mktemp("agent"))
        port = "" if name == "without a port" else str(servers[name].getsockname()[1])
        started[name] = subprocess.Popen(
            [sys.executable, AGENT, "rank", "--dir", directory, "--", sys.executable, "-c", program],
            env={**os.environ, "RANK": "3", "MASTER_PORT": port},
            stdout=subprocess.PIPE,
        )
    outputs = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    for server in servers.values():
        server.close()
    return {name: _end(output) for name, output in outputs.items()}


def _end(output: bytes) -> dict[str, Any]:
    head = b"[stepset] "
    events = [json.loads(line[len(head) :]) for line in output.splitlines() if line.startswith(head)]
    (end,) = [event for event in events if event["event"] == "exited"]
    assert (end["rank"], end["exit_code"]) == (3, 0)
    return dict(end)


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_a_program_that_runs_for_a_while_without_a_connection_is_alone(
    name: str, ends: dict[str, dict[str, Any]]
) -> None:
    assert ends[name].get("alone", 0) == (name == "alone")
