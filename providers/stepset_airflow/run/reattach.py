"""Ensures that a task instance has exactly one active run.

A worker may die at any time. The next worker finds the run by the stored record and by the name of the run.
run_record.py decides what the next worker does. This worker either continues the run of the earlier worker, or ends
that run and creates a new run.
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
from stepset_airflow.run.run_record import KEY, SUCCEEDED, Finished, Reattach, RunRecord, StartNew, next_step
from stepset_airflow.run.try_reason import try_reason
from stepset_airflow.task_state import TaskStateStore, set_forever
from stepset_airflow.transferable import error_text

if TYPE_CHECKING:
    from stepset.backends.base import RunRequest
    from stepset.backends.kubernetes.backend import KubernetesBackend

TERMINATION_TIMEOUT = 180.0
"""Maximum seconds to wait until an earlier run has terminated. In this time the run may write a checkpoint."""

_POLL_INTERVAL = 1.0
_log = logging.getLogger(__name__)

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class AttachedRun:
    """The run of a task.

    Args:
        record: the record of the run.
        workload: the workload of the run. None if the workload no longer exists or is not needed.
        notes: notes about the run for the task log.
        found: whether an earlier execution of the task created the run.
    """

    record: RunRecord
    workload: Manifest | None = None
    notes: tuple[str, ...] = ()
    found: bool = False


@dataclass(frozen=True)
class Reattacher:
    """Creates or finds the run of one task instance.

    Args:
        backend: a function that returns the backend for a namespace.
        namespace: a function that returns the namespace of a new run. The function reads the Airflow
            connection. Reading the connection may write log lines or raise an error. Therefore the function is called
            after the reason for the try has been logged.
        store: the task state store, which contains the record of the run.
        ti: the task instance.
        instance: the name of this Airflow deployment.
        retries: the number of retries of the task.
        durable: whether a retry continues the run of an earlier try.
        request: a function that takes a name, an attempt and an owner, and returns the request for a new run.
        end: a function that ends an earlier run.
        clean_up: a function that deletes the objects of a completed run if `on_finish_action` requires the deletion.
        log: a function that writes a line to the task log. The line states why the task is executed again.
    """

    backend: Callable[[str], KubernetesBackend]
    namespace: Callable[[], str]
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
        """Creates or finds the run, and returns the run. Raises the errors of `KubernetesBackend.make`.

        After an error, the method can be called again.
        """
        record = self.stored_record()
        now = epoch(self.ti, self.retries)
        step = next_step(record, now, self.durable)
        if reason := try_reason(step, record, now, self.ti.try_number, partial(failure_of, self.store)):
            self.log(reason)
        if record is None and now:
            # If a user clears a task, Airflow 3.4 deletes the record of the run. The generation is then unknown. The
            # try number is a suitable generation, because each earlier run was created in a try with a lower number.
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
        """Returns the stored record of the task, or None if no record is stored.

        If the stored value is not a record, the method raises BadInputError. In this case it is unknown whether the
        task has a run.
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

    def find(self, record: RunRecord) -> Manifest | None:
        """Returns the workload of a record, or None if the workload does not exist.

        If the record has no uid, a workload with the name in the record may belong to another owner. The method does
        not return such a workload.
        """
        existing = self.backend(record.namespace).workload(record.name, record.uid)
        if existing is not None and (record.uid or _is_of(existing, owner_of(self.ti, self.instance))):
            return existing
        return None

    def save(self, record: RunRecord) -> None:
        """Stores a record until the task instance is deleted."""
        set_forever(self.store, KEY, record.to_dict())

    def save_end(self, record: RunRecord, warn: Callable[[str], None]) -> bool:
        """Stores the record of a completed run. Returns whether Airflow has stored the record.

        If the run has succeeded, the method calls `warn` instead of raising an exception, so that the task succeeds,
        too. The caller must then keep the objects of the run, because only they show another try of the task the end.
        """
        try:
            self.save(record)
        except Exception as error:
            if record.ended != SUCCEEDED:
                raise
            warn(f"the end of run {record.name} cannot be stored: {error_text(error)}")
            return False
        return True

    def _create(self, record: RunRecord) -> AttachedRun:
        from stepset.errors import BadInputError

        backend, owner = self.backend(record.namespace), owner_of(self.ti, self.instance)
        try:
            made, notes = backend.make(self.request(record.name, record.attempt, owner))
        except BadInputError:
            existing = backend.workload(record.name)
            if existing is None or not _is_of(existing, owner):
                raise
            # An earlier worker created this workload and died before it stored the uid. The job has changed since then.
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
        """Returns the record of a new run. No other run on the cluster uses the name that the record contains.

        If this task instance already has an active run without a record, the method returns a record for that run.
        """
        backend, generation = self.backend(self.namespace()), step.generation
        owner = owner_of(self.ti, self.instance)
        while (existing := backend.workload(self._name(generation))) is not None:
            active = not existing["metadata"].get("deletionTimestamp") and not backend.read(existing).phase.final
            if step.generation == 1 and _is_of(existing, owner) and active:
                break  # the run belongs to this task instance; Airflow deleted and recreated the task instance
            generation += 1
        now = epoch(self.ti, self.retries)
        return RunRecord(self._name(generation), self.namespace(), generation, epoch=now, attempt=step.attempt)

    def _name(self, generation: int) -> str:
        return cluster_name(self.ti, self.instance, generation)

    def _end_earlier(self, record: RunRecord) -> None:
        if (existing := self.find(record)) is not None:
            _log.info("ending run %s of an earlier try", record.name)
            self._end(self.backend(record.namespace), existing)

    def _end_unrecorded(self) -> None:
        """Ends the active runs of this task instance that have no record."""
        backend = self.backend(self.namespace())
        for existing in backend.owned(owner_of(self.ti, self.instance)):
            if existing["metadata"].get("deletionTimestamp") or not backend.read(existing).phase.final:
                _log.info("ending run %s of an earlier try", existing["metadata"]["name"])
                self._end(backend, existing)

    def _end(self, backend: KubernetesBackend, workload: Manifest) -> None:
        """Ends a run, and waits until the pods of the run have terminated.

        Otherwise, these pods could write to files that the next run uses.
        """
        from stepset.errors import InfrastructureError

        self.end(backend, workload)
        metadata = workload["metadata"]
        until = time.monotonic() + TERMINATION_TIMEOUT
        while not backend.gone(workload):
            existing = backend.workload(metadata["name"], metadata["uid"])
            if existing is not None and not existing["metadata"].get("deletionTimestamp"):
                return  # on_kill_action is suspend or keep
            if time.monotonic() > until:
                raise InfrastructureError(
                    f"run {metadata['name']} of an earlier try is still ending after {TERMINATION_TIMEOUT:.0f} s;"
                    " check its pods"
                )
            time.sleep(_POLL_INTERVAL)


def _is_of(workload: Manifest, owner: str) -> bool:
    from stepset.targets.metadata import OWNER_HASH

    return (workload["metadata"].get("labels") or {}).get(OWNER_HASH) == owner
