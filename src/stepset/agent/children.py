"""The processes that a pod's agent starts: ranks, a launcher, a plain command, or commands that `rsh` requests."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from stepset.agent.config import Config
from stepset.agent.errors import ERROR_FILE
from stepset.agent.events import short_event
from stepset.agent.launch import process_env
from stepset.agent.lines import Lines, Tail
from stepset.agent.loop import READ_SIZE, Streams, read_pipe
from stepset.agent.process import exit_code, oom_kills, outcome, spawn
from stepset.agent.redact import Redactor
from stepset.agent.rsh import Server
from stepset.agent.setup import record_rank, remove
from stepset.agent.signals import descendants, forward_signal, group_exists, kill, kill_data_loaders, kill_group, signal


class Child:
    """A process that the agent has started, and its output.

    Args:
        rank: the rank of the process. None for a launcher, or a command that is not a rank.
        pipe: the read end of the pipe with the output.
        lines: the object that adds a prefix to each line of the output.
    """

    def __init__(
        self, pid: int, rank: int | None, pipe: int, lines: Lines, env: Mapping[str, str], redactor: Redactor
    ) -> None:
        self.pid = pid
        self.rank = rank
        self.pipe = pipe
        self.lines = lines
        self.env = env
        self.tail = Tail(redactor)
        self.open = True
        self.status: int | None = None
        self.ended_at = 0.0
        self.done = False
        self.group_signalled = False

    def failure(self, status: int, oom_kills_before: int, config: Config) -> dict[str, Any]:
        """Returns the failure of the process. If a launcher reports a failed rank, returns the failure of this rank.

        For a launcher, this method is called only if no `agent.py rank` has reported a failure. If mpirun's output
        contains no failed rank, `failed_by_itself` decides whether mpirun itself has failed.
        """
        from stepset.agent.diagnosis import failed_by_itself, failure_of, find_error, launcher_report

        launches = self.rank is None and not config.processes
        failure = failure_of(status, self.tail, self.env, oom_kills_before, launches=launches)
        if self.rank is not None:
            return {"rank": self.rank, **failure}
        report = launcher_report(self.tail.text())
        if config.mpi and not report and failed_by_itself(self.tail.text(), failure, wrapped=bool(config.launcher)):
            failure["kind"] = "Infrastructure"
        if "exit_code" in report or "signal" in report:
            failure = {key: value for key, value in failure.items() if key not in ("exit_code", "signal")}
        if "rank" in report:
            error_file = self.env.get(ERROR_FILE, "")
            failure["error"] = find_error(self.tail.text(), error_file, report["rank"], self.tail.redactor)
        return {**report, **failure}


class Children:
    """All processes that the agent has started.

    Args:
        env: the environment of the pod's command.
        node: the index of the pod in its group.
        streams: the streams that receive the output of the processes.
        redactor: replaces the values of Secrets in the failures of the processes.
    """

    def __init__(self, config: Config, env: Mapping[str, str], node: int, streams: Streams, redactor: Redactor) -> None:
        self.all: list[Child] = []
        self.server: Server | None = None
        self.oom_kills = oom_kills()
        self._config = config
        self._env = env
        self._node = node
        self._streams = streams
        self._redactor = redactor

    def start_ranks(self, command: Sequence[str], source: str) -> list[int]:
        """Starts `config.processes` copies of a command and returns the ranks of the processes.

        If the pod is not part of the world, its processes have no ranks, and their output has the prefix `source`.
        """
        config, ranks = self._config, []
        for local in range(config.processes):
            rank = self._node * config.processes + local
            env = process_env(config, self._env, self._node, local)
            if local:
                env[ERROR_FILE] += f".{local}"
                remove(env[ERROR_FILE])
            if not config.in_world:
                self.start(command, env, Lines(source, self._redactor))
                continue
            child = self.start(command, env, Lines(f"rank {rank}", self._redactor), rank)
            ranks.append(rank)
            record_rank(config, rank, child.pid)
            self._streams.out.put(short_event("started", rank=rank, local_rank=local, pid=child.pid))
        return ranks

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        lines: Lines,
        rank: int | None = None,
        death_signal: int = signal.SIGKILL,
    ) -> Child:
        """Starts one process. The kernel sends the signal `death_signal` to this process when the agent terminates."""
        inner, outer = read_pipe(1 << 18)
        # Only the launcher of a local MPI job has a standard input, which mpirun forwards to rank 0.
        source = self._config.stdin or os.open(os.devnull, os.O_RDONLY)
        pid = spawn(command, env, (source, outer, outer), death_signal=death_signal, work_dir=self._config.work_dir)
        os.close(source)
        os.close(outer)
        child = Child(pid, rank, inner, lines, env, self._redactor)
        self.all.append(child)
        self._streams.add(inner, lambda: self.read(child))
        return child

    def read(self, child: Child) -> bool:
        """Reads a chunk of a child's output. Returns False if no output is available now."""
        try:
            data = os.read(child.pipe, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._streams.remove(child.pipe)
            os.close(child.pipe)
            child.open = False
            return False
        child.tail.add(data)
        self._streams.out.put(child.lines.feed(data))
        return True

    def finish(self, child: Child) -> None:
        """Prints the last line of a child whose output has been read."""
        child.done = True
        self._streams.out.put(child.lines.finish())

    def running(self) -> list[Child]:
        return [child for child in self.all if child.status is None]

    def signalled_groups_alive(self) -> bool:
        """Returns whether any process is running in a group that got a stop signal. The process may be saving state."""
        return any(child.group_signalled and group_exists(child.pid) for child in self.all)

    def exit_code(self) -> int:
        """Returns the exit code of the first child that failed, or 0 if no child failed."""
        return next((exit_code(outcome(child.status)) for child in self.all if child.status), 0)

    def reap(self) -> bool:
        """Records the processes that have terminated, and returns whether other processes still run."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            for child in self.running():
                if child.pid == pid:
                    child.status, child.ended_at = status, time.monotonic()
                    kill_data_loaders(pid)
            if self.server:
                self.server.on_exit(pid, status)

    def forward_user_signal(self, number: int) -> None:
        for child in self.running():
            forward_signal(child.pid, number)

    def forward(self, number: int) -> None:
        """Sends a stop signal to every child. If the pod runs a server, the server stops accepting commands."""
        for child in self.running():
            child.group_signalled = forward_signal(child.pid, number)
        if self.server:
            self.server.stop(number)

    def kill_all(self) -> None:
        """Kills all descendants of the agent, including processes that have left their process group."""
        deadline = time.monotonic() + 5
        while self.reap():
            left = descendants(os.getpid())
            kill(left)
            for child in self.running():
                kill_group(child.pid, signal.SIGKILL)
            if not left and not self.running():
                return
            if time.monotonic() > deadline:  # a process waits for a disk or a device
                os.write(2, f"stepset: processes {left} cannot be killed\n".encode())
                return
            time.sleep(0.005)
