"""Ensures exactly one training of a task instance: creates its run, finds it again, or ends it before a new one.

A worker may die at any moment. The next one finds the run by the stored record and its name; run_record.py decides what
to do with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from stepset_airflow.identity import TaskInstance, cluster_name, epoch, owner_of
from stepset_airflow.page.past_tries import failure_of
from stepset_airflow.run.run_record import KEY, Finished, Reattach, RunRecord, StartNew, next_step
from stepset_airflow.run.try_reason import try_reason
from stepset_airflow.task_state import TaskStateStore, set_forever

if TYPE_CHECKING:
    from stepset.backends.base import RunRequest
    from stepset.backends.kubernetes.backend import KubernetesBackend

TERMINATION_TIMEOUT = 180.0
"""Maximum seconds that an earlier run takes to end, its checkpoint included, before a new one starts."""

_POLL_INTERVAL = 1.0
_log = logging.getLogger(__name__)

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class AttachedRun:
    """The run of a task, created or found.

    `workload` is None if it no longer exists or is not needed; `found` is True if an earlier try created it.
    """

    record: RunRecord
    workload: Manifest | None = None
    notes: tuple[str, ...] = ()
    found: bool = False


@dataclass(frozen=True)
class Reattacher:
    """Creates or finds the run of one task instance.

    Args:
        backend: returns the backend of a namespace.
        namespace: namespace of a new run.
        instance: name of this Airflow deployment.
        durable: whether a retry continues the run of an earlier try.
        request: returns the run to create, for a name, attempt and owner.
        end: ends an earlier run.
        clean_up: deletes the objects of a completed run if `on_finish_action` requires it.
        log: writes why the task is executed again.
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
    clean_up: Callable[[RunRecord], None]
    log: Callable[[str], None]

    def reattach(self) -> AttachedRun:
        """Returns the run; raises like `KubernetesBackend.make`, and can be called again after an error."""
        record = self.stored_record()
        now = epoch(self.ti, self.retries)
        step = next_step(record, now, self.durable)
        if reason := try_reason(step, record, now, self.ti.try_number, partial(failure_of, self.store)):
            self.log(reason)
        if record is None and now:
            # Airflow 3.4 discards the state of a task that a user clears. Each earlier run had a lower try number.
            step = StartNew(generation=self.ti.try_number)
            self._end_unrecorded()
        if isinstance(step, Finished):
            return AttachedRun(step.record, found=True)
        if isinstance(step, Reattach):
            record = step.record
        else:
            if step.before is not None and step.before.ended:
                self.clean_up(step.before)
            elif step.before is not None:
                self._end_earlier(step.before)
            record = self._new_record(step)
            self.save(record)
        if record.uid:
            return AttachedRun(record, self.backend(record.namespace).workload(record.name, record.uid), found=True)
        return self._create(record)

    def stored_record(self) -> RunRecord | None:
        """Returns the task's record, None if it has none.

        Raises BadInputError if the stored value is not a record: whether the task has a run is then unknown.
        """
        from stepset.errors import BadInputError
        from stepset.printable import printable_text

        found = self.store.get(KEY)
        try:
            return None if found is None else RunRecord.from_dict(found)
        except ValueError as error:
            raise BadInputError(
                f"the task's state {KEY!r} is not the record of a run: {printable_text(str(error))}; cancel the task's"
                " run if 'stepset list' shows one, then delete the state and clear the task"
            ) from error

    def save(self, record: RunRecord) -> None:
        """Stores a record for as long as the task instance exists."""
        set_forever(self.store, KEY, record.to_dict())

    def _create(self, record: RunRecord) -> AttachedRun:
        from stepset.errors import BadInputError

        backend, owner = self.backend(record.namespace), owner_of(self.ti, self.instance)
        try:
            made, notes = backend.make(self.request(record.name, record.attempt, owner))
        except BadInputError:
            existing = backend.workload(record.name)
            if existing is None or not _is_of(existing, owner):
                raise
            # An earlier worker created it from a job that has changed since, and died before it stored the uid.
            self._end(backend, existing)
            record = replace(record, generation=record.generation + 1, name=self._name(record.generation + 1))
            self.save(record)
            made, notes = backend.make(self.request(record.name, record.attempt, owner))
        if made.adopted:
            self.log(f"run {record.name} exists already; this try follows it")
        record = replace(record, uid=str(made.workload["metadata"]["uid"]))
        self.save(record)
        return AttachedRun(record, made.workload, notes, found=made.adopted)

    def _new_record(self, step: StartNew) -> RunRecord:
        """Returns the record of a new run, with a name that no other run on the cluster has."""
        backend, generation = self.backend(self.namespace), step.generation
        owner = owner_of(self.ti, self.instance)
        while (existing := backend.workload(self._name(generation))) is not None:
            active = not existing["metadata"].get("deletionTimestamp") and not backend.read(existing).phase.final
            if step.generation == 1 and _is_of(existing, owner) and active:
                break  # it belongs to this task instance, which Airflow deleted and created again
            generation += 1
        now = epoch(self.ti, self.retries)
        return RunRecord(self._name(generation), self.namespace, generation, epoch=now, attempt=step.attempt)

    def _name(self, generation: int) -> str:
        return cluster_name(self.ti, self.instance, generation)

    def _end_earlier(self, record: RunRecord) -> None:
        backend = self.backend(record.namespace)
        existing = backend.workload(record.name, record.uid)
        if existing is not None and (record.uid or _is_of(existing, owner_of(self.ti, self.instance))):
            _log.info("ending run %s of an earlier try", record.name)
            self._end(backend, existing)

    def _end_unrecorded(self) -> None:
        """Ends the runs of this task instance of which no record exists, if they are active."""
        backend = self.backend(self.namespace)
        for existing in backend.owned(owner_of(self.ti, self.instance)):
            if existing["metadata"].get("deletionTimestamp") or not backend.read(existing).phase.final:
                _log.info("ending run %s of an earlier try", existing["metadata"]["name"])
                self._end(backend, existing)

    def _end(self, backend: KubernetesBackend, workload: Manifest) -> None:
        """Ends a run, and waits until its pods can no longer write to the files of the next run."""
        from stepset.errors import InfrastructureError

        self.end(backend, workload)
        metadata = workload["metadata"]
        until = time.monotonic() + TERMINATION_TIMEOUT
        while not backend.gone(workload):
            existing = backend.workload(metadata["name"], metadata["uid"])
            if existing is not None and not existing["metadata"].get("deletionTimestamp"):
                return  # suspended, or kept
            if time.monotonic() > until:
                raise InfrastructureError(
                    f"run {metadata['name']} of an earlier try is still ending after {TERMINATION_TIMEOUT:.0f} s;"
                    " check its pods"
                )
            time.sleep(_POLL_INTERVAL)


def _is_of(workload: Manifest, owner: str) -> bool:
    from stepset.targets.metadata import OWNER_HASH

    return (workload["metadata"].get("labels") or {}).get(OWNER_HASH) == owner
