"""Claims a task's run in processes that are killed at each of their requests in turn; a separate program.

test_exactly_one.py starts it, because it forks: `python -m tests.airflow.cluster.dying KUBECONFIG NAMESPACE JOB`.
For each kill it prints a line of JSON: where the first process was killed, and the uid that the second one found.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from stepset.backends.base import RunRequest
from stepset.backends.kubernetes.api.client import Client
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset_airflow.hooks.cluster import ClusterAccess
from stepset_airflow.identity import TaskIdentity
from stepset_airflow.run.clusters import AttachedRun, Clusters
from stepset_airflow.run.create import RunCreator
from stepset_airflow.run.record_store import RecordStore
from stepset_airflow.run.termination import Termination
from stepset_airflow.run_record import Finished, FollowSettings, RunRecord, next_step


@dataclass(frozen=True)
class Ti:
    """A task instance."""

    run_id: str
    try_number: int = 1
    dag_id: str = "retrain"
    task_id: str = "train"
    map_index: int | None = -1
    max_tries: int = 3


@dataclass(frozen=True)
class FileStore:
    """A task state store that outlives the process, as Airflow's does."""

    path: Path

    def get(self, key: str) -> Any:
        return json.loads(self.path.read_text()).get(key) if self.path.exists() else None

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        new = self.path.with_suffix(".new")
        there = json.loads(self.path.read_text()) if self.path.exists() else {}
        new.write_text(json.dumps({**there, key: value}))
        new.replace(self.path)


@dataclass(frozen=True)
class Job:
    """The job of a task."""

    fields: Mapping[str, Any]

    def settings(self, access: ClusterAccess) -> FollowSettings:
        return FollowSettings(access=access)

    def request(self, record: RunRecord, owner: str) -> RunRequest:
        job = parse_job(self.fields)
        return RunRequest(job, read_sources(job), name=record.name, attempt=record.attempt, owner=owner)


def claim(kubeconfig: str, namespace: str, job: Mapping[str, Any], ti: Ti, store: FileStore) -> AttachedRun:
    """Claims the run of a task instance."""
    clusters, records = Clusters(), RecordStore(store)
    task: Any = SimpleNamespace(on_kill_action="delete", log=logging.getLogger())
    identity = TaskIdentity(ti, "", retries=3)
    creator = RunCreator(
        job=Job(job),
        access=ClusterAccess(None, namespace, config_file=kubeconfig),
        target="jobset",
        clusters=clusters,
        records=records,
        termination=Termination(task, cast("Any", ti), clusters, records),
        identity=identity,
    )
    step = next_step(records.read(), identity.epoch, durable=True)
    assert not isinstance(step, Finished)
    return creator.run(step)


def die_at(number: int, *, answered: bool) -> None:
    """Makes this process kill itself at a request.

    Args:
        number: the number of the request, from 1.
        answered: True: after the reply; False: before the request is sent.
    """
    send, count = Client._send, 0

    async def counted(self: Any, *words: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        mine = count
        if mine == number and not answered:
            os.kill(os.getpid(), signal.SIGKILL)
        reply = await send(self, *words, **named)
        if mine == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    Client._send = counted  # type: ignore[method-assign]  # the injected fault


def main() -> None:
    """Kills a process at each request, until one ends without being killed."""
    kubeconfig, namespace, job = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    directory = Path(tempfile.mkdtemp())
    for number in range(1, 100):
        for answered in (False, True):
            where = f"{number}-{'answered' if answered else 'unsent'}"
            store = FileStore(directory / f"{where}.json")
            child = os.fork()
            if not child:
                die_at(number, answered=answered)
                claim(kubeconfig, namespace, job, Ti(where), store)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                print(json.dumps({"requests": number - 1}), flush=True)
                return
            found = claim(kubeconfig, namespace, job, Ti(where, try_number=2), store)
            print(json.dumps({"killed": where, "uid": found.record.uid, "name": found.record.name}), flush=True)


if __name__ == "__main__":
    main()
