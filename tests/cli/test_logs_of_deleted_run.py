"""`stepset logs` succeeds if the run is deleted, or a permission is revoked, after the lines were printed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, CommandResult

pytest.importorskip("kubernetes", reason="stepset[kubernetes] is not installed here")

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.test_find import jobset
from tests.watch.cluster.streams import left


def logs_with(
    answer: Callable[[str, str, dict[str, str]], tuple[int, Any]], program: Cli, tmp_path: Path, *words: str
) -> CommandResult:
    """Runs `stepset logs` against a server that answers as `answer` states."""

    async def logs() -> CommandResult:
        async with ApiServer(answer) as server:
            cluster = ("--backend", "kubernetes", "--namespace", "ns")
            environment = {"KUBECONFIG": kubeconfig(tmp_path, server.port)}
            return await asyncio.to_thread(program, "logs", *words, *cluster, env=environment)

    return asyncio.run(logs())


def listing_of(objects: list[Any], path: str) -> dict[str, Any]:
    """The list of the objects of a kind, from the path of the request."""
    items = [each for each in objects if f"{each['kind'].lower()}s" == path.rpartition("/")[2]]
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}


@pytest.mark.parametrize("refusal", [403, 404])
def test_the_note_about_deleted_logs_cannot_fail_the_command(program: Cli, tmp_path: Path, refusal: int) -> None:
    found: list[str] = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/jobsets/fit-1"):
            found.append(path)
            return (200, jobset("fit-1")) if len(found) == 1 else (refusal, {"kind": "Status", "code": refusal})
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}

    assert logs_with(answer, program, tmp_path, "fit-1") == CommandResult(0, "", "")
    assert len(found) == 2


def test_a_run_whose_pods_have_not_started_has_a_note_instead_of_lines(program: Cli, tmp_path: Path) -> None:
    node = {"name": "node", "template": {"spec": {"parallelism": 2}}}
    suspended = {**jobset("fit-1"), "spec": {"suspend": True, "replicatedJobs": [node]}}

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/jobsets/fit-1"):
            return 200, suspended
        items = [suspended] if path.endswith("/jobsets") else []
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    see = "see stepset status fit-1 --backend kubernetes --namespace ns"
    note = f"stepset: note: no pod has started yet; the run is Suspended; {see}\n"
    assert logs_with(answer, program, tmp_path, "fit-1") == CommandResult(0, "", note)


@pytest.mark.parametrize("flags", [(), ("--tail", "5")])
def test_the_status_is_not_requested_if_lines_were_printed(
    program: Cli, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    objects = [change.object for change in left("jobset_succeeds")]
    found = []

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/log"):
            return 200, b"2026-01-01T12:00:00.000000001Z a line\n"
        if path.endswith("/jobsets/run"):
            found.append(path)
            return 200, objects[0]
        return 200, listing_of(objects, path)

    done = logs_with(answer, program, tmp_path, "run", *flags)
    assert "a line" in done.out, done.err
    assert len(found) == 2  # for the lines, and for the note about deleted logs


def test_the_note_about_pods_whose_containers_never_started_does_not_state_that_they_were_deleted(
    program: Cli, tmp_path: Path
) -> None:
    objects = [change.object for change in left("jobset_fails_before_its_containers")]

    def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/jobsets/run"):
            return 200, objects[0]
        return 200, listing_of(objects, path)

    done = logs_with(answer, program, tmp_path, "run", "--ranks", "0")
    pod = next(each["metadata"]["name"] for each in objects if each["metadata"]["name"].startswith("run-node-0-0-"))
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(
        f"stepset: note: the log of pod {pod} cannot be read, because its container node never started; rank 0"
    )
    assert done.err.endswith("failed, as its init container fetch exited with code 4\n")
