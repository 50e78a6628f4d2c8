"""Watches the progress of a pod. If there is none, samples the pod's ranks and prints the event `stalled`.

docs/design/hangs.md describes what progress is, and the limits. A child process takes the samples: what the ranks
write cannot delay or break the agent. Only this child imports the modules for samples.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

from stepset.agent.config import Config
from stepset.agent.errors import IF_POSSIBLE, SAMPLED
from stepset.agent.events import long_event, now, short_event
from stepset.agent.hangs.training import Training
from stepset.agent.launch import hook_directory
from stepset.agent.loop import Out, Streams, read_all, read_pipe, write_file
from stepset.agent.process import fork
from stepset.agent.redact import Redactor, parse_json
from stepset.agent.signals import kill, signal

_PAUSES = 5  # The longest pause so far, times this number, is no hang.
_LOOKS = 5  # looks at the collectives within `after`
_JOINS_AT_FIRST, _JOINS_LATER = 10, 10  # in the first intervals each, then one in so many
_TIMES = (0.0, 2.0, 5.0)  # seconds of the samples
_LAST_TIMES = (0.0, 1.0)  # seconds of the samples before a stop
_LOOK_LIMIT = 60.0  # seconds after which a look at the ranks is given up; a file system may not answer
_LONG = 3  # A stop is examined if the pause has reached this fraction of the limit,
# or, if the stop was requested, 30 s and twice the longest pause so far.
_RECENT = 10.0  # seconds in which a pause that has just ended, or the last samples, count
_LINGER = 5.0  # seconds between the report of a hang and the end of the pod, in which readers read the report
_STEP = re.compile(rb'\] \{"stepset": ?\{.{0,4000}?"step"')
_STARTED = b'[stepset] {"event": "started"'


class ProgressOut(Out):
    """The output of the agent, which records the times of the lines.

    `at` is the time of the last progress, and `longest` the longest pause between two lines since the first step, in
    seconds. `stepped` states whether a rank has reported a step or finished a collective. `reported` is the number of
    times that the current pause has been reported. `training` is set by the watcher. If `only_training` is True, lines
    are no progress, because ranks print them while the training hangs. `paused` is the length of the last pause of at
    least `long` seconds, which ended at `paused_until`, and `usual` the longest pause before it. When `stops` is True,
    the ranks are being stopped, and lines do not end a pause.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.training: Training | None = None
        self.only_training = False
        self.at = time.monotonic()
        self.longest = 0.0
        self.stepped = False
        self.reported = 0
        self.long = self.paused_until = float("inf")
        self.paused = self.usual = 0.0
        self.stops = False

    def put(self, lines: bytes) -> None:
        if lines and self.stops:
            self.at = time.monotonic()
        elif lines:
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
        pause = at - self.at
        if pause >= self.long:
            self.paused, self.paused_until, self.usual = pause, at, self.longest
        if self.stepped and pause > self.longest:
            self.longest = pause
        self.at = at
        if self.reported:
            self.reported = 0
            super().put(short_event("resumed", at=now()))

    def inform(self, lines: bytes) -> None:
        """Prints an event that neither is progress nor reports a pause."""
        super().put(lines)

    def report(self, lines: bytes, *, lasts: bool = True) -> None:
        """Prints events about a pause, which are no progress. `lasts` states whether the pause has not ended."""
        self.reported += lasts
        super().put(lines)


class Watcher:
    """Watches the progress of one pod.

    Args:
        out: the output of the agent.
        streams: the streams of the agent, whose event loop reads the answers of the child process.
        checkpoints: the directory of the checkpoints, or "".
        redactor: replaces the values of Secrets in the events.
        on_hang: a function that is called with the failure when the pod must end because of a hang.
    """

    def __init__(
        self,
        config: Config,
        out: ProgressOut,
        streams: Streams,
        checkpoints: str,
        redactor: Redactor,
        on_hang: Callable[[dict[str, Any]], None],
    ) -> None:
        self._config = config
        self._out = out
        self._streams = streams
        self._checkpoints = checkpoints
        self._redactor = redactor
        self._on_hang = on_hang
        self._cause: dict[str, Any] | None = None  # why the pod ends at `due`, unless there is progress
        self._pause = 0.0, 0.0  # the length of the pause before the last samples, and of the longest one before
        self._after_failure = False  # whether the pause before the last samples ended with the failure of a rank
        self.has_failed_rank = False
        self._last_at = float("-inf")
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
        out.long = config.hang_after / _LONG

    def act_on_deadlines(self, at: float) -> None:
        """Looks at the ranks if there was no output for a while, and samples them if there was none for too long."""
        if at < self.due:
            return
        self.stop()
        if self._out.stops:
            self.due = float("inf")
            return
        cause, self._cause = self._cause, None
        if cause and self._out.reported:
            self._on_hang(cause)
            return
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
        return self._first_limit(self._out.longest) * 2.0**self._out.reported

    def _first_limit(self, longest: float) -> float:
        limit = max(_PAUSES * longest, self._config.hang_after) if self._out.stepped else self._config.hang_first
        if self._out.only_training:
            limit = max(limit, self._training.limit)
        return max(limit, self._interval)

    @property
    def takes_last_samples(self) -> bool:
        """Whether the samples before a stop are being taken. The ranks must not be stopped yet."""
        return bool(self._pid) and self._kind == "last"

    def begin_stop(self, seconds: float, *, requested: bool) -> None:
        """Starts the samples before a requested stop, if there was no progress for long, and watches no longer.

        Args:
            seconds: the time after which the samples are given up.
            requested: whether the stop was requested. If not, a rank of this pod has failed.
        """
        if requested:  # a rank of this pod may have failed because a rank of another pod had waited too long
            self.take_last_samples(seconds, after_failure=self.has_failed_rank)
        self._out.stops = True
        if not self.takes_last_samples:
            self.stop()
            self.due = float("inf")

    def take_last_samples(self, seconds: float, *, after_failure: bool = False) -> None:
        """Starts the samples before a stop, if the pod has made no progress for long. They are taken once.

        Args:
            seconds: the time after which the samples are given up.
            after_failure: whether a rank has just failed because of the pause. Its output has ended the pause.
        """
        at, out = time.monotonic(), self._out
        if not self.takes_last_samples and at - self._last_at >= _RECENT:
            silent, longest = at - out.at, out.longest
            if after_failure and 0 <= at - out.paused_until < _RECENT:
                silent, longest = out.paused, out.usual
            limit = self._first_limit(longest) / _LONG
            if not after_failure:
                limit = min(limit, max(30, 2 * longest))
            if silent >= limit and not (out.pending and not after_failure):
                self.stop()
                self._pause, self._after_failure, self._last_at = (silent, longest), after_failure, at
                self._start_child("last", at)
                self.due = at + seconds
        if after_failure and not self.takes_last_samples:
            self._release_rank()

    def _release_rank(self) -> None:
        """Lets the `rank` process of a rank with a timeout exit. Its launcher then stops the other ranks."""
        with IF_POSSIBLE:
            write_file(os.path.join(self._config.dir, SAMPLED), b"", os.O_NOFOLLOW)

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
            ends = bool(self._config.hang_action)
            answer = _look(kind, self._config.dir, agent, self._checkpoints, self._redactor, ends)
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
            if self._out.stops:
                self.due = float("inf")
            elif self._cause:
                self.due = at + _LINGER
            else:
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
        if self._kind == "last":
            self._release_rank()

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
        if self._kind == "last" and self._after_failure:
            out.report(b"".join(self._event(each, *self._pause, stop=True) for each in found["ranks"]), lasts=False)
        elif out.at > self._looked_at:
            return
        elif has_changed:
            out.progress()
        elif out.only_training and self._kind == "sample" and not self._training.is_stuck(found["ranks"]):
            self._training.reset(self._looked_at)
            out.only_training, out.at = False, self._looked_at
        elif self._kind != "look" and found["ranks"]:
            silent, self._cause = time.monotonic() - out.at, found["cause"]
            if self._cause:
                self._last_at = time.monotonic()
            stop = self._kind == "last" or bool(self._cause)
            out.report(b"".join(self._event(each, silent, out.longest, stop=stop) for each in found["ranks"]))

    def _event(self, found: dict[str, Any], silent: float, longest: float, *, stop: bool) -> bytes:
        out = self._out
        about = {
            "at": now(),
            "silent": round(silent, 1),
            "longest": round(longest, 1),
            "again": out.reported,
            **({"stop": True} if stop else {}),
        }
        if out.only_training:
            about["prints"] = True
        rank = found.pop("rank")
        return long_event("stalled", {**({} if rank is None else {"rank": rank}), **about, **found})


def _look(kind: str, directory: str, agent: int, checkpoints: str, redactor: Redactor, ends: bool) -> bytes:
    """Returns JSON with the values that change with progress. For the kinds `sample` and `last`, also with samples.

    Args:
        ends: whether the agent may end the pod. Then the JSON of the kind `sample` contains the cause, if it is known.
    """
    import json
    import resource

    # A rank cannot make this process use all memory of the pod.
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
    from stepset.agent.hangs.joins import joins
    from stepset.agent.hangs.pod_ranks import progress, ranks_of
    from stepset.agent.hangs.samples import fitted_rank, sample

    if kind == "joins":
        return json.dumps({"ranks": joins(directory, agent, redactor)}).encode()
    ranks, cause = [], None
    if kind != "look":
        processes = ranks_of(directory, agent)
        samples = sample(processes, hook_directory(directory), _LAST_TIMES if kind == "last" else _TIMES)
        for rank, found in samples.items():
            ranks.append({"rank": rank, **fitted_rank(redactor.data(found))})
        if ends and kind == "sample" and len(samples) == len(processes):
            from stepset.agent.hangs.causes import cause_of, has_all_ranks

            cause = cause_of(samples, whole=has_all_ranks([*processes.values()]))
    return json.dumps({"progress": progress(directory, agent, checkpoints), "ranks": ranks, "cause": cause}).encode()
