"""`rsh` and its server, which replace ssh and sshd between the nodes of a local run."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from stepset.agent.errors import IF_POSSIBLE, setup_error
from stepset.agent.loop import READ_SIZE, Loop
from stepset.agent.process import exit_code, outcome, spawn
from stepset.agent.signals import LIFELINE_GRACE, descendants, kill, kill_group, signal


class Request:
    """A command that an `rsh` process requested. The connection closes when the `rsh` process terminates."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.command = b""
        self.fds: list[int] = []
        self.pid = 0
        self.kill_at = 0.0


class Server:
    """Runs commands for `rsh`. They get the environment of this pod, and the standard streams of the `rsh` process.

    Raises:
        AgentError: the server cannot listen on the Unix socket `path`.
    """

    def __init__(self, path: str, env: Mapping[str, str], work_dir: str, loop: Loop) -> None:
        self._env = env
        self._work_dir = work_dir
        self._loop = loop
        self._stopping = False
        self.running: dict[int, Request] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with IF_POSSIBLE:
                os.unlink(path)
            with UnixPath(path) as address:
                before = os.umask(0o177)  # With this umask, only this user can connect to the socket.
                try:
                    self._listener.bind(address)
                finally:
                    os.umask(before)
            self._listener.listen(64)
        except OSError as error:
            raise setup_error(f"cannot listen on {path}: {error.strerror or error}") from error
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), self._accept)

    def deadlines(self) -> list[float]:
        """Returns the times of the monotonic clock at which commands are killed."""
        return [request.kill_at for request in self.running.values() if request.kill_at]

    def act_on_deadlines(self, at: float) -> None:
        """Kills the commands whose deadline has passed at time `at` of the monotonic clock."""
        for request in self.running.values():
            if request.kill_at and at >= request.kill_at:
                request.kill_at = 0.0
                kill([*descendants(request.pid), request.pid])

    def stop(self, number: int) -> None:
        """Stops accepting commands, and sends a signal to the running commands."""
        self._stopping = True
        self._loop.forget(self._listener.fileno())
        self._listener.close()
        for pid in self.running:
            kill_group(pid, number)

    def on_exit(self, pid: int, status: int) -> None:
        """Sends the exit code of a terminated command to its `rsh` process. Ignores all other processes."""
        request = self.running.pop(pid, None)
        if request is None:
            return
        self._loop.forget(request.connection.fileno())
        with IF_POSSIBLE:
            request.connection.sendall(b"%d\n" % exit_code(outcome(status)))
        request.connection.close()

    def _accept(self) -> None:
        with IF_POSSIBLE:
            connection = self._listener.accept()[0]
            connection.setblocking(False)
            request = Request(connection)
            self._loop.watch(connection.fileno(), lambda: self._receive(request))

    def _receive(self, request: Request) -> None:
        """Reads the next part of a request. When the request is complete, starts its command."""
        data = b""
        try:
            data, extra, _, _ = request.connection.recvmsg(READ_SIZE, socket.CMSG_SPACE(3 * 4))
        except BlockingIOError:
            return
        except OSError:
            extra = []
        for _, _, fds in extra:
            request.fds += struct.unpack(f"{len(fds) // 4}i", fds)
        request.command += data
        if not data:
            self._on_hang_up(request)
        elif not request.pid and request.command.endswith(b"\0") and len(request.fds) == 3 and not self._stopping:
            first, second, third = request.fds
            argv = ["/bin/sh", "-c", os.fsdecode(request.command[:-1])]
            request.pid = spawn(argv, self._env, (first, second, third), work_dir=self._work_dir)
            self.running[request.pid] = request
            for fd in request.fds:
                os.close(fd)

    def _on_hang_up(self, request: Request) -> None:
        """Stops the command of an `rsh` process that has terminated."""
        self._loop.forget(request.connection.fileno())
        if request.pid in self.running:
            kill_group(request.pid, signal.SIGTERM)
            request.kill_at = time.monotonic() + LIFELINE_GRACE
        else:
            request.connection.close()


class UnixPath:
    """The address of a Unix socket. Its path may be longer than the limit for addresses, which is about 100 bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) < 100:
            return self._path
        directory, name = os.path.split(self._path)
        self._fd = os.open(directory, os.O_RDONLY)
        return f"/proc/self/fd/{self._fd}/{name}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def run_rsh(directory: str, host: str, words: Sequence[str]) -> NoReturn:
    """Runs a command in the pod with the name `host`. Exits with its exit code, or with 255 after an error, like ssh.

    Args:
        directory: the directory that contains a socket with the name `host`.
        words: the words of the command. As with ssh, they become one line for a shell.
    """
    path = os.path.join(directory, host)
    connection = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + 10
    while True:
        try:
            with UnixPath(path) as address:
                connection.connect(address)
            break
        except OSError as error:
            if time.monotonic() > deadline or not os.path.isdir(directory):
                os.write(2, f"stepset: no node {host} at {path}: {error.strerror}\n".encode())
                os._exit(255)
            time.sleep(0.05)
    request = os.fsencode(" ".join(words)) + b"\0"
    answer = b""
    with IF_POSSIBLE:
        sent = connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("3i", 0, 1, 2))])
        if sent < len(request):
            connection.sendall(request[sent:])
        answer = connection.recv(16)
    os._exit(int(answer) if answer else 255)
