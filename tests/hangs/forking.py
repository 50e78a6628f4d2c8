"""Imports torch once, and then runs programs as ranks that it forks. The tests start it as the command of a pod.

Each line of the FIFO that the first argument names is a JSON object: the path of a program, and its number of ranks.
The ranks of the previous program are killed first. The agent's file `ranks` names the new ones, as if the agent had
started them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import torch.distributed
import torch.nn.parallel
import torch.utils.data  # noqa: F401


def run(path: str, rank: int, size: int, port: int) -> None:
    """Runs a program in this process."""
    os.setsid()
    env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in env.items()}, GLOO_SOCKET_IFNAME="lo")
    sys.argv = [path]
    namespace = sys.modules["__main__"].__dict__  # where pickle looks for functions
    namespace["__file__"] = path
    exec(compile(Path(path).read_text(), path, "exec"), namespace)


def free_port() -> int:
    """Returns a port that no process uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def main() -> None:
    """Runs the programs. Returns only in the ranks."""
    pids: list[int] = []
    print("imported", flush=True)
    while True:
        with Path(sys.argv[1]).open() as requests:
            request = json.loads(requests.read())
        for pid in pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        pids.clear()
        port = free_port()
        reader, writer = os.pipe()  # the ranks start after "forked" has been printed
        for rank in range(request["size"]):
            pid = os.fork()
            if not pid:
                os.close(writer)
                os.read(reader, 1)
                os.close(reader)
                return run(request["path"], rank, request["size"], port)
            pids.append(pid)
        with Path(sys.argv[2], "ranks").open("w") as file:
            file.writelines(f"{rank} {pid}\n" for rank, pid in enumerate(pids))
        print("forked", flush=True)
        os.close(reader)
        os.close(writer)


if __name__ == "__main__":
    main()
