"""Runs jobs on a Kubernetes cluster. docs/design/kubernetes.md tells how it works."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from stepset.backends.base import RunListener, RunRequest
from stepset.backends.kubernetes.client import Connection
from stepset.backends.kubernetes.find import find, read_all, read_objects, read_run
from stepset.backends.kubernetes.follow import RunFollower
from stepset.backends.kubernetes.log_reading import copy_lines, read_lines
from stepset.backends.kubernetes.pod_changes import ChangePod
from stepset.backends.kubernetes.scope import of_run
from stepset.backends.kubernetes.site import WORKLOADS, Site
from stepset.backends.kubernetes.stop import delete, kill_pods, suspend
from stepset.backends.kubernetes.submit import Submitted, remove_half_submitted, submit
from stepset.backends.kubernetes.verdict import write_verdict
from stepset.errors import BadInputError, RunNotFoundError
from stepset.rendering import make_request
from stepset.spec.names import check_dns_1035
from stepset.targets.request import RenderRequest, check_target
from stepset.watch.cluster.keeper import Patience
from stepset.watch.cluster.verdict import verdict_of
from stepset.watch.diagnose import ADVICE
from stepset.watch.state import Failure, FailureKind, LogLine, Phase, RunStatus

_JOIN = 0.5
Manifest = Mapping[str, Any]


class KubernetesBackend:
    """Runs jobs on a cluster.

    Args:
        connection: its server, and who asks.
        namespace: where runs are; default: the connection's.
        target: what runs become; None: a JobSet, and runs of every kind are found.
        sources: whose lines a listener is told, such as `rank 0`; default: everybody's.
        patience: when a run that stands still is given up.
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
        if target is not None:
            check_target(target)
        self._site = Site(connection, namespace or connection.namespace)
        self._target = target or "jobset"
        self._targets: Sequence[str] = (target,) if target else tuple(WORKLOADS)
        self._sources, self._patience = sources, patience or Patience()
        self._change_pod = change_pod
        self._cancelled: dict[str, RunStatus] = {}

    def start(self, request: RunRequest, listener: RunListener | None = None) -> KubernetesHandle:
        """Makes a run on the cluster, or finds it where the same asker has made it before, and follows it.

        Args:
            request: what to run.
            listener: is told of lines and changes, from a thread of the run's own.

        Raises:
            BadInputError: the job, or the server for its sake, says no; nothing is left behind then.
            InfrastructureError: the server cannot be asked, or does not let whoever asks.
        """
        made, notes = self.make(request)
        return self.follow(made.workload, listener, notes)

    def make(self, request: RunRequest) -> tuple[Submitted, tuple[str, ...]]:
        """Makes a run on the cluster, or finds it where the same asker has made it before; raises as `start` does.

        Args:
            request: what to run.

        Returns:
            The run, and what is to be said about it from the start.
        """
        rendered = self._rendered(request)
        made = submit(self._site, rendered, self._target, self._change_pod)
        return made, (*rendered.plan.notes, *made.warnings)

    def follow(
        self, workload: Manifest, listener: RunListener | None = None, notes: tuple[str, ...] = ()
    ) -> KubernetesHandle:
        """Follows a run to its end, and is answerable for it: its verdict is written, lost nodes are released.

        Args:
            workload: its object on top, as it was made or read.
            listener: is told of lines and changes, from a thread of the run's own.
            notes: shown with the run from the start.
        """
        follower = RunFollower(
            self._site, workload, listener=listener, sources=self._sources, patience=self._patience, notes=notes
        )
        return KubernetesHandle(follower, str(workload["metadata"]["name"]))

    def workload(self, name: str, uid: str = "") -> Manifest | None:
        """The object on top of a run; None where there is none, or another by that name.

        Args:
            name: the run's.
            uid: the object's, where it is known.

        Raises:
            InfrastructureError: the server cannot be asked, or does not let whoever asks.
        """
        try:
            found = find(self._site, name, self._targets)
        except RunNotFoundError:
            return None
        about = found["metadata"]
        return found if about["name"] == name and uid in ("", about["uid"]) else None

    def read(self, workload: Manifest) -> RunStatus:
        """Where a run is.

        Args:
            workload: as it was read.
        """
        return read_run(self._site, workload, time.time())

    def conclude(self, workload: Manifest, status: RunStatus, *, stop: bool) -> None:
        """Writes a run's end down, where nobody follows it.

        Args:
            workload: as it was read.
            status: final.
            stop: it does not end by itself.
        """
        if write_verdict(self._site, workload, status) and stop:
            suspend(self._site, workload)

    def end(self, workload: Manifest, how: Callable[[Site, Manifest], None] = delete) -> None:
        """Ends a run.

        Args:
            workload: as it was read; that it is gone already is no error.
            how: `stop.delete` or `stop.suspend`.
        """
        how(self._site, workload)

    def submit(self, request: RunRequest) -> RunStatus:
        """Makes a run on the cluster and does not follow it; raises as `start` does."""
        made, notes = self.make(request)
        run = str(made.workload["metadata"]["name"])
        return RunStatus(run, request.job.name, "kubernetes", created=time.time(), notes=notes)

    def _rendered(self, request: RunRequest) -> RenderRequest:
        name = request.name or f"{request.job.name}-{secrets.token_hex(3)}"
        try:
            check_dns_1035(name)
        except ValueError as error:
            raise BadInputError(f"name: {error}") from error
        remove_half_submitted(self._site, self._target, time.time())
        where = self._site.namespace
        return make_request(
            request.job,
            request.sources,
            run=name,
            namespace=where,
            owner=request.owner,
            attempt=request.attempt,
            owned_by=request.owned_by,
        )

    def status(self, name: str) -> RunStatus:
        """The state of a run.

        Args:
            name: a run's name, or a job's: its newest run.

        Raises:
            RunNotFoundError: there is none.
        """
        return read_run(self._site, find(self._site, name, self._targets), time.time())

    def list(self) -> list[RunStatus]:
        """All runs in the namespace, the newest first; what interrupted submissions left long ago is removed."""
        found = read_all(self._site, time.time(), self._targets)
        return sorted(found, key=lambda run: run.created, reverse=True)

    def logs(self, name: str, *, follow: bool = False, sources: frozenset[str] | None = None) -> Iterator[LogLine]:
        """The lines of a run that its pods still hold, in the order of their time.

        Args:
            name: as for `status`.
            follow: go on until the run is over; then they come as they are printed.
            sources: only theirs, such as `rank 0`; default: all.
        """
        return read_lines(self._site, find(self._site, name, self._targets), follow=follow, sources=sources)

    def copy_log(
        self, name: str, out: BinaryIO, *, follow: bool = False, sources: frozenset[str] | None = None
    ) -> None:
        """Writes what `logs` gives as `[source] text`, bytes untouched.

        Args:
            name, follow, sources: as for `logs`.
            out: where to.
        """
        copy_lines(self._site, find(self._site, name, self._targets), out, follow=follow, sources=sources)

    def wait(self, name: str, timeout: float | None = None) -> RunStatus:
        """Blocks until a run is over.

        Args:
            name: as for `status`.
            timeout: seconds; default: for ever.

        Returns:
            The final status, or the present one when the time is over.
        """
        try:
            workload = find(self._site, name, self._targets)
        except RunNotFoundError:
            if name in self._cancelled:
                return _cancelled(self._cancelled[name])
            raise
        follower = RunFollower(self._site, workload, sources=frozenset(), keeper=False)
        return follower.follow(timeout)

    def cancel(self, name: str) -> RunStatus:
        """Deletes a run, whoever made it; asked again, its pods are killed at once.

        Returns at once; `wait` tells when it is over.

        Args:
            name: as for `status`.
        """
        workload = find(self._site, name, self._targets)
        run = str(workload["metadata"]["name"])
        status = read_run(self._site, workload, time.time())
        if verdict_of(workload) is not None or (status.phase.final and not _leaving(workload)):
            return status
        if run in self._cancelled:
            kill_pods(self._site, read_objects(self._site, of_run(self._site, workload)))
        else:
            delete(self._site, workload)
        self._cancelled[run] = status
        return status


class KubernetesHandle:
    """A run that was started by this process.

    Args:
        follower: of the run; its thread begins here.
        name: the run's name.
    """

    def __init__(self, follower: RunFollower, name: str) -> None:
        self.name = name
        self._follower = follower
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name=f"stepset {name}", daemon=True)
        self._thread.start()

    def wait(self) -> RunStatus:
        """Blocks until the run is over; the final status.

        Raises:
            InfrastructureError: the server does not let whoever asks look at the run.
        """
        while self._thread.is_alive():
            # In turns, so that signals are handled meanwhile.
            self._thread.join(_JOIN)
        if self._error is not None:
            raise self._error
        return self._follower.status

    def ended(self, within: float) -> bool:
        """Whether nothing more comes of it: waits so many seconds at most, then `wait` tells how it ended."""
        self._thread.join(within)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Deletes the run; asked again, its pods are killed at once. From any thread or signal handler."""
        self._follower.cancel()

    def leave(self) -> None:
        """Lets `wait` come back although the run goes on."""
        self._follower.leave()

    def _follow(self) -> None:
        try:
            self._follower.follow()
        except BaseException as error:  # noqa: BLE001  # raised again by `wait`, in the caller's thread
            self._error = error


def _leaving(workload: object) -> bool:
    return isinstance(workload, dict) and bool(workload["metadata"].get("deletionTimestamp"))


def _cancelled(before: RunStatus) -> RunStatus:
    """The status of a run that was there when it was cancelled, and is gone."""
    kind = FailureKind.CANCELLED
    failure = Failure(kind=kind, message=f"run {before.name} was cancelled.", advice=ADVICE[kind])
    return before.with_(phase=Phase.FAILED, reason="", failure=failure, finished=time.time())
