"""Runs DAG files as `python FILE` does, in processes forked from one that has imported Airflow; a program of its own.

Called by workers.py as `python -m` with the number of a socket and names of modules that are to be imported besides:
imports and the versions of Airflow's API are twelve seconds of processor time, which each file would need again.

A message from the socket is a request: JSON of `path`, `directory` and `environment`, with two descriptors. The first
is where the file's process writes to; through the second, a socket, come its id and, when it is over, how it ended, as
os.wait says it. At the socket's end, however its owner has ended, this process ends, and with it those it has forked.
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
"""What a DAG's run imports only when it needs it."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Forked:
    """A process that runs a DAG file.

    Args:
        pid: its id.
        pidfd: a descriptor of it, which can be read when it is over.
        told: who waits for its end.
    """

    pid: int
    pidfd: int
    told: socket.socket

    def tell(self, number: int) -> None:
        with suppress(OSError):  # who asked may be gone
            self.told.send(str(number).encode())

    def close(self) -> None:
        self.told.close()
        os.close(self.pidfd)


def prepare(modules: Sequence[str]) -> None:
    """Does what each run of a DAG begins with, as long as it starts no thread: a fork would not take that along."""
    import httpx
    from airflow.sdk.execution_time.supervisor import in_process_api_server

    for name in (*MODULES, *modules):
        importlib.import_module(name)

    async def ask() -> None:
        async with httpx.AsyncClient(transport=in_process_api_server().atransport, base_url="http://here") as client:
            await client.get("/nothing")  # the versions are made when the first request comes, whatever it asks for

    asyncio.run(ask())
    threads = list(Path("/proc/self/task").iterdir())  # those that Python does not know of as well
    assert len(threads) == 1, f"{len(threads)} threads"
    gc.freeze()


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks a process for each request, and comes back in these: with what is to be done; in this one at the end."""
    parent, running = os.getpid(), list[Forked]()
    while True:
        ready = select.select([requests.fileno(), *(each.pidfd for each in running)], [], [])[0]
        for over in [each for each in running if each.pidfd in ready]:
            over.tell(os.waitpid(over.pid, 0)[1])
            over.close()
            running.remove(over)
        if requests.fileno() not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not message:
            return None
        output, told = fds
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
            os.close(told)
            return dict(json.loads(message))
        os.close(output)
        running.append(Forked(pid, os.pidfd_open(pid), socket.socket(fileno=told)))
        running[-1].tell(pid)


def become(request: dict[str, Any]) -> None:
    """Runs the DAG file, with nothing of this process but what it has imported."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    path = request["path"]
    sys.argv[:] = [path]
    sys.path[0] = str(Path(path).parent)
    runpy.run_path(path, run_name="__main__")


def main() -> None:
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal it comes to all; who asks has to end
    prepare(sys.argv[2:])
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        os._exit(0)  # taking all that was imported apart would take a second
    signal.signal(signal.SIGINT, interrupted)
    become(request)


if __name__ == "__main__":
    main()
