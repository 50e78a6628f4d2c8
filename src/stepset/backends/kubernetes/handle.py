"""`KubernetesHandle`, with which a synchronous caller waits for a followed run, and stops the run."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotDoneError

from stepset.backends.base import RunListener
from stepset.backends.kubernetes.api.portal import Connection, EventLoop, wait_in_turns
from stepset.backends.kubernetes.api.resources import Manifest
from stepset.backends.kubernetes.cluster_runs import ClusterRuns
from stepset.backends.kubernetes.expiry import delete_in_background
from stepset.backends.kubernetes.follow import Stop
from stepset.backends.kubernetes.stop import delete
from stepset.errors import InfrastructureError, StepsetError
from stepset.run_status import RunStatus

_CLOSE_TIMEOUT = 5.0
"""The number of seconds that `close` waits for the follower. After this time, `close` cancels the follower."""


class KubernetesHandle:
    """A run that this process follows until the run is finished or `close` is called."""

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
        self._follower = follower = runs.follower(workload, listener, notes)

        async def follow() -> RunStatus:
            async with connection.client:
                status = await follower.follow()
            delete_in_background(connection, runs.namespaced, workload, status)
            return status

        self._loop, self._left = EventLoop(), threading.Event()
        self._future: Future[RunStatus] = self._loop.__enter__().start_task_soon(follow)
        self._future.add_done_callback(lambda _: threading.Thread(target=self._leave_loop, daemon=True).start())

    def _leave_loop(self) -> None:
        """Leaves the event loop.

        This method runs in a separate thread, because the last caller that leaves the loop must wait until the loop has
        stopped.
        """
        self._loop.__exit__(None, None, None)
        self._left.set()

    def wait(self) -> RunStatus:
        """Blocks until the run is finished or `leave` is called, then returns the run's status.

        Raises InfrastructureError if the account cannot read the run.
        """
        wait_in_turns(self._future)
        self._left.wait()
        try:
            return self._future.result()
        except InfrastructureError as error:
            raise InfrastructureError(f"run {self.name} is no longer followed, and continues: {error}") from error

    def ended(self, timeout: float) -> bool:
        """Waits at most `timeout` seconds for the follower. Returns whether the follower has finished."""
        try:
            self._future.exception(timeout)
        except NotDoneError:
            return False
        return True

    def cancel(self, stop: Stop = delete, *, reason: str = "") -> None:
        """Deletes the run. A second call kills the run's pods. This method may be called from any thread.

        `reason` is not used, because the object that could contain the reason is deleted.

        If the argument is the function `stop.suspend`, this method suspends the run and does not delete the run. Then
        `wait` returns when the pods have terminated.

        Raises InfrastructureError if this handle no longer follows the run and the server cannot be reached.
        """
        self._follower.cancel(stop)
        if self._future.done() and not self._follower.status.phase.final:
            try:
                self._connection.call(self._follower.send_stop_requests)
            except StepsetError as error:
                raise InfrastructureError(f"run {self.name} continues, and cannot be stopped: {error}") from error

    def leave(self) -> None:
        """Makes `wait` return. The run continues. This method may be called from any thread."""
        self._follower.leave()

    def close(self) -> None:
        """Stops following the run. The run continues."""
        self.leave()
        if not self.ended(_CLOSE_TIMEOUT):
            self._future.cancel()
        wait([self._future])
        self._left.wait()
