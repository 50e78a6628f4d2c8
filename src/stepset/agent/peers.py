"""Waits until the host names of the other pods resolve, and counts the ranks of the run that a command starts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stepset.agent.config import Config
from stepset.agent.errors import EXIT_PEERS, EXIT_WORLD, IF_POSSIBLE, AgentError, setup_error
from stepset.agent.events import long_event
from stepset.agent.launch import first_number
from stepset.agent.loop import Loop, Streams, read_all, read_pipe
from stepset.agent.process import fork
from stepset.agent.signals import descendants, kill, signal


def peer_names(peers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the names to resolve. To limit the lookups, returns only the first name of a group with over 64 pods."""
    names = []
    for peer in peers:
        try:
            pattern, count = str(peer["pattern"]), int(peer["count"])
        except (KeyError, TypeError, ValueError) as error:
            raise setup_error(f"agent's config: peers: {peer!r} needs pattern and count") from error
        names += [pattern.replace("{index}", str(index)) for index in range(count if count <= 64 else 1)]
    return names


def wait_for_peers(config: Config, streams: Streams, turn: Callable[[float], None]) -> None:
    """Waits until every peer's name resolves.

    Args:
        streams: the streams that print the missing names.
        turn: handles output and signals until the given time (`time.monotonic`). Raises StopRequested after a stop.

    Raises:
        AgentError: names do not resolve within the config's `peer_timeout`, or an entry of its `peers` is invalid.
        StopRequested: a stop was requested.
    """
    # IPv4 addresses do not need a lookup.
    missing = [name for name in peer_names(config.peers) if not name.replace(".", "").isdigit()]
    deadline = time.monotonic() + config.peer_timeout
    pause, reported = 0.1, 0
    why = ""
    while missing:
        missing, problem = _resolve(missing, streams.loop, turn, deadline)
        why = problem or why  # If the last attempt is too short for an answer, keeps the earlier reason.
        if missing and len(missing) != reported:
            reported = len(missing)
            streams.out.put(long_event("waiting", {"missing": missing}))
        until = min(time.monotonic() + pause, deadline)
        while missing and time.monotonic() < until:
            turn(until)
        pause = min(pause * 2, 1.0)
        if missing and time.monotonic() >= deadline:
            names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            raise AgentError(
                EXIT_PEERS,
                "Rendezvous",
                f"{names} did not resolve within {config.peer_timeout:g} s ({why or 'no answer'});"
                " check that these pods and their headless Service exist",
            )
    turn(time.monotonic())  # Handles a stop that was requested before the event loop ran.


def _resolve(names: list[str], loop: Loop, turn: Callable[[float], None], deadline: float) -> tuple[list[str], str]:
    """Returns the names that do not resolve, and the reason for the first one (empty if no answer arrived in time)."""
    pid, pipe = _start_lookup(names)
    answers, ended = b"", False
    loop.watch(pipe, lambda: None)  # With this, `turn` returns when the pipe contains bytes.
    try:
        while not ended and time.monotonic() < deadline:
            turn(deadline)
            chunks, ended = read_all(pipe)
            answers += b"".join(chunks)
    finally:
        loop.forget(pipe)
        os.close(pipe)
        if not ended:
            kill([pid])
    problems = dict(line.split(" ", 1) for line in answers.decode("utf-8", "replace").splitlines())
    found = {name: problems.get(str(index)) for index, name in enumerate(names)}
    missing = {name: problem for name, problem in found.items() if problem != ""}
    return list(missing), next(filter(None, missing.values()), "")


def _start_lookup(names: Sequence[str]) -> tuple[int, int]:
    """Resolves names in a child process, because a lookup cannot be interrupted.

    Returns the child's pid and a pipe. The pipe contains a line per name: the index, and the problem if there is one.
    """
    import socket

    inner, outer = read_pipe(0)
    pid = fork(signal.SIGKILL)
    if pid:
        os.close(outer)
        return pid, inner
    try:
        for index, name in enumerate(names):
            problem = ""
            try:
                socket.getaddrinfo(name, None)
            except OSError as error:
                problem = error.strerror or str(error)
            except UnicodeError:
                problem = "not a host name"
            os.write(outer, f"{index} {problem}\n".encode())
    finally:
        os._exit(0)


_LEAST, _MOST = 0.25, 60.0  # seconds between two looks at the processes


class OwnRanks:
    """Counts the ranks that the command of a pod starts itself.

    A launcher sets the world size in the environment of each rank. The first world size that differs from that of the
    pod decides. If no process has a world size, the processes must at least have been connected.

    Args:
        expected: the number of ranks of the run.
        env: the environment of the command.
    """

    def __init__(self, expected: int, env: Mapping[str, str]) -> None:
        from stepset.agent.rank import SIZE

        self._expected = expected
        self._names = [name.encode() for name in SIZE]
        self._given = {f"{name}={env[name]}".encode() for name in SIZE if name in env}
        self._port = first_number(env, ("PET_MASTER_PORT", "MASTER_PORT"))
        self._started = time.monotonic()
        self._found = False
        self._connected = not sys.platform.startswith("linux")
        self.due = self._started + _LEAST

    def look(self) -> None:
        """Looks at the processes of the pod, and sets `due` to the time of the next look.

        Raises:
            AgentError: a process belongs to a world of another size.
        """
        from stepset.agent.rank import may_be_connected

        now = time.monotonic()
        self.due = now + min(_MOST, max(_LEAST, (now - self._started) / 60))
        pids = [] if self._found else descendants(os.getpid())
        for pid in pids:
            size = self._size(pid)
            if size == self._expected:
                self._found = self._connected = True
                return
            if size:
                raise self._error(f"the command started {size} {'rank' if size == 1 else 'ranks'} instead of")
        self._connected = self._connected or may_be_connected(pids, self._port)

    def check_end(self) -> None:
        """Raises AgentError if the processes of the command, which have ended, were never connected."""
        from stepset.agent.rank import may_be_connected

        if not self._connected and not may_be_connected((), self._port):
            raise self._error("the command ran alone in this node, as a world of 1 rank instead of")

    def _size(self, pid: int) -> int:
        """Returns the world size in the environment of a process, or 0."""
        with IF_POSSIBLE, open(f"/proc/{pid}/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                name, _, value = entry.partition(b"=")
                if name in self._names and entry not in self._given and value.isdigit():
                    return int(value)
        return 0

    def _error(self, started: str) -> AgentError:
        advice = "the launcher must start the ranks of all nodes; framework.launch: command turns this check off"
        return AgentError(EXIT_WORLD, "Rendezvous", f"{started} {self._expected}; {advice}")
