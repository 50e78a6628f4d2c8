"""Runs jobs on a cluster, for synchronous callers: `ClusterRuns` on the process's one event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotDoneError
from typing import Any, BinaryIO

from stepset.backends.base import RunListener, RunRequest
from stepset.backends.kubernetes.api.connection import Connection
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import EventLoop, iterate, wait_in_turns
from stepset.backends.kubernetes.follow import Stop
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.backends.kubernetes.pod_changes import ChangePod
from stepset.backends.kubernetes.runs import ClusterRuns
from stepset.backends.kubernetes.stop import delete
from stepset.backends.kubernetes.submit import Submitted
from stepset.errors import InfrastructureError, StepsetError
from stepset.watch.cluster.keeper import Patience
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.lines import Joiner
from stepset.watch.state import LogLine, RunStatus

_LEAVES_WITHIN = 5.0
"""Seconds in which a follower may finish what it does, when it is to leave."""

Manifest = Mapping[str, Any]


class KubernetesBackend:
    """Runs jobs on a cluster.

    Args:
        connection: its server and the credentials.
        namespace: where runs are; default: the connection's.
        target: what runs become; None: a JobSet, and runs of every kind are found.
        sources: whose lines a listener is given, such as `rank 0`; default: all.
        patience: when a run that does not start is given up.
        change_pod: a pod template -> the same as the site wants it; default: as rendered.

    Raises:
        BadInputError: an unknown target.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str | None = None,
        target: str | None = None,
        sources: frozenset[str] | None = None,
        patience: Patience | None = None,
        change_pod: ChangePod | None = None,
    ) -> None:
        self._connection, self._call = connection, connection.call
        self._runs = ClusterRuns(
            NamespacedClient(connection.client, namespace or connection.namespace),
            target=target,
            sources=sources,
            patience=patience,
            change_pod=change_pod,
        )

    def start(self, request: RunRequest, listener: RunListener | None = None) -> KubernetesHandle:
        """Creates a run, or finds the one that the same owner has created before, and follows it.

        Args:
            request: what to run.
            listener: is given lines and states, in a thread of its own.

        Raises:
            BadInputError: the job is not valid, or the server refuses it; nothing is left behind then.
            InfrastructureError: the server cannot be asked, or does not allow it.
        """
        made, notes = self.make(request)
        return self.follow(made.workload, listener, notes)

    def make(self, request: RunRequest) -> tuple[Submitted, tuple[str, ...]]:
        """Creates a run, or finds the one that the same owner has created before; as `ClusterRuns.make`."""
        return self._call(self._runs.make, request)

    def submit(self, request: RunRequest) -> RunStatus:
        """Creates a run that the caller does not follow; raises as `start` does."""
        return self._call(self._runs.submit, request)

    def follow(
        self, workload: Manifest, listener: RunListener | None = None, notes: tuple[str, ...] = ()
    ) -> KubernetesHandle:
        """Follows a run to its end: its verdict is written, lost nodes' pods are released.

        Args:
            workload: its workload as it was created or read.
            listener: is given lines and states, in a thread of its own.
            notes: shown with the run from the start.
        """
        return KubernetesHandle(self._connection, self._runs, workload, listener, notes)

    def workload(self, name: str, uid: str = "") -> Manifest | None:
        """Returns the workload of a run; as `ClusterRuns.workload`."""
        return self._call(self._runs.workload, name, uid)

    def read(self, workload: Manifest) -> RunStatus:
        """Returns the state of a run; as `ClusterRuns.read`."""
        return self._call(self._runs.read, workload)

    def conclude(self, workload: Manifest, status: RunStatus, *, stop: bool) -> None:
        """Writes the verdict of a run that no process follows; as `ClusterRuns.conclude`."""
        self._call(self._runs.conclude, workload, status, stop)

    def end(self, workload: Manifest, how: Stop = delete) -> None:
        """Ends a run; as `ClusterRuns.end`."""
        self._call(self._runs.end, workload, how)

    def status(self, name: str) -> RunStatus:
        """Returns the state of a run; as `ClusterRuns.status`."""
        return self._call(self._runs.status, name)

    def list(self) -> list[RunStatus]:
        """Returns the state of every run in the namespace, the newest first."""
        return self._call(self._runs.list)

    def wait(self, name: str, timeout: float | None = None) -> RunStatus:
        """Blocks until a run is over; as `ClusterRuns.wait`."""
        return self._call(self._runs.wait, name, timeout)

    def cancel(self, name: str) -> RunStatus:
        """Deletes a run; as `ClusterRuns.cancel`."""
        return self._call(self._runs.cancel, name)

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        """Yields the lines of a run that its pods still hold, in the order of their time.

        Args:
            name: as for `status`.
            follow: go on until the run is over; then lines come as they are printed.
            sources: only theirs, such as `rank 0`; default: all.

        Raises:
            InfrastructureError: some of them cannot be read; those that can be come first.
        """
        with self._connection:
            yield from iterate(lambda: self._runs.lines(name, follow=follow, sources=sources))

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        """Writes the lines that `logs` yields as `[source] text`, bytes untouched; raises as `logs` does.

        Args:
            name, follow, sources: as for `logs`.
            out: the file.
        """
        with self._connection:
            workload = self._call(self._runs.find, name)
            if follow and verdict_of(workload) is None:
                joiners: dict[str, Joiner] = {}
                for output in iterate(lambda: self._runs.output(workload, sources)):
                    _write(out, output, joiners.setdefault(output.pod, Joiner()), sources)
                return
            for rows in iterate(lambda: self._runs.rows(workload, sources)):
                rows.append(b"")
                out.write(b"\n".join(rows))
            out.flush()


class KubernetesHandle:
    """A run that this process follows, on the event loop of synchronous callers, until the run is over or `close`.

    Args:
        connection: the server.
        runs: the runs of the namespace.
        workload: the run's workload.
        listener: is given lines and states.
        notes: shown with the run from the start.
    """

    def __init__(
        self,
        connection: Connection,
        runs: ClusterRuns,
        workload: Manifest,
        listener: RunListener | None,
        notes: tuple[str, ...],
    ) -> None:
        self.name = str(workload["metadata"]["name"])
        self._connection = connection
        observer = runs.observer(listener)
        self._follower = follower = runs.follower(workload, observer, notes)

        async def follow() -> RunStatus:
            async with connection.client, observer:
                return await follower.follow()

        self._loop, self._left = EventLoop(), threading.Event()
        self._future: Future[RunStatus] = self._loop.__enter__().start_task_soon(follow)
        self._future.add_done_callback(lambda _: threading.Thread(target=self._leave_loop, daemon=True).start())

    def _leave_loop(self) -> None:
        """Leaves the event loop; in a thread, because the last one that leaves waits for the event loop's end."""
        self._loop.__exit__(None, None, None)
        self._left.set()

    def wait(self) -> RunStatus:
        """Blocks until the run is over, or `leave` was called; returns its status.

        Raises:
            InfrastructureError: the server does not let the account see the run.
        """
        wait_in_turns(self._future)
        self._left.wait()
        return self._future.result()

    def ended(self, within: float) -> bool:
        """Returns whether `wait` returns at once; waits so many seconds at most."""
        try:
            self._future.exception(within)
        except NotDoneError:
            return False
        return True

    def cancel(self, stop: Stop = delete) -> None:
        """Deletes the run; the second call kills its pods. May be called from any thread.

        Args:
            stop: `stop.suspend` suspends it instead; `wait` returns when its pods have ended.

        Raises:
            InfrastructureError: the run is not followed any more, and the server cannot be asked.
        """
        self._follower.cancel(stop)
        if self._future.done() and not self._follower.status.phase.final:
            try:
                self._connection.call(self._follower.obey)
            except StepsetError as error:
                raise InfrastructureError(f"run {self.name} goes on, and cannot be stopped: {error}") from error

    def leave(self) -> None:
        """Makes `wait` return although the run goes on. May be called from any thread."""
        self._follower.leave()

    def close(self) -> None:
        """Stops following; the run goes on."""
        self.leave()
        if not self.ended(_LEAVES_WITHIN):
            self._future.cancel()
        wait([self._future])
        self._left.wait()


def _write(out: BinaryIO, output: PodOutput, joiner: Joiner, sources: frozenset[str] | None) -> None:
    batch = output.batch
    if sources is None and not batch.parts and not joiner.waiting:
        out.write(batch.shown)
    else:
        complete = joiner.join(batch.lines)
        kept = (each for each in complete if sources is None or each[0] in sources)
        out.writelines(b"[%s] %s\n" % (source.encode(), text) for source, text in kept)
    out.flush()
