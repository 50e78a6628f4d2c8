"""The mode `run`, which runs one pod, from the preparation of its files to its termination message."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from stepset.agent.bundle import Bundle
from stepset.agent.children import Child, Children
from stepset.agent.config import Config
from stepset.agent.errors import EXIT_WORLD, IF_POSSIBLE, AgentError, StopRequested, is_timeout
from stepset.agent.events import (
    WITHHELD,
    RankEvents,
    failure_of_agent,
    long_event,
    now,
    read_result,
    report_failure,
    short_event,
    write_termination_log,
)
from stepset.agent.launch import add_hook, launcher_command, newest_checkpoint, node_rank, pod_env, process_env
from stepset.agent.lines import LauncherLines, Lines, PartJoiner
from stepset.agent.loop import READ_SIZE, Loop, Out, Streams
from stepset.agent.peers import OwnRanks, wait_for_peers
from stepset.agent.process import DRAIN, become_subreaper, exit_code, outcome
from stepset.agent.redact import make_redactor
from stepset.agent.setup import create_fifo, put_in_place, remove_reports, write_hook
from stepset.agent.signals import HANDLED_SIGNALS, LIFELINE_GRACE, STOP_SIGNALS, USER_SIGNALS, descendants, signal
from stepset.agent.stopping import Stopping

_LINGER = 0.5  # seconds between the exit of a command and the kill of its remaining processes


def _output(config: Config) -> Any:
    """Returns the standard output of the agent. With `hang`, it records the times of the lines."""
    if not config.hang_after:
        return Out(1)
    from stepset.agent.hangs.watcher import ProgressOut

    return ProgressOut(1)


class Pod:
    """Runs the processes of one pod.

    Args:
        command: the command of the pod. It is empty for a pod that serves `rsh`.
        env: the environment of the agent.
        bundle: the agent's file. A launcher starts this file in the mode `rank` for each rank.
    """

    def __init__(self, config: Config, command: Sequence[str], env: Mapping[str, str], bundle: Bundle) -> None:
        self._config = config
        self._command = command
        self._bundle = bundle
        self._node = node_rank(env)
        self._source = config.source.replace("{node_rank}", str(self._node))
        self._env = pod_env(config, env)
        self._out = _output(config)
        self._streams = Streams(self._out, Loop(HANDLED_SIGNALS))
        self._failures: list[dict[str, Any]] = []
        self._redactor = make_redactor(env, config.secrets, config.secret_files)
        self._ranks = RankEvents(config, self._failures, self._add_failure, self._print_held_part)
        self._joiner = PartJoiner(self._ranks.see, self._redactor)
        self._children = Children(config, self._env, self._node, self._streams, self._redactor)
        self._stopping = Stopping(config, self._children, self._ranks)
        self._own_ranks: OwnRanks | None = None
        self._watcher: Any = None  # a Watcher; its module is imported only if the job wants it
        self._has_result = False
        self._completed = False  # Whether the command has exited by itself.
        self._fifo = -1
        if env.get("STEPSET_LIFELINE") == "1":
            self._streams.loop.watch(0, self._on_lifeline)

    def run(self) -> int:
        """Runs the pod and returns its exit code."""
        try:
            become_subreaper()
            if self._redactor:
                write_termination_log(self._config, WITHHELD)
            self._fifo = create_fifo(self._config, self._env)
            self._streams.add(self._fifo, self._read_fifo)
            put_in_place(self._config, self._env, self._node == 0)
            if self._config.hang_after:
                write_hook(self._config, self._bundle.get_source)
                add_hook(self._env, self._config.dir)
            wait_for_peers(self._config, self._streams, self._turn_before_start)
            self._start()
            while not self._done():
                self._turn(self._until_next_deadline())
                self._act_on_deadlines()
            self._completed = not self._stopping.started_at
        except AgentError as error:
            self._fail(failure_of_agent(error))
        except StopRequested:
            pass
        self._clear_away()
        code = self._verdict()
        if self._redactor:
            remove_reports(self._config, self._env)
            if not code and not self._has_result:
                write_termination_log(self._config, b"")
        self._flush()
        return code

    def _turn_before_start(self, until: float) -> None:
        self._turn(until - time.monotonic())
        if self._stopping.started_at:
            raise StopRequested

    def _start(self) -> None:
        config = self._config
        if config.in_world and not self._node and (found := newest_checkpoint(self._env, config.written)):
            self._out.put(long_event("resuming", {"text": found[1], "at": found[0] / 1e9}))
        if config.serve:
            from stepset.agent.rsh import Server

            self._children.server = Server(config.serve, self._env, config.work_dir, self._streams.loop)
            self._out.put(b'[stepset] {"event": "ready"}\n')
        elif config.processes:
            self._ranks.seen.update(self._children.start_ranks(self._command, self._source))
        elif config.launcher:
            joiner, redactor = self._joiner, self._redactor
            lines = LauncherLines(self._source, joiner, redactor) if config.mpi else Lines(self._source, redactor)
            env = process_env(config, self._env, self._node, 0)
            # Ranks in other pods can use this file, but their pods do not have its compiled copy.
            agent = self._bundle.path if config.mpi else self._bundle.compiled(config.dir)
            self._children.start(launcher_command(config, self._command, env, agent), env, lines)
        else:
            # After SIGTERM, a command can stop the ranks that it started. After SIGKILL, the ranks would not terminate.
            env = process_env(config, self._env, self._node, 0)
            self._children.start(self._command, env, Lines(self._source, self._redactor), death_signal=signal.SIGTERM)

        if config.hang_after:
            from stepset.agent.hangs.watcher import Watcher

            checkpoints = self._env.get("STEPSET_CHECKPOINT_DIR", "")
            self._watcher = Watcher(
                config, self._out, self._streams, checkpoints, self._redactor, self._end_because_of_hang
            )
            self._stopping.watcher = self._watcher
        if config.counts_ranks:
            self._own_ranks = OwnRanks(config.world_size, self._env)

    def _done(self) -> bool:
        server = self._children.server
        if server:
            return bool(self._stopping.started_at) and not server.running
        return all(child.done for child in self._children.all)

    def _until_next_deadline(self) -> float:
        """Returns the number of seconds until the next deadline."""
        due = self._stopping.deadlines()
        if self._children.server:
            due += self._children.server.deadlines()
        if self._own_ranks:
            due.append(self._own_ranks.due)
        if self._watcher:
            due.append(self._watcher.due)
        due += [child.ended_at + DRAIN for child in self._children.all if child.status is not None and not child.done]
        return min(due) - time.monotonic() if due else 3600.0

    def _act_on_deadlines(self) -> None:
        at = time.monotonic()
        for child in self._children.all:
            if child.status is not None and not child.done and (not child.open or at >= child.ended_at + DRAIN):
                self._report_end(child)
        if self._watcher:
            self._watcher.act_on_deadlines(at)
        self._stopping.act_on_deadlines(at)
        if self._children.server:
            self._children.server.act_on_deadlines(at)
        if self._own_ranks and at >= self._own_ranks.due:
            try:
                self._own_ranks.look()
            except AgentError as error:
                self._own_ranks = None
                self._fail(failure_of_agent(error))

    def _report_end(self, child: Child) -> None:
        """Prints the last lines of a child that has terminated, and then reports its termination."""
        assert child.status is not None
        # If the reader of the agent's output is slow, the pipes may contain more than the agent could read in DRAIN
        # seconds. The loop reads no more than a pipe can contain, because processes of the child may continue to write.
        for _ in range(64):
            if not self._read_fifo() and not (child.open and self._children.read(child)):
                break
        self._children.finish(child)
        end = outcome(child.status)
        if child.rank is not None:
            self._out.put(short_event("exited", rank=child.rank, **end, at=now()))
        if exit_code(end) and not self._stopping.started_at and (child.rank is not None or not self._failures):
            self._fail(child.failure(child.status, self._children.oom_kills, self._config))

    def _fail(self, failure: dict[str, Any]) -> None:
        """Prints a failure that no rank has reported, and adds it to the failures of the pod."""
        failure = self._redactor.failure(failure)
        self._out.put(long_event("failed", {key: value for key, value in failure.items() if key != "tail"}))
        self._add_failure(failure)

    def _add_failure(self, failure: dict[str, Any]) -> None:
        started_at = self._stopping.started_at
        if started_at and failure["at"] > started_at:
            return  # The stop has caused this failure.
        self._failures.append(self._redactor.failure(failure))
        if self._watcher:
            self._watcher.has_failed_rank = True
            if is_timeout(failure["error"]):
                seconds = self._stopping.time_for_samples(self._config.grace)
                self._watcher.take_last_samples(seconds, after_failure=True)
        self._stopping.after_failure()

    def _end_because_of_hang(self, failure: dict[str, Any]) -> None:
        """Stops the ranks, which have made no progress, and fails."""
        self._stopping.start(signal.SIGTERM, self._config.grace)
        self._fail(failure)

    def _turn(self, timeout: float) -> None:
        """Handles output, input, signals and terminated processes once."""
        self._out.flush()
        if self._out.broken and not self._stopping.started_at:
            self._stopping.start(signal.SIGTERM, LIFELINE_GRACE)
        for number in self._streams.turn(timeout):
            if number in STOP_SIGNALS:
                self._stopping.request(number)
            elif number in USER_SIGNALS:
                self._children.forward_user_signal(number)
        self._children.reap()

    def _read_fifo(self) -> bool:
        """Reads a chunk that `rank` processes have written. Returns False if no data is available now."""
        try:
            data = os.read(self._fifo, READ_SIZE)
        except OSError:  # BlockingIOError, or there is no FIFO, because the setup failed.
            return False
        self._out.put(self._joiner.feed(data))
        return True

    def _print_held_part(self, rank: int) -> None:
        """Prints the incomplete line of a rank that was killed, before the rank starts again."""
        self._out.put(self._joiner.finish(b"rank %d" % rank))

    def _on_lifeline(self) -> None:
        data = b""
        with IF_POSSIBLE:
            data = os.read(0, READ_SIZE)
        if not data:
            self._streams.loop.forget(0)
            self._stopping.requested = self._stopping.requested or signal.SIGTERM
            self._stopping.start(signal.SIGTERM, LIFELINE_GRACE)

    def _clear_away(self) -> None:
        """Stops the remaining processes, and prints the remaining lines."""
        if self._watcher:
            self._watcher.stop()
        until = time.monotonic() + _LINGER
        while self._children.reap() and not self._stopping.kill_is_due():
            # A process that a stopped rank started may still save.
            lingers = (self._stopping.requested and not self._completed) or time.monotonic() < until
            if not self._children.signalled_groups_alive() and not (lingers and descendants(os.getpid())):
                break
            self._turn(0.02)
        self._children.kill_all()
        for child in self._children.all:
            while child.open and self._children.read(child):
                pass
            if not child.done:
                self._children.finish(child)
        while self._read_fifo():
            pass
        self._out.put(self._joiner.finish())
        for rank in sorted(self._ranks.running):  # The `rank` processes of these ranks were killed without a report.
            self._out.put(short_event("exited", rank=rank, signal=int(signal.SIGKILL), at=now()))

    def _verdict(self) -> int:
        """Reports the result or the first failure, and returns the exit code of the pod."""
        code = self._children.exit_code()
        stopped_by = 0 if self._completed else self._stopping.requested or signal.SIGPIPE
        if not code and self._config.launcher_restarts:
            self._failures.clear()
            if not stopped_by:
                self._check_last_round()
        if not self._failures and not code and not stopped_by:
            try:
                if self._own_ranks:
                    self._own_ranks.check_end()
                self._report_result()
            except AgentError as error:
                self._fail(failure_of_agent(error))
        if self._failures:
            launcher_code = code if not self._config.processes and not self._stopping.started_at else 0
            return report_failure(self._config, self._failures, launcher_code)
        if stopped_by:
            # The code is not 0, even if the command exits with 0, because a stopped rank has not finished its work.
            return 0 if self._children.server else 128 + stopped_by
        return code

    def _check_last_round(self) -> None:
        """Adds a failure if torchrun has exited with 0, although another node failed in torchrun's last round."""
        from stepset.agent.diagnosis import left_alone

        if any(left_alone(child.tail.text(), self._node) for child in self._children.all):
            error = "not every node of torchrun's last round has ended with 0; a node was lost, or its ranks failed"
            self._fail(failure_of_agent(AgentError(EXIT_WORLD, "Rendezvous", error)))

    def _report_result(self) -> None:
        try:
            result = read_result(self._config, self._env, self._ranks, self._redactor)
        except AgentError as error:
            self._fail({"rank": 0, **failure_of_agent(error)})
            return
        if result is not None:
            self._out.put(b'[stepset] {"event": "result", "result": %s}\n' % result.replace(b"\n", b" "))
            write_termination_log(self._config, result)
            self._has_result = True

    def _flush(self) -> None:
        """Writes the last lines. Waits for a slow reader. After a request to stop, waits at most one second."""
        requested, deadline = self._stopping.requested, time.monotonic() + (1.0 if self._stopping.requested else 1e9)
        self._out.flush()
        while self._out.pending and time.monotonic() < deadline:
            self._turn(0.05)
            if self._stopping.requested != requested:
                requested, deadline = self._stopping.requested, time.monotonic() + 1.0
