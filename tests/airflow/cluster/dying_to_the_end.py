"""Executes a task in processes that are killed at each thing they change, to its end; a program of its own.

Called by test_exactly_one.py, because it forks, as `python -m` with three words. The first are the operator's
parameters, as JSON; the second is `sync` or `deferred`; the third where it begins, `at first` or `when made`, the run.
For each place it prints a line of JSON: what the first process had changed when it was killed, and what the task came
to after it, in as many tries as it took, with what each of them has logged of rank 0 and how those ended that failed.
What a process only reads makes no difference to the next one, so places are what it changes: in the task state store,
and on the cluster.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from stepset.backends.kubernetes.api.client import Client
from stepset_airflow import DistributedTrainOperator
from stepset_airflow.triggerer.imports import MODULES
from tests.airflow.cluster.dying import FileStore, Ti

AT_ONCE = 4
"""Processes: most of what they do is waiting."""
TRIES = 4


class Event:
    """An asset's event."""

    def __init__(self) -> None:
        self.extra: dict[str, Any] = {}


class RunningTi(Ti):
    """A task instance that was started."""

    start_date = datetime.now(UTC)


def execute(parameters: Mapping[str, Any], deferrable: bool, ti: Ti, store: FileStore) -> dict[str, Any]:
    """Executes the task to its end, as worker and triggerer do between them; its result and its asset's event."""
    model = Asset("model")
    with DAG(ti.dag_id, schedule=None):
        task = DistributedTrainOperator(task_id=ti.task_id, deferrable=deferrable, outlets=[model], **parameters)
    event = Event()
    context: Any = {"ti": ti, "task_state_store": store, "outlet_events": {model: event}}
    try:
        result = task.execute(context)
    except TaskDeferred as deferred:
        result = task.execute_complete(context, asyncio.run(_event_of(deferred.trigger)))
    return {"result": result, "event": event.extra}


async def _event_of(trigger: Any) -> Mapping[str, Any]:
    async for event in trigger.run():
        payload: Mapping[str, Any] = event.payload
        return payload
    raise AssertionError("no event")


def die_at(number: int, *, after: bool, told: Path) -> None:
    """Has this process killed at something that it changes.

    Args:
        number: which, from 1; 0: never.
        after: it is killed when that is done; else before.
        told: a file that what it changes is written to.
    """
    count = 0

    @contextmanager
    def counted(what: str) -> Iterator[None]:
        nonlocal count
        count += 1
        mine = count
        with told.open("a") as file:
            file.write(what + "\n")
        if mine == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        yield
        if mine == number:
            os.kill(os.getpid(), signal.SIGKILL)

    send, save = Client._send, FileStore.set

    async def sent(self: Any, session: Any, method: str, url: str, *words: Any, **named: Any) -> Any:
        if method == "GET":
            return await send(self, session, method, url, *words, **named)
        with counted(f"{method} {url.partition('?')[0]}"):
            return await send(self, session, method, url, *words, **named)

    def saved(self: Any, key: str, value: Any, **named: Any) -> None:
        with counted(f"save {key}"):
            save(self, key, value, **named)

    Client._send = sent  # type: ignore[method-assign]  # the fault of this test
    FileStore.set = saved  # type: ignore[method-assign, assignment]  # likewise


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """What this process logs meanwhile goes to a file."""
    sys.stdout.flush()
    before = os.dup(1)
    with path.open("w") as file:
        os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)


def lines_of(log: Path) -> list[str]:
    """What a process has logged of rank 0: words and their numbers."""
    return re.findall(r"\[rank 0\] (\w+ \d+)", log.read_text())


def one(place: tuple[int, bool], directory: Path, parameters: Mapping[str, Any], deferrable: bool) -> dict[str, Any]:
    """A process that is killed at a place, and the next ones, which go to the end."""
    name = f"{place[0]}-{'after' if place[1] else 'before'}"
    store, told = FileStore(directory / f"{name}.json"), directory / f"{name}.told"
    logs = [directory / f"{name}.1.log"]
    child = os.fork()
    if not child:
        die_at(place[0], after=place[1], told=told)
        with suppress(AirflowException), logged_to(logs[0]):  # a try that fails is over like any other
            execute(parameters, deferrable, RunningTi(name), store)
        os._exit(0)
    found = {"place": name, "killed": os.WIFSIGNALED(os.waitpid(child, 0)[1])}
    failed = []
    for try_number in range(2, TRIES):
        logs.append(directory / f"{name}.{try_number}.log")
        try:
            with logged_to(logs[-1]):
                found |= execute(parameters, deferrable, RunningTi(name, try_number=try_number), store)
        except AirflowException as error:
            failed.append(str(error))
        else:
            lines = [lines_of(log) for log in logs]
            return {**found, "changed": told.read_text().splitlines(), "failed": failed, "lines": lines}
    raise AssertionError(failed)


def main() -> None:
    """All places, or those from the one on at which the run is known."""
    parameters, deferrable = json.loads(sys.argv[1]), sys.argv[2] == "deferred"
    directory = Path(tempfile.mkdtemp())
    for module in MODULES:  # once, and not in each process
        importlib.import_module(module)
    whole = one((0, False), directory, parameters, deferrable)
    changed = whole["changed"]
    made = max(at for at, what in enumerate(changed, 1) if what.startswith("POST"))
    print(json.dumps(whole), flush=True)
    first = made + 1 if sys.argv[3] == "when made" else 1
    places = [(number, after) for number in range(first, len(changed) + 1) for after in (False, True)]
    running: set[int] = set()
    failed = False
    while places or running:
        while places and len(running) < AT_ONCE:
            place = places.pop(0)
            child = os.fork()
            if not child:
                line = json.dumps(one(place, directory, parameters, deferrable)) + "\n"
                os.write(1, line.encode())  # in one piece, because others write here as well
                os._exit(0)
            running.add(child)
        child, status = os.wait()
        running.discard(child)
        failed = failed or status != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
