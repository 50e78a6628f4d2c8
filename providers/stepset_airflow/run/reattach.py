"""Exactly one training for a task instance: its run is created, found again, or ended before a new one is created.

A worker may die at any moment: the next one finds the run by the stored record and its name; record.py decides
what follows from that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stepset_airflow.identity import TaskInstance, cluster_name, epoch, owner_of
from stepset_airflow.run.run_record import KEY, Finished, Reattach, RunRecord, StartNew, next_step
from stepset_airflow.task_state import TaskStateStore, set_forever

if TYPE_CHECKING:
    from stepset.backends.base import RunRequest
    from stepset.backends.kubernetes.backend import KubernetesBackend

GONE_WITHIN = 180.0
"""Seconds that an earlier run may take to end, checkpoint included, before another may begin."""

_LOOK = 1.0
_log = logging.getLogger(__name__)

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Reattachment:
    """A task's run; `workload` is None if it no longer exists or is not needed, `found`: an earlier try created it."""

    record: RunRecord
    workload: Manifest | None = None
    notes: tuple[str, ...] = ()
    found: bool = False


@dataclass(frozen=True)
class Reattacher:
    """Creates or finds the run of one task instance.

    Args:
        backend: returns the backend of a namespace; a new run is created in `namespace`.
        instance: name of this Airflow.
        durable: whether a retry continues the run of an earlier try.
        request: name, attempt, owner -> the run to create.
        end: ends an earlier run that is no longer wanted.
        tidy: deletes the objects of a run that is over, if they are to be deleted.
    """

    backend: Callable[[str], KubernetesBackend]
    namespace: str
    store: TaskStateStore
    ti: TaskInstance
    instance: str
    retries: int
    durable: bool
    request: Callable[[str, int, str], RunRequest]
    end: Callable[[KubernetesBackend, Manifest], None]
    tidy: Callable[[RunRecord], None]

    def reattach(self) -> Reattachment:
        """Returns the run; raises as `KubernetesBackend.make`. After an error the next call continues."""
        step = next_step(self.remembered(), epoch(self.ti, self.retries), self.durable)
        if isinstance(step, Finished):
            return Reattachment(step.record, found=True)
        if isinstance(step, Reattach):
            record = step.record
        else:
            if step.before is not None and step.before.ended:
                self.tidy(step.before)
            elif step.before is not None:
                self._end_earlier(step.before)
            record = self._free(step)
            self.save(record)
        if record.uid:
            return Reattachment(record, self.backend(record.namespace).workload(record.name, record.uid), found=True)
        return self._made(record)

    def remembered(self) -> RunRecord | None:
        found = self.store.get(KEY)
        return RunRecord.from_dict(found) if isinstance(found, Mapping) else None

    def save(self, record: RunRecord) -> None:
        """Stores a record for as long as the task instance exists."""
        set_forever(self.store, KEY, record.to_dict())

    def _made(self, record: RunRecord) -> Reattachment:
        from stepset.errors import BadInputError

        backend, owner = self.backend(record.namespace), owner_of(self.ti, self.instance)
        try:
            made, notes = backend.make(self.request(record.name, record.attempt, owner))
        except BadInputError:
            there = backend.workload(record.name)
            if there is None or not _is_of(there, owner):
                raise
            # A worker created it from a job that has changed since, and died before it could store that.
            self._end(backend, there)
            record = replace(record, generation=record.generation + 1, name=self._name(record.generation + 1))
            self.save(record)
            made, notes = backend.make(self.request(record.name, record.attempt, owner))
        record = replace(record, uid=str(made.workload["metadata"]["uid"]))
        self.save(record)
        return Reattachment(record, made.workload, notes, found=made.adopted)

    def _free(self, step: StartNew) -> RunRecord:
        """The record of a new run, under a name that no other run has, also none that the state store does not hold."""
        backend, generation = self.backend(self.namespace), step.generation
        owner = owner_of(self.ti, self.instance)
        while (there := backend.workload(self._name(generation))) is not None:
            going_on = not there["metadata"].get("deletionTimestamp") and not backend.read(there).phase.final
            if step.generation == 1 and _is_of(there, owner) and going_on:
                break  # of this task instance, which Airflow has deleted and created again
            generation += 1
        now = epoch(self.ti, self.retries)
        return RunRecord(self._name(generation), self.namespace, generation, epoch=now, attempt=step.attempt)

    def _name(self, generation: int) -> str:
        return cluster_name(self.ti, self.instance, generation)

    def _end_earlier(self, record: RunRecord) -> None:
        backend = self.backend(record.namespace)
        there = backend.workload(record.name, record.uid)
        if there is not None and (record.uid or _is_of(there, owner_of(self.ti, self.instance))):
            _log.info("run %s is of an earlier try and not wanted any more", record.name)
            self._end(backend, there)

    def _end(self, backend: KubernetesBackend, workload: Manifest) -> None:
        """Ends a run, and waits until its pods can no longer write to where the next run does."""
        from stepset.errors import InfrastructureError

        self.end(backend, workload)
        about = workload["metadata"]
        until = time.monotonic() + GONE_WITHIN
        while (there := backend.workload(about["name"], about["uid"])) is not None:
            if not there["metadata"].get("deletionTimestamp"):
                return  # suspended, or kept
            if time.monotonic() > until:
                raise InfrastructureError(
                    f"run {about['name']} of an earlier try is still ending after {GONE_WITHIN:.0f} s; look at its pods"
                )
            time.sleep(_LOOK)


def _is_of(workload: Manifest, owner: str) -> bool:
    from stepset.targets.metadata import OWNER_HASH

    return (workload["metadata"].get("labels") or {}).get(OWNER_HASH) == owner
