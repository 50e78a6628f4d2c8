"""An unexpected error is reported in the run's notes and retried at most ten times; then the wait ends, not the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.kubernetes import follow
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.backend import KubernetesBackend
from stepset.backends.kubernetes.logs import pod_log
from stepset.backends.kubernetes.logs.run_logs import PodOutput, RunLogs
from stepset.backends.kubernetes.watch.reflector import Reflector
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.errors import InfrastructureError
from stepset.run_status import LogLine, RunStatus
from stepset.targets.metadata import RUN
from stepset.watch import retries
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.log_server import LogServer
from tests.kubernetes.nowhere import client_at, kubeconfig
from tests.kubernetes.test_informer import WORKLOAD, workload_only
from tests.kubernetes.test_run_logs import pods


class UnexpectedError(Exception):
    """A defect of the program: nothing expects it."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "LONGEST_DELAY", 0.01)


def failing(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """A function that raises some times, and then does what `then` does."""
    left = [times]

    def function(*args: Any, **kwargs: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise UnexpectedError("a defect")
        return then(*args, **kwargs)

    return function


JOBSETS = Collection("/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets")
ENDS = pytest.mark.parametrize(("times", "ends"), [(10, False), (1000, True)])
"""After ten failures in a row the eleventh try succeeds; if it fails, too, the wait ends."""


@ENDS
def test_a_watch_is_retried(times: int, ends: bool) -> None:
    async def watch() -> tuple[set[str], str, int]:
        problems, done, fails = set[str](), asyncio.Event(), failing(times, lambda: done.set())

        def changed(changes: Sequence[object], listed: bool) -> None:
            problems.add(reflector.problem)
            if changes:
                fails()
            if reflector.error is not None:
                done.set()

        async with ApiServer(workload_only) as server, client_at(server.port) as client:
            reflector = Reflector(client, JOBSETS, changed)
            task = asyncio.create_task(reflector.run())
            await asyncio.wait_for(done.wait(), 60)
            lists = len([query for _, _, query in server.requests if "watch" not in query])
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return problems - {""}, str(reflector.error or ""), lists

    problem = f"the watch of {JOBSETS.path} failed unexpectedly: UnexpectedError('a defect')"
    assert asyncio.run(watch()) == ({problem}, problem if ends else "", 11)


def inject(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, times: int) -> None:
    """Makes the first calls of a function fail, as a defect in it would."""
    monkeypatch.setattr(place, name, failing(times, getattr(place, name)))


@ENDS
def test_a_log_is_read_on_from_where_its_reader_failed(monkeypatch: pytest.MonkeyPatch, times: int, ends: bool) -> None:
    async def read() -> tuple[list[bytes], tuple[str, ...], str]:
        found: list[bytes] = []

        async def consume(output: PodOutput) -> None:
            found.extend(text for _, text in output.batch.lines)

        async with LogServer(lines=3) as server, client_at(server.port) as client:
            logs = RunLogs(NamespacedClient(client, "ns"), consume)
            inject(monkeypatch, pod_log.PodLog, "run", times)
            logs.see(pods(1, over=True))
            await asyncio.wait_for(logs.finish(60), 60)
            await logs.close()
            return found, logs.problems, str(logs.error or "")

    lines, problems, error = asyncio.run(read())
    problem = "pod pod-0: reading its log failed unexpectedly: UnexpectedError('a defect')"
    assert (problems, error) == ((problem,), problem if ends else "")
    assert lines == ([] if ends else [b"line 0", b"line 1", b"line 2"])


class Recorder:
    """A listener that records states."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_line(self, line: LogLine) -> None:
        """Ignores a line."""

    def on_status(self, status: RunStatus) -> None:
        """Records the notes of a state."""
        self.notes += [note for note in status.notes if note not in self.notes]


LABELLED: dict[str, Any] = {"metadata": {**WORKLOAD["metadata"], "labels": {RUN: "run"}}}  # type: ignore[dict-item]
ENDED = {"conditions": [{"type": "Failed", "status": "True"}]}
PROBLEM = "the state of run run cannot be computed: UnexpectedError('a defect')"


def serving(body: Callable[[int, list[str]], Any], **ended: Any) -> Any:
    """Calls `body` with the port of a server whose only run has ended, and the methods of its requests."""

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        status, found = workload_only(method, path, query)
        run = {**WORKLOAD, **ended}
        return status, {**found, "items": [run]} if found.get("items") else run if path.endswith("/run") else found

    async def serve() -> Any:
        async with ApiServer(answer) as server:
            result = await asyncio.to_thread(body, server.port)
            return result, [method for method, _, _ in server.requests]

    return asyncio.run(serve())


@ENDS
def test_the_state_of_a_followed_run_is_computed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times: int, ends: bool
) -> None:
    inject(monkeypatch, follow, "status_of", times)
    recorder = Recorder()

    def wait(port: int) -> str:
        backend = KubernetesBackend(connect(kubeconfig(tmp_path, port)), namespace="ns", target="jobset")
        try:
            return backend.follow({**WORKLOAD, **LABELLED}, recorder).wait().phase.value
        except InfrastructureError as error:
            return str(error)

    result, methods = serving(wait, status=ENDED, **LABELLED)
    assert result == (
        f"run run is no longer followed, and continues: {PROBLEM}; the run continues" if ends else "Failed"
    )
    assert recorder.notes.count(PROBLEM) == 1
    assert "DELETE" not in methods and ("PATCH" in methods) is not ends
