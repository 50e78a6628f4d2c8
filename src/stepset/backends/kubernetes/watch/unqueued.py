"""Finds out why Kueue has created no Workload for a suspended run.

Kueue reports no reason. Therefore this module reads the priority classes that the run names. An account can
submit a run without the permission to read these classes. If the account cannot read a class, the result contains
the name of the class, and the command that grants the permission.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import anyio

from stepset.backends.kubernetes.api.lookup import Lookup, kueue_resource, look_up
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.permissions import account_name
from stepset.backends.kubernetes.api.replies import NOT_FOUND
from stepset.backends.kubernetes.api.resources import (
    PRIORITY_CLASSES,
    QUEUE_WORKLOADS,
    WORKLOADS,
    Resource,
    resource_for,
)
from stepset.backends.kubernetes.watch.selectors import KUEUE_UID
from stepset.errors import StepsetError
from stepset.targets.pod_templates import priority_classes
from stepset.targets.workload_kinds import WORKLOAD_KINDS
from stepset.unstructured import part, text
from stepset.watch.cluster.kueue.unqueued import Unqueued
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.workload import Workload

_log = logging.getLogger(__name__)

AFTER = 60.0
"""The number of seconds for which a suspended run may have no Workload. Kueue needs less time."""
INTERVAL = 20.0
"""Seconds between two checks of the same run."""
REFUSED_INTERVAL = 120.0
"""Seconds between two checks of the same run if the Workloads cannot be read."""
CHECK_TIMEOUT = 10.0
"""Seconds in which the server must answer all requests of a check."""


class UnqueuedRuns:
    """Checks the suspended runs of a namespace for which Kueue has created no Workload."""

    def __init__(self, namespaced: NamespacedClient, interval: float = INTERVAL) -> None:
        self._namespaced, self._interval = namespaced, interval
        self._due_at: dict[str, float] = {}  # the time of the next check of each run
        self._served: dict[str, Resource | None] = {}  # for the current pass: the resources of Kueue by their names
        self._lookups: dict[tuple[Resource, str], Lookup] = {}  # for the current pass: the priority classes
        self._account: str | None = None  # the name of the account; None if it is unknown
        self._unreadable = set[str]()  # the uids of the runs whose check has failed with an unexpected error

    async def read(self, runs: Iterable[RunObjects]) -> list[RunObjects]:
        """Updates `RunObjects.unqueued` of the runs, and returns the runs that have changed.

        If the server does not answer, or if an object cannot be read, the last result is kept. Each priority class is
        read once for all runs.
        """
        changed = list[RunObjects]()
        self._served.clear()
        self._lookups.clear()
        for run in runs:
            before, workload = run.unqueued, run.workload
            if workload is None or not self._waits_without_place(run, workload):
                run.unqueued = None
                self._due_at.pop(run.uid, None)
                self._unreadable.discard(run.uid)
            elif time.monotonic() >= self._due_at.get(run.uid, float("-inf")):
                self._due_at[run.uid] = time.monotonic() + self._interval
                with anyio.move_on_after(CHECK_TIMEOUT):
                    await self._update(run, workload)
            changed += [run] if run.unqueued != before else []
        return changed

    async def _update(self, run: RunObjects, workload: Workload) -> None:
        try:
            run.unqueued = found = await self._check(workload)
        except StepsetError:
            return
        except Exception as error:  # noqa: BLE001  # one run must not stop the checks of the other runs
            if run.uid not in self._unreadable:
                _log.warning("the Workload of run %s cannot be checked: %r", run.name, error)
            self._unreadable.add(run.uid)
            return
        if found is not None and not found.confirmed:
            self._due_at[run.uid] = time.monotonic() + REFUSED_INTERVAL

    def _waits_without_place(self, run: RunObjects, workload: Workload) -> bool:
        waits = workload.suspended and bool(workload.queue) and not workload.ended and not run.kueue_workloads
        return waits and not run.absence and 0 < workload.created < time.time() - AFTER

    async def _check(self, workload: Workload) -> Unqueued | None:
        """Returns what is known about a run, or None if Kueue has created a Workload for the run."""
        exists = await self._has_kueue_workload(workload)
        if exists:
            return None
        missing, unread = list[str](), list[str]()
        for kind, resource, name in await self._classes(workload):
            found = await self._look_up(resource, name)
            if found.missing:
                missing.append(f"{kind} {name!r} does not exist; {found.remedy}")
            elif not found.readable:
                unread.append(f"{kind} {name}")
        # Only the advice about an unqueued run without a missing class contains the command.
        grant = await self._grant(workload) if exists is False and unread and not missing else ""
        return Unqueued(exists is False, "; ".join(missing), tuple(unread), grant)

    async def _grant(self, workload: Workload) -> str:
        """Returns the command that grants the permission to read the priority classes.

        Returns "" if the server does not answer the request for the name of the account.
        """
        if self._account is None:
            with suppress(StepsetError), anyio.move_on_after(CHECK_TIMEOUT / 2):
                self._account = await account_name(self._namespaced.client)
        if self._account is None:
            return ""
        grant = replace(self._namespaced.grant, targets=(workload.target,), gang="kueue", priorities=True)
        return grant.command(workload.namespace, self._account)

    async def _has_kueue_workload(self, workload: Workload) -> bool | None:
        """Returns whether Kueue has created a Workload for a run. Returns None if the Workloads cannot be read."""
        client = self._namespaced.client
        served = await self._kueue(QUEUE_WORKLOADS.plural)
        if served is None:  # the server serves another version, or Kueue is not installed
            group = await client.get(f"/apis/{QUEUE_WORKLOADS.group}")
            return False if group.status == NOT_FOUND else None
        of_it = {"labelSelector": f"{KUEUE_UID}={workload.uid}", "limit": "1"}
        listed = await client.get(self._namespaced.all(served), of_it)
        return bool(listed.body.get("items")) if listed.accepted else None

    async def _classes(self, workload: Workload) -> Sequence[tuple[str, Resource, str]]:
        """Returns the kind, the resource and the name of each priority class from which Kueue takes the priority."""
        if workload.queue_priority:
            kueue = await self._kueue("workloadpriorityclasses")
            return [("WorkloadPriorityClass", kueue, workload.queue_priority)] if kueue is not None else []
        return [("PriorityClass", PRIORITY_CLASSES, name) for name in await self._of_pods(workload)]

    async def _kueue(self, plural: str) -> Resource | None:
        if plural not in self._served:
            self._served[plural] = await kueue_resource(self._namespaced.client, plural)
        return self._served[plural]

    async def _look_up(self, resource: Resource, name: str) -> Lookup:
        if (resource, name) not in self._lookups:
            self._lookups[resource, name] = await look_up(self._namespaced.client, resource, "", name)
        return self._lookups[resource, name]

    async def _of_pods(self, workload: Workload) -> Sequence[str]:
        client, kind = self._namespaced.client, WORKLOADS[workload.target]
        found = await client.get(self._namespaced.one(kind, workload.name))
        templates = resource_for(WORKLOAD_KINDS[workload.target].templates)
        if found.accepted and templates != kind:
            runtime = text(part(found.body, "spec", "runtimeRef"), "name")
            found = await client.get(self._namespaced.one(templates, runtime))
        return priority_classes(found.body) if found.accepted else ()
