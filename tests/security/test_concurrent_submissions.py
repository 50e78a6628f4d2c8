"""Submissions of the same run by several processes, and after a process was killed at any request."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.errors import StepsetError
from stepset.targets.metadata import SUBMISSION
from stepset.targets.request import RenderRequest
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import client_at
from tests.kubernetes.stored_objects import StoredObjects
from tests.kubernetes.submitting import submit
from tests.targets.making import request

TARGETS = ("jobset", "trainjob", "statefulset", "job", "volcano")


TRAINJOBS = [("trainjob", first, second) for first in (2, 3, 4) for second in (3, 5, 7)]
HELD = [("jobset", 1, 1), ("jobset", 2, 1), *TRAINJOBS]
"""The target, and the numbers of the requests that wait: of the first submission, and of the second."""


def job(author: str, owner: str | None = None, **fields: Any) -> RenderRequest:
    return request(run="run", owner=owner, num_nodes=2, annotations={"example.com/author": author}, **fields)


@pytest.mark.parametrize(("target", "first_held", "second_held"), HELD)
def test_of_two_submissions_of_one_name_at_most_one_succeeds_and_its_run_has_its_own_job(
    target: str, first_held: int, second_held: int
) -> None:
    """The first submission waits at one of its requests, the second one at one of its own for twice as long.

    A TrainJob's job is in its TrainingRuntime, which is created first.
    """

    async def both() -> tuple[StoredObjects, list[str]]:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])
        waits, count = asyncio.Event(), itertools.count(1)

        def delay() -> float:
            number = next(count)
            if number == first_held:
                waits.set()
            return {first_held: 0.5, first_held + second_held: 1.0}.get(number, 0.0)

        async def one(name: str) -> str:
            async with client_at(server.port) as client:
                try:
                    await submit(NamespacedClient(client, "ns"), job(name), target)
                except StepsetError:
                    return ""
                finally:
                    waits.set()
            return name

        async with ApiServer(objects.answer, delay=delay) as server:
            first = asyncio.create_task(one("of-alice"))
            await waits.wait()
            return objects, [name for name in (await one("of-bob"), await first) if name]

    objects, succeeded = asyncio.run(both())
    assert len(succeeded) <= 1
    rendered = str([each for each in objects.by_path.values() if each["metadata"]["name"] == "run"])
    for name in succeeded:
        assert name in rendered
        assert ("of-bob" if name == "of-alice" else "of-alice") not in rendered


@pytest.mark.parametrize(
    ("target", "framework"), [*((target, "torch") for target in TARGETS), ("jobset", "mpi"), ("trainjob", "mpi")]
)
def test_a_submission_that_was_killed_at_any_request_is_completed_by_the_next(target: str, framework: str) -> None:
    wanted = job("a", owner="me", framework=framework)

    async def killed_at(number: int) -> tuple[StoredObjects, bool]:
        server: ApiServer
        objects = StoredObjects(lambda: server.bodies[-1][2])
        count, ended, killed = 0, False, asyncio.Event()

        def answer(method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
            nonlocal count
            count += 1
            reply = objects.answer(method, path, query)
            if count == number and not ended:
                killed.set()
                return 0, None
            return reply

        async with ApiServer(answer) as server:
            async with client_at(server.port) as client:
                first = asyncio.create_task(submit(NamespacedClient(client, "ns"), wanted, target))
                waiting = asyncio.create_task(killed.wait())
                await asyncio.wait([first, waiting], return_when=asyncio.FIRST_COMPLETED)
                for each in (first, waiting):
                    each.cancel()
                await asyncio.gather(first, waiting, return_exceptions=True)
            ended = True
            async with client_at(server.port) as client:
                await submit(NamespacedClient(client, "ns"), wanted, target)
        return objects, killed.is_set()

    complete, _ = asyncio.run(killed_at(0))
    (workload,) = [path for path, each in complete.by_path.items() if not each["metadata"].get("ownerReferences")]
    number, was_killed = 1, True
    while was_killed:
        objects, was_killed = asyncio.run(killed_at(number))
        assert objects.by_path.keys() == complete.by_path.keys(), number
        for path, each in objects.by_path.items():
            about = each["metadata"]
            assert SUBMISSION not in (about.get("labels") or {}), (number, path)
            owners = [owner["uid"] for owner in about.get("ownerReferences", ())]
            assert owners == ([] if path == workload else [objects.by_path[workload]["metadata"]["uid"]]), (
                number,
                path,
            )
        number += 1
    assert number > 3
