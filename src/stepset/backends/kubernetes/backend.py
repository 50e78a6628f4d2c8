"""`ClusterRuns` for synchronous callers: its methods run on the process's one event loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotDoneError
from functools import partial, wraps
from typing import BinaryIO, Concatenate, ParamSpec, TypeVar

from stepset.backends.base import LogSelection, RunListener, RunRequest, TimedRow
from stepset.backends.kubernetes.api.connection import Connection
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.portal import EventLoop, iterate, wait_in_turns
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.expiry import delete_in_background
from stepset.backends.kubernetes.follow import Stop
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.backends.kubernetes.runs import ClusterRuns
from stepset.backends.kubernetes.stop import delete
from stepset.backends.kubernetes.submit.pod_changes import ChangePod
from stepset.errors import InfrastructureError, StepsetError
from stepset.run_status import LogLine, RunStatus
from stepset.watch.cluster.follow_policy import Timeouts
from stepset.watch.cluster.workload import verdict_of
from stepset.watch.lines import Joiner

_CLOSE_TIMEOUT = 5.0
"""Seconds after which `close` cancels a follower that has not ended."""

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[ClusterRuns, P], Awaitable[T]],
) -> Callable[Concatenate[KubernetesBackend, P], T]:
    """Returns a blocking method of `KubernetesBackend` that calls an asynchronous method of `ClusterRuns`."""

    @wraps(method)
    def blocking(self: KubernetesBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(partial(method, self._runs, *args, **kwargs))

    return blocking


class KubernetesBackend:
    """Runs jobs on a cluster; `namespace` defaults to the connection's, the other arguments are those of `ClusterRuns`.

    `interface` (cli, airflow or kfp) is an argument of the `stepset rbac` command in error messages.

    Raises BadInputError for an unknown target.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str | None = None,
        target: str | None = None,
        sources: frozenset[str] | None = None,
        timeouts: Timeouts | None = None,
        change_pod: ChangePod | None = None,
        interface: str = "cli",
    ) -> None:
        self._connection, self._call = connection, connection.call
        self._runs = ClusterRuns(
            NamespacedClient(connection.client, namespace or connection.namespace, Grant(interface)),
            target=target,
            sources=sources,
            timeouts=timeouts,
            change_pod=change_pod,
        )

    def start(self, request: RunRequest, listener: RunListener | None = None) -> KubernetesHandle:
        """Creates a run as `make` does, and follows it; the listener is called in a separate thread."""
        made, notes = self.make(request)
        return self.follow(made.workload, listener, notes)

    make = _blocking(ClusterRuns.make)
    submit = _blocking(ClusterRuns.submit)
    workload = _blocking(ClusterRuns.workload)
    owned = _blocking(ClusterRuns.owned)
    read = _blocking(ClusterRuns.read)
    conclude = _blocking(ClusterRuns.conclude)
    end = _blocking(ClusterRuns.end)
    status = _blocking(ClusterRuns.status)
    list = _blocking(ClusterRuns.list)
    prune = _blocking(ClusterRuns.prune)
    delete = _blocking(ClusterRuns.delete_ended)
    gone = _blocking(ClusterRuns.gone)
    wait = _blocking(ClusterRuns.wait)
    cancel = _blocking(ClusterRuns.cancel)

    @property
    def place(self) -> str:
        return f"namespace {self._runs.namespaced.namespace}"

    def follow(
        self, workload: Manifest, listener: RunListener | None = None, notes: tuple[str, ...] = ()
    ) -> KubernetesHandle:
        """Follows a run to its end, writes its verdict, and releases the pods of lost nodes."""
        return KubernetesHandle(self._connection, self._runs, workload, listener, notes)

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        """Yields the lines of a run; arguments and errors are those of `ClusterRuns.lines`."""
        with self._connection:
            yield from iterate(lambda: self._runs.lines(name, follow=follow, sources=sources))

    def timed_rows(self, name: str, selection: LogSelection) -> Iterator[Sequence[TimedRow]]:
        """Yields the lines that a selection names; arguments and errors are those of `Backend.timed_rows`."""
        with self._connection:
            yield from iterate(lambda: self._runs.timed_rows(name, selection))

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        """Writes the lines of `logs` as `[source] text`; does not change their bytes. Raises as `logs` does."""
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
    """A run that this process follows until the run is over or `close` is called."""

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
                status = await follower.follow()
            delete_in_background(connection, runs.namespaced, workload, status)
            return status

        self._loop, self._left = EventLoop(), threading.Event()
        self._future: Future[RunStatus] = self._loop.__enter__().start_task_soon(follow)
        self._future.add_done_callback(lambda _: threading.Thread(target=self._leave_loop, daemon=True).start())

    def _leave_loop(self) -> None:
        """Leaves the event loop; runs in a thread, because the last user that leaves waits until the loop has ended."""
        self._loop.__exit__(None, None, None)
        self._left.set()

    def wait(self) -> RunStatus:
        """Blocks until the run is over or `leave` is called; returns the run's status.

        Raises InfrastructureError if the account may not read the run.
        """
        wait_in_turns(self._future)
        self._left.wait()
        try:
            return self._future.result()
        except InfrastructureError as error:
            raise InfrastructureError(f"run {self.name} is no longer followed, and continues: {error}") from error

    def ended(self, timeout: float) -> bool:
        """Waits at most `timeout` seconds for the follower to end; returns whether it has ended."""
        try:
            self._future.exception(timeout)
        except NotDoneError:
            return False
        return True

    def cancel(self, stop: Stop = delete) -> None:
        """Deletes the run; the second call kills its pods. May be called from any thread.

        With `stop.suspend` this method suspends the run instead, and `wait` returns when the pods have ended. Raises
        InfrastructureError if this handle no longer follows the run and the server cannot be reached.
        """
        self._follower.cancel(stop)
        if self._future.done() and not self._follower.status.phase.final:
            try:
                self._connection.call(self._follower.send_stop_requests)
            except StepsetError as error:
                raise InfrastructureError(f"run {self.name} continues, and cannot be stopped: {error}") from error

    def leave(self) -> None:
        """Makes `wait` return although the run continues. May be called from any thread."""
        self._follower.leave()

    def close(self) -> None:
        """Stops following; the run continues."""
        self.leave()
        if not self.ended(_CLOSE_TIMEOUT):
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
