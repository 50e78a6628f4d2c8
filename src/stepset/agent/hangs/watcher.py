"""Watches the progress of a pod. If there is none, samples the pod's ranks and prints the event `stalled`.

docs/design/hangs.md describes what progress is, and the limits. A child process takes the samples: what the ranks
write cannot delay or break the agent. Only this child imports the modules for samples.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from stepset.agent.config import Config
from stepset.agent.events import long_event, now, short_event
from stepset.agent.hangs.training import Training
from stepset.agent.launch import hook_directory
from stepset.agent.loop import Out, Streams, read_all, read_pipe
from stepset.agent.process import fork
from stepset.agent.redact import Redactor, parse_json
from stepset.agent.signals import kill, signal

_PAUSES = 5  # The longest pause so far, times this number, is no hang.
_LOOKS = 5  # looks at the collectives within `after`
_JOINS_AT_FIRST, _JOINS_LATER = 10, 10  # in the first intervals each, then one in so many
_TIMES = (0.0, 2.0, 5.0)  # seconds of the samples
_LOOK_LIMIT = 60.0  # seconds after which a look at the ranks is given up; a file system may not answer
_STEP = re.compile(rb'\] \{"stepset": ?\{.{0,4000}?"step"')
_STARTED = b'[stepset] {"event": "started"'


class ProgressOut(Out):
    """The output of the agent, which records the times of the lines.

    `at` is the time of the last progress, and `longest` the longest pause between two lines since the first step, in
    seconds. `stepped` states whether a rank has reported a step or finished a collective. `reported` is the number of
    times that the current pause has been reported. `training` is set by the watcher. If `only_training` is True, lines
    are no progress, because ranks print them while the training hangs.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.training: Training | None = None
        self.only_training = False
        self.at = time.monotonic()
        self.longest = 0.0
        self.stepped = False
        self.reported = 0

    def put(self, lines: bytes) -> None:
        if lines:
            has_started, reports = _STARTED in lines, b'{"stepset"' in lines
            if self.training:
                self.training.printed(lines)
                if has_started:
                    self.training.reset(time.monotonic())
                elif reports:
                    self.training.changed(time.monotonic())
            if has_started or reports or not self.only_training:
                self.progress()
            if has_started:
                self.stepped, self.longest = False, 0.0  # a new attempt; its start-up does not count as a pause
            elif not self.stepped and reports and _STEP.search(lines):
                self.stepped = True
        super().put(lines)

    def progress(self) -> None:
        """Records that there is progress now."""
        at = time.monotonic()
        self.only_training = False
        if self.stepped and at - self.at > self.longest:
            self.longest = at - self.at
        self.at = at
        if self.reported:
            self.reported = 0
            super().put(short_event("resumed", at=now()))

    def inform(self, lines: bytes) -> None:
        """Prints an event that neither is progress nor reports a pause."""
        super().put(lines)

    def report(self, lines: bytes) -> None:
        """Prints an event about a pause, which is no progress."""
        self.reported += 1
        super().put(lines)


class Watcher:
    """Watches the progress of one pod.

    Args:
        out: the output of the agent.
        streams: the streams of the agent, whose event loop reads the answers of the child process.
        checkpoints: the directory of the checkpoints, or "".
        redactor: replaces the values of Secrets in the events.
    """

    def __init__(
        self, config: Config, out: ProgressOut, streams: Streams, checkpoints: str, redactor: Redactor
    ) -> None:
        self._config = config
        self._out = out
        self._streams = streams
        self._checkpoints = checkpoints
        self._redactor = redactor
        self._interval = config.hang_after / _LOOKS
        self._known: Any = None  # the values of the last look
        self._looked_at = 0.0
        self._pid = 0  # the child that looks at the ranks
        self._pipe = -1
        self._answer = b""
        self._kind = ""
        self._started = out.at = time.monotonic()
        self._joins_due = self._next_interval(self._started)
        self.due = out.at + self._interval
        self._training = out.training = Training(config.hang_after, out.at)

    def act_on_deadlines(self, at: float) -> None:
        """Looks at the ranks if there was no output for a while, and samples them if there was none for too long."""
        if at < self.due:
            return
        self.stop()
        if self._out.pending:  # the reader of the output is slow, so the ranks may wait for it
            self._out.at = self._training.at = at
        if not self._out.only_training and self._training.is_late(at):
            self._out.only_training, self._out.at = True, self._training.at
        silent, between = at - self._out.at, self._interval * 0.99
        if silent >= self._limit():
            self._start_child("sample", at)
        elif at >= self._joins_due and self._reports_joins(at):
            self._start_child("joins", at)
        elif at - self._looked_at >= (self._training.interval if silent < between else between):
            self._start_child("look", at)
        else:
            self._plan(at)

    def _limit(self) -> float:
        """Returns the number of seconds without progress after which the ranks are sampled."""
        out, config = self._out, self._config
        limit = max(_PAUSES * out.longest, config.hang_after) if out.stepped else config.hang_first
        return max(limit, self._interval) * 2.0**out.reported

    def _next_interval(self, at: float) -> float:
        """Returns when the next interval begins. All agents count the intervals by the clocks of their nodes.

        Therefore the reports of different pods contain the same collectives.
        """
        left = self._interval - time.time() % self._interval
        return at + (left if left > self._interval / 10 else left + self._interval)

    def _reports_joins(self, at: float) -> bool:
        """Returns whether to report the joins in the interval that begins now."""
        self._joins_due = self._next_interval(at)
        number = round(time.time() / self._interval)
        is_due = at - self._started <= _JOINS_AT_FIRST * self._interval or number % _JOINS_LATER == 0
        return is_due and not self._out.reported

    def _plan(self, at: float) -> None:
        """Sets the time of the next action."""
        look = max(self._out.at, self._looked_at) + self._interval
        self.due = min(self._out.at + self._limit(), look, self._joins_due)
        self.due = max(self.due, at + min(self._interval, 1.0) / 10)

    def _start_child(self, kind: str, at: float) -> None:
        self._kind, self._answer = kind, b""
        if kind != "joins":
            self._looked_at = at
        self.due = at + _LOOK_LIMIT
        agent = os.getpid()
        self._pipe, outer = read_pipe(1 << 20)
        self._pid = fork(signal.SIGKILL)
        if self._pid:
            os.close(outer)
            self._streams.loop.watch(self._pipe, self._read)
            return
        try:
            answer = _look(kind, self._config.dir, agent, self._checkpoints, self._redactor)
            while answer:
                answer = answer[os.write(outer, answer) :]
        except Exception as error:  # noqa: BLE001 - the agent goes on; the line names the error
            os.write(2, f"stepset: no samples of the ranks: {error!r:.300}\n".encode())
        finally:
            os._exit(0)

    def _read(self) -> None:
        chunks, ended = read_all(self._pipe)
        self._answer += b"".join(chunks)
        if ended:
            at = time.monotonic()
            self._end_child()
            self._take()
            self._plan(at)

    def stop(self) -> None:
        """Ends the child process, if it runs."""
        if self._pid:
            self._end_child()

    def _end_child(self) -> None:
        self._streams.loop.forget(self._pipe)
        os.close(self._pipe)
        kill([self._pid])
        self._pid = 0

    def _take(self) -> None:
        """Takes what the child has found. It is outdated if there was a line in the meantime."""
        try:
            found = parse_json(self._answer)
        except ValueError:  # the child has failed
            return
        if self._kind == "joins":
            self._out.inform(b"".join(long_event("joins", {"at": now(), **each}) for each in found["ranks"]))
            return
        has_changed = self._known is not None and found["progress"] != self._known
        self._known = found["progress"]
        out = self._out
        out.stepped = out.stepped or bool(self._known and self._known[0])
        if has_changed:
            self._training.changed(self._looked_at)
        if self._out.at > self._looked_at:
            return
        if has_changed:
            out.progress()
        elif out.only_training and self._kind == "sample" and not self._training.is_stuck(found["ranks"]):
            self._training.reset(self._looked_at)
            out.only_training, out.at = False, self._looked_at
        elif self._kind == "sample" and found["ranks"]:
            events = b"".join(self._event(each) for each in found["ranks"])
            out.report(events)

    def _event(self, found: dict[str, Any]) -> bytes:
        out = self._out
        about = {
            "at": now(),
            "silent": round(time.monotonic() - out.at, 1),
            "longest": round(out.longest, 1),
            "again": out.reported,
        }
        if out.only_training:
            about["prints"] = True
        rank = found.pop("rank")
        return long_event("stalled", {**({} if rank is None else {"rank": rank}), **about, **found})


def _look(kind: str, directory: str, agent: int, checkpoints: str, redactor: Redactor) -> bytes:
    """Returns JSON with the values that change with progress. For the kind `sample`, also with the samples of ranks."""
    import json
    import resource

    # A rank cannot make this process use all memory of the pod.
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
    from stepset.agent.hangs.joins import joins
    from stepset.agent.hangs.samples import fitted_rank, sample
    from stepset.agent.hangs.stacks import progress, ranks_of

    if kind == "joins":
        return json.dumps({"ranks": joins(directory, agent, redactor)}).encode()
    ranks = []
    if kind == "sample":
        for rank, found in sample(ranks_of(directory, agent), hook_directory(directory), _TIMES).items():
            ranks.append({"rank": rank, **fitted_rank(redactor.data(found))})
    return json.dumps({"progress": progress(directory, agent, checkpoints), "ranks": ranks}).encode()
