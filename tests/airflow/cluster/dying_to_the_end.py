"""Executes a task to its end, in processes that are killed at each of their changes; a separate program.

test_exactly_one.py starts it, because it forks, as `python -m` with three arguments: the operator's parameters as JSON;
`sync` or `deferred`; and the first change to kill at: `at first`, or `when made`, which is once the run exists.
For each kill it prints a line of JSON: the changes that the first process made, the task's result after further tries,
each try's log lines of rank 0, and the errors of the failed tries. The kills are at changes in the task state store and
on the cluster, because what a process only reads does not affect the next one.
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
"""Number of concurrent processes, which mostly wait."""
TRIES = 4


class Event:
    """An asset's event."""

    def __init__(self) -> None:
        self.extra: dict[str, Any] = {}


class RunningTi(Ti):
    """A started task instance."""

    start_date = datetime.now(UTC)

    def xcom_push(self, key: str, value: Any) -> None:
        """Does nothing: the result of `execute` is the task's XCom."""


def execute(parameters: Mapping[str, Any], deferrable: bool, ti: Ti, store: FileStore) -> dict[str, Any]:
    """Executes the task to its end, as worker and triggerer do; returns its result and its asset's event."""
    model = Asset("model")
    with DAG(ti.dag_id, schedule=None):
        task = DistributedTrainOperator(
            task_id=ti.task_id, deferrable=deferrable, outlets=[model], retries=ti.max_tries, **parameters
        )
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


def die_at(number: int, *, after: bool, changes: Path) -> None:
    """Makes this process kill itself at one of its changes.

    Args:
        number: the number of the change, from 1; 0: never.
        after: True: after the change; False: before it.
        changes: the file to which each change is written.
    """
    count = 0

    @contextmanager
    def counted(what: str) -> Iterator[None]:
        nonlocal count
        count += 1
        mine = count
        with changes.open("a") as file:
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

    Client._send = sent  # type: ignore[method-assign]  # the injected fault
    FileStore.set = saved  # type: ignore[method-assign, assignment]  # likewise


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Redirects the log of this process to a file during the block."""
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
    """The logged lines of rank 0, each a word and a number."""
    return re.findall(r"\[rank 0\] (\w+ \d+)", log.read_text())


def one(place: tuple[int, bool], directory: Path, parameters: Mapping[str, Any], deferrable: bool) -> dict[str, Any]:
    """Runs a process that is killed at a place, and then tries of the task until one ends without an error."""
    name = f"{place[0]}-{'after' if place[1] else 'before'}"
    store, changes = FileStore(directory / f"{name}.json"), directory / f"{name}.changes"
    logs = [directory / f"{name}.1.log"]
    child = os.fork()
    if not child:
        die_at(place[0], after=place[1], changes=changes)
        with suppress(AirflowException), logged_to(logs[0]):  # a failed try has ended, too
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
            return {**found, "changed": changes.read_text().splitlines(), "failed": failed, "lines": lines}
    raise AssertionError(failed)


def main() -> None:
    """Runs the task without a kill, then with a kill at each place."""
    parameters, deferrable = json.loads(sys.argv[1]), sys.argv[2] == "deferred"
    directory = Path(tempfile.mkdtemp())
    for module in MODULES:  # before the forks, not in each process
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
                os.write(1, line.encode())  # one write, because other processes write here, too
                os._exit(0)
            running.add(child)
        child, status = os.wait()
        running.discard(child)
        failed = failed or status != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
