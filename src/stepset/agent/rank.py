"""The mode `rank`, which runs one rank of a launcher, prefixes its output, and reports its termination."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from stepset.agent.errors import EXIT_WORLD, IF_POSSIBLE, MESSAGE_LIMIT, SAMPLED, is_timeout
from stepset.agent.events import fitted, long_event, now, short_event
from stepset.agent.launch import add_hook, first_number, set_rank_env
from stepset.agent.lines import ATOMIC, Lines, Tail
from stepset.agent.loop import READ_SIZE, Loop, Out, is_ready, read_all, read_pipe, read_regular, reason_of
from stepset.agent.process import DRAIN, end_as, exit_code, oom_kills, outcome, spawn
from stepset.agent.redact import Redactor
from stepset.agent.signals import (
    HANDLED_SIGNALS,
    STOP_BY_MPIRUN,
    STOP_SIGNALS,
    STOPPING,
    descendants,
    forward_signal,
    group_exists,
    kill_data_loaders,
    kill_group,
    signal,
)

RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK")
SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE")
_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK")

_SAMPLES = 5.0  # seconds in which the agent samples the other ranks after a timeout of this rank
_ALONE = 5  # After this number of checks (one per second) that find no connection, a rank is reported as `alone`.


def run_rank(program: Sequence[str], directory: str, world: int, report: bool, redactor: Redactor) -> NoReturn:
    """Runs one rank, and then terminates this process with the exit code or the signal of the rank.

    Args:
        directory: the directory of the pod's agent. STEPSET_AGENT_DIR overrides it.
        world: the world size that the rank must have. 0 means any size.
        report: whether to also write failures and the result to standard output. mpirun forwards this output
            to the agent in mpirun's pod.
        redactor: replaces the values of Secrets in the failure and the result of the rank.
    """
    env = dict(os.environ)
    directory = env.get("STEPSET_AGENT_DIR") or directory
    number = first_number(env, RANK)
    out = _out_to_agent(directory)
    to_launcher = _out_to_launcher() if report and out else None
    out = out or _out_to_launcher()
    rank = Rank(number, env, out, to_launcher, redactor, os.path.join(directory, STOPPING), by_mpirun=report)
    if world:
        rank.check_world(world)
    set_rank_env(env, directory)
    add_hook(env, directory)
    rank.start(program)
    rank.watch()
    rank.finish()


def _out_to_agent(directory: str) -> Out | None:
    """Returns a writer to the FIFO of the agent in this pod, or None if no agent reads it."""
    try:
        fd = os.open(os.path.join(directory, "out"), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return Out(fd, atomic=True)


def _out_to_launcher() -> Out:
    """Returns a writer to standard output, or to standard error if only standard error is a pipe.

    Open MPI gives ranks a tty as standard output.
    """
    for fd in (1, 2):
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return Out(fd, atomic=True, spaced=True)
    return Out(1, atomic=True)


def may_be_connected(pids: Iterable[int], port: int) -> bool:
    """Returns whether a process has a socket, or a process recently closed a connection to the store at `port`.

    The kernel lists the connections of a terminated process for a minute. Returns True if no list can be read.
    """
    end = f":{port:04X}"
    try:
        for name in ("tcp", "tcp6"):
            with IF_POSSIBLE, open(f"/proc/net/{name}") as file:
                for line in file:
                    _, local, remote, state = line.split()[:4]
                    if "04" <= state <= "09" and end in (local[-5:], remote[-5:]):  # FIN_WAIT1 to LAST_ACK
                        return True
        for pid in pids:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                if os.readlink(entry.path)[:7] == "socket:":
                    return True
    except FileNotFoundError:  # The file was closed in the meantime.
        return False
    except OSError:
        return True
    return False


class Rank:
    """Runs one rank, from its start to its termination.

    Args:
        number: the rank in the world.
        report: a writer that also receives failures and the result, for an agent in another pod.
        redactor: replaces the values of Secrets in the failure and the result.
        stopping: the path of the file STOPPING.
        by_mpirun: whether mpirun started the rank. If so, the agent in mpirun's pod waits for the result of rank 0.
    """

    def __init__(
        self,
        number: int,
        env: dict[str, str],
        out: Out,
        report: Out | None,
        redactor: Redactor,
        stopping: str,
        *,
        by_mpirun: bool,
    ) -> None:
        self._stopping = stopping
        self._number = number
        self._env = env
        self._out = out
        self._report = report
        self._by_mpirun = by_mpirun
        self._hydra = "PMI_RANK" in env and "OMPI_COMM_WORLD_RANK" not in env
        self._lines = Lines(f"rank {number}", limit=ATOMIC)
        self._tail = Tail(redactor)
        self._parent = os.getppid()
        self._loop = Loop(HANDLED_SIGNALS)
        self._stop_requested = False
        self._oom_kills = oom_kills()
        self._pid = 0
        self._pipe = -1
        self._status: int | None = None
        self._port = first_number(env, ("MASTER_PORT",)) if sys.platform.startswith("linux") else 0
        self._looks = 0
        self._looked_at = 0.0

    def check_world(self, expected: int) -> None:
        """Terminates this process with code 71 if the launcher started a different number of ranks."""
        found = next((self._env[name] for name in SIZE if self._env.get(name)), None)
        if found == str(expected) or (found is None and expected == 1):
            return
        count = f"{found} {'rank' if found == '1' else 'ranks'}" if found else "an unknown number of ranks"
        error = (
            f"the launcher started {count} instead of {expected}; check that it reads the hostfile"
            " and that every node can start its ranks"
        )
        self._report_failure({"kind": "Rendezvous", "exit_code": EXIT_WORLD, "error": error, "at": now()})
        self._flush()
        end_as({"exit_code": EXIT_WORLD}, self._hydra)

    def start(self, program: Sequence[str]) -> None:
        if self._by_mpirun and self._number == 0:
            path = self._env["STEPSET_RESULT_FILE"]
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with IF_POSSIBLE:
                os.unlink(path)  # of an earlier attempt
        self._pipe, writer = read_pipe(1 << 18)
        self._pid = spawn(program, self._env, (0, writer, writer))
        os.close(writer)
        local = first_number(self._env, _LOCAL_RANK)
        self._out.put(short_event("started", rank=self._number, local_rank=local, pid=self._pid, wrapper=os.getpid()))
        self._loop.watch(self._pipe, self._read)

    def watch(self) -> None:
        """Forwards output and signals until the program has terminated and its pipe is empty."""
        ended_at = 0.0
        while self._pipe >= 0 or not ended_at or self._child_saves():
            self._turn(DRAIN if ended_at else 1.0)
            if self._port and time.monotonic() > self._looked_at + 0.9:
                self._look_for_connections()
            if not ended_at and self._ended():
                ended_at = time.monotonic()
                kill_data_loaders(self._pid)
            # A shell terminates as soon as it gets a stop signal. The program that it started may still be saving.
            if ended_at and time.monotonic() > ended_at + DRAIN and not self._stop_requested:
                break
        # Kills the processes that the program started. The program is still a zombie, so its pid is not used again.
        if self._status is None:
            kill_group(self._pid, signal.SIGKILL)
            self._status = os.waitpid(self._pid, 0)[1]
        if self._pipe >= 0:
            self._take(read_all(self._pipe)[0])

    def finish(self) -> NoReturn:
        """Reports the termination of the program, and terminates this process in the same way."""
        assert self._status is not None
        end = outcome(self._status)
        self._out.put(self._lines.finish())
        if self._port:
            self._look_for_connections()
        alone = {"alone": 1} if self._port and self._looks > _ALONE else {}
        self._out.put(short_event("exited", rank=self._number, **end, at=now(), **alone))
        if exit_code(end) and not self._stop_requested:
            from stepset.agent.diagnosis import failure_of

            failure = failure_of(self._status, self._tail, self._env, self._oom_kills)
            sampled = os.path.join(os.path.dirname(self._stopping), SAMPLED)
            with IF_POSSIBLE:
                os.unlink(sampled)
            self._report_failure(failure)
            if is_timeout(failure["error"]):
                self._wait_for_samples(sampled)
        elif self._by_mpirun and self._number == 0 and not exit_code(end):
            (self._report or self._out).put(self._result())
        self._flush()
        while self._stop_requested and os.path.exists(self._stopping):
            self._turn(0.05)
        end_as(end, self._hydra)

    def _wait_for_samples(self, sampled: str) -> None:
        """Waits until the agent has sampled the other ranks, if it looks for hangs."""
        until = time.monotonic() + _SAMPLES
        watched = os.path.exists(os.path.join(os.path.dirname(sampled), "agent.pid"))
        while watched and not self._stop_requested and not os.path.exists(sampled) and time.monotonic() < until:
            self._turn(0.05)

    def _child_saves(self) -> bool:
        """Returns whether a process that the stopped program started still runs. It may be saving."""
        if not self._stop_requested:
            return False
        if self._status is None:
            self._status = os.waitpid(self._pid, 0)[1]
        return group_exists(self._pid)

    def _look_for_connections(self) -> None:
        """Sets `_port` to 0 if the program may have joined a process group of torch.distributed."""
        self._looks += 1
        self._looked_at = time.monotonic()
        if may_be_connected((self._pid, *descendants(self._pid)), self._port):
            self._port = 0

    def _result(self) -> bytes:
        """Returns the event with the result. The agent in the launcher's pod checks the result."""
        path = self._env["STEPSET_RESULT_FILE"]
        if not os.path.lexists(path):
            return b""
        mark = b"[stepset %d]" % self._number
        try:
            size, data = read_regular(path, MESSAGE_LIMIT)
        except OSError as error:
            return long_event("result", {"size": 0, "text": "", "problem": reason_of(error)}, mark)
        text = self._redacted(data).decode("utf-8", "surrogateescape") if size <= MESSAGE_LIMIT else ""
        return long_event("result", {"size": size, "text": text}, mark)

    def _redacted(self, data: bytes) -> bytes:
        try:
            return self._tail.redactor.json(data)
        except ValueError:
            return data  # The agent rejects this data.

    def _report_failure(self, failure: Mapping[str, Any]) -> None:
        event = {"event": "failed", "rank": self._number, **failure}
        self._out.put(fitted(event, ATOMIC, "[stepset] %s\n"))
        if self._report:
            self._report.put(fitted({**event, "reported": True}, ATOMIC, "[stepset] %s\n"))

    def _turn(self, timeout: float) -> None:
        """Handles output and signals once. Stops the rank if its launcher or its agent has terminated."""
        self._out.flush()
        if self._out.waits_for_reader:
            timeout = min(timeout, 0.001)
        waiting = select.POLLOUT if self._out.pending and not self._out.waits_for_reader else 0
        self._loop.watch(self._out.fd, self._out.flush, waiting)
        if self._pipe >= 0:
            # A slow reader slows the rank down instead of filling the memory.
            self._loop.watch(self._pipe, self._read)
            if self._out.pending > READ_SIZE * 4:
                self._loop.forget(self._pipe)
        for number in self._loop.turn(timeout):
            if number != signal.SIGCHLD:
                self._on_signal(number)
        if self._orphaned():
            if self._pid and self._status is None:
                kill_group(self._pid, signal.SIGKILL)
            os._exit(128 + signal.SIGKILL)

    def _on_signal(self, number: int) -> None:
        """Forwards a signal. Only the first stop signal is forwarded, as both launcher and agent may send one."""
        if self._by_mpirun and number == STOP_BY_MPIRUN:
            number = signal.SIGTERM
        if number in STOP_SIGNALS:
            if self._stop_requested:
                return
            self._stop_requested = True
        if self._pid and self._status is None:
            forward_signal(self._pid, number)

    def _orphaned(self) -> bool:
        """Returns whether the launcher or the agent has terminated."""
        return os.getppid() != self._parent or self._out.broken or is_ready(self._out.fd, 0)

    def _flush(self) -> None:
        self._out.flush()
        while self._out.pending:
            self._turn(0.05)
        deadline = time.monotonic() + 1
        while self._report and self._report.pending and not self._report.broken and time.monotonic() < deadline:
            self._report.flush()
            time.sleep(0.001)
        # Waits until the launcher has read the last lines. It may exit as soon as this process exits.
        last = self._report or self._out
        while (last.waits_for_reader or (last is not self._out and last.unread)) and time.monotonic() <= deadline:
            time.sleep(0.001)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, READ_SIZE)
        except BlockingIOError:
            return
        if data:
            self._take([data])
        else:
            self._loop.forget(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _take(self, chunks: Iterable[bytes]) -> None:
        for data in chunks:
            self._tail.add(data)
            self._out.put(self._lines.feed(data))

    def _ended(self) -> bool:
        """Returns whether the program has terminated. It stays a zombie, so its pid is not used again."""
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        pid, status = os.waitpid(self._pid, os.WNOHANG)  # macOS
        if pid:
            self._status = status
        return bool(pid)
