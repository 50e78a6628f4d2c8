"""`KubernetesBackend`, which offers the methods of `ClusterRuns` to synchronous callers.

The methods of `ClusterRuns` run in an event loop. All synchronous callers of a process share this event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial, wraps
from typing import BinaryIO, Concatenate, ParamSpec, TypeVar

from stepset.backends.base import LogSelection, RunListener, RunRequest, TimedRow
from stepset.backends.kubernetes.api.config import ClientConfig
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import Grant
from stepset.backends.kubernetes.api.pod_command import exec_in_pod, read_from_pod
from stepset.backends.kubernetes.api.portal import Connection, iterate
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.cluster_runs import ClusterRuns
from stepset.backends.kubernetes.handle import KubernetesHandle
from stepset.backends.kubernetes.logs.run_logs import PodOutput
from stepset.backends.kubernetes.missing_logs import missing_logs
from stepset.backends.kubernetes.pod_stacks import PodToRead, pods_of_run
from stepset.backends.kubernetes.submit.pod_changes import ChangePod
from stepset.backends.option_names import Interface
from stepset.backends.stack_reading import TIME_LIMIT, PodStacks, read_stacks
from stepset.errors import InfrastructureError
from stepset.run_status import LogLine, RunStatus
from stepset.watch.cluster.follow_policy import Timeouts
from stepset.watch.cluster.workload import verdict_of
from stepset.watch.live_lines import LiveLine
from stepset.watch.stacks.document import MAX_BYTES
from stepset.watch.stacks.model import RunStacks

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


def _document(config: ClientConfig, pod: PodToRead) -> bytes:
    """Returns the stacks of a pod, as its agent prints them."""
    if pod.command is None:
        raise InfrastructureError(f"pod {pod.pod}: has no agent, which reads the stacks; set agent: true in the job")
    return read_from_pod(config, pod.command, TIME_LIMIT, MAX_BYTES)


class KubernetesBackend:
    """Runs jobs on a cluster.

    Raises BadInputError if `target` is unknown.

    Args:
        namespace: the namespace of the runs; default: the namespace of the connection.
        target, sources, timeouts, change_pod: the arguments of `ClusterRuns`.
        interface: the interface of the caller, which determines the names of options in error messages.
        read_only: whether the caller only reads runs. Then the command in an error about a missing permission grants
            only the permissions to read runs.
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
        interface: Interface = "python",
        read_only: bool = False,
    ) -> None:
        self._connection, self._call = connection, connection.call
        grant = Grant(interface, read_only=read_only)
        self._runs = ClusterRuns(
            NamespacedClient(connection.client, namespace or connection.namespace, grant),
            target=target,
            sources=sources,
            timeouts=timeouts,
            change_pod=change_pod,
        )

    def start(self, request: RunRequest, listener: RunListener | None = None) -> KubernetesHandle:
        """Creates a run with `ClusterRuns.make`, and follows the run. The listener is called in a separate thread."""
        made, notes = self.make(request)
        return self.follow(made.workload, listener, notes)

    make = _blocking(ClusterRuns.make)
    submit = _blocking(ClusterRuns.submit)
    workload = _blocking(ClusterRuns.workload)
    find = _blocking(ClusterRuns.find)
    owned = _blocking(ClusterRuns.owned)
    read = _blocking(ClusterRuns.read)
    conclude = _blocking(ClusterRuns.conclude)
    end = _blocking(ClusterRuns.end)
    status = _blocking(ClusterRuns.status)
    list = _blocking(ClusterRuns.list)
    prune = _blocking(ClusterRuns.prune)
    delete = _blocking(ClusterRuns.delete_ended)
    gone = _blocking(ClusterRuns.gone)
    cancel = _blocking(ClusterRuns.cancel)

    def wait(
        self, name: str, timeout: float | None = None, show: Callable[[RunStatus], None] | None = None
    ) -> RunStatus:
        latest = _LatestStatus()

        def show_latest() -> None:
            if show is not None and latest.status is not None:
                show(latest.status)

        return self._call(self._runs.wait, name, timeout, latest, turn=show_latest)

    def exec(self, name: str, source: str, command: Sequence[str]) -> int:
        with self._connection:
            target = self._call(self._runs.pod_command, name, source, command)
            config = self._call(self._connection.client.open)
        return exec_in_pod(config, target)

    def stacks(self, name: str, sources: frozenset[str] | None = None) -> RunStacks:
        with self._connection:
            found = self._call(pods_of_run, self._runs, name, sources)
            config = self._call(self._connection.client.open)
        pods = [PodStacks(pod.pod, pod.rows, partial(_document, config, pod)) for pod in found.pods]
        return read_stacks(found.run, pods, found.problems)

    @property
    def place(self) -> str:
        return f"namespace {self._runs.namespaced.namespace}"

    def follow(
        self, workload: Manifest, listener: RunListener | None = None, notes: tuple[str, ...] = ()
    ) -> KubernetesHandle:
        """Follows a run until it is finished, writes the run's verdict, and releases the pods of lost nodes."""
        return KubernetesHandle(self._connection, self._runs, workload, listener, notes)

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        with self._connection:
            yield from iterate(lambda: self._runs.lines(name, follow=follow, sources=sources))

    def live_lines(self, name: str, sources: frozenset[str] | None) -> Iterator[Sequence[LiveLine]]:
        with self._connection:
            yield from iterate(lambda: self._runs.live_lines(name, sources))

    def timed_rows(self, name: str, selection: LogSelection) -> Iterator[Sequence[TimedRow]]:
        with self._connection:
            yield from iterate(lambda: self._runs.timed_rows(name, selection))

    def missing_logs(self, name: str, sources: frozenset[str] | None) -> str:
        return self._call(missing_logs, self._runs, name, sources)

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        with self._connection:
            workload = self._call(self._runs.find, name)
            if follow and verdict_of(workload) is None:
                for output in iterate(lambda: self._runs.output(workload, sources)):
                    _write(out, output, sources)
                return
            for rows in iterate(lambda: self._runs.rows(workload, sources)):
                rows.append(b"")
                out.write(b"\n".join(rows))
            out.flush()


class _LatestStatus:
    """A listener that stores the last state of a run."""

    def __init__(self) -> None:
        self.status: RunStatus | None = None

    def on_line(self, line: LogLine) -> None:
        """Does nothing."""

    def on_status(self, status: RunStatus) -> None:
        self.status = status


def _write(out: BinaryIO, output: PodOutput, sources: frozenset[str] | None) -> None:
    batch = output.batch
    if sources is None and not batch.parts and not output.joiner.waiting:
        out.write(batch.shown)
    else:
        kept = (each for each in output.complete_lines() if sources is None or each[0] in sources)
        out.writelines(b"[%s] %s\n" % (source.encode(), text) for source, text in kept)
    out.flush()
