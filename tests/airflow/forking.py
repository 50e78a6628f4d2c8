"""Runs DAG files as `python FILE` does, in processes forked from one that has imported Airflow; a separate program.

workers.py starts it as `python -m` with the descriptor of a socket and the names of additional modules to import.
Imports and the versions of Airflow's API take twelve seconds of processor time, which each file would otherwise repeat.

A message on the socket is a request: JSON of `path`, `directory` and `environment`, with two descriptors. The first
receives the output of the file's process. The second is a socket that receives the process id and, when the process
has ended, its status as of os.wait. When the socket closes, also because its owner was killed, this process ends, and
with it all processes that it has forked.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepset.agent.process import prctl

MODULES = ("stepset_airflow.operators.distributed_train", "airflow.dag_processing.dagbag", "a2wsgi")
"""Modules that a DAG run imports lazily."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Forked:
    """A process that runs a DAG file.

    Args:
        pid: its id.
        pidfd: its descriptor, readable once the process has ended.
        replies: the socket that receives its id and its status.
    """

    pid: int
    pidfd: int
    replies: socket.socket

    def send(self, number: int) -> None:
        with suppress(OSError):  # the requester may have ended
            self.replies.send(str(number).encode())

    def close(self) -> None:
        self.replies.close()
        os.close(self.pidfd)


def prepare(modules: Sequence[str]) -> None:
    """Does the start-up work that DAG runs share. It must start no thread, because a fork does not copy threads."""
    from airflow.sdk.execution_time.supervisor import in_process_api_server

    for name in (*MODULES, *modules):
        importlib.import_module(name)

    transport = in_process_api_server().atransport
    http = importlib.import_module(type(transport).__module__.partition(".")[0])  # httpx; httpx2 in Airflow 3.4

    async def send_request() -> None:
        async with http.AsyncClient(transport=transport, base_url="http://here") as client:
            await client.get("/nothing")  # the first request, for any path, builds the versions

    asyncio.run(send_request())
    threads = list(Path("/proc/self/task").iterdir())  # also those that Python did not start
    assert len(threads) == 1, f"{len(threads)} threads"
    gc.freeze()


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks a process for each request; returns the request in the fork, and None here once the socket has closed."""
    parent, running = os.getpid(), list[Forked]()
    while True:
        ready = select.select([requests.fileno(), *(each.pidfd for each in running)], [], [])[0]
        for over in [each for each in running if each.pidfd in ready]:
            over.send(os.waitpid(over.pid, 0)[1])
            over.close()
            running.remove(over)
        if requests.fileno() not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not message:
            return None
        output, replies = fds
        pid = os.fork()
        if not pid:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            for each in running:
                each.close()
            requests.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            os.close(replies)
            return dict(json.loads(message))
        os.close(output)
        running.append(Forked(pid, os.pidfd_open(pid), socket.socket(fileno=replies)))
        running[-1].send(pid)


def become(request: dict[str, Any]) -> None:
    """Runs the DAG file in the requester's directory and environment."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    path = request["path"]
    sys.argv[:] = [path]
    sys.path[0] = str(Path(path).parent)
    runpy.run_path(path, run_name="__main__")


def main() -> None:
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the requester handles it
    prepare(sys.argv[2:])
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        os._exit(0)  # skips the teardown of the imports, which takes a second
    signal.signal(signal.SIGINT, interrupted)
    become(request)


if __name__ == "__main__":
    main()
