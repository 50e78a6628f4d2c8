"""Reads and replays the recorded streams."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from stepset.run_status import Failure, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.present.sentences import phase_words
from stepset.watch.state.reports import Reports

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))

Object = dict[str, Any]


@cache
def stream(name: str) -> tuple[Change, ...]:
    """The changes of a scenario in the recorded order."""
    whole: dict[str, Object] = {}
    changes = []
    for verb, difference in json.loads((RECORDED / f"{name}.json").read_text()):
        uid = difference["uid"]
        whole[uid] = {**whole.get(uid, {}), **{key: part for key, part in difference.items() if key != "uid"}}
        changes.append(Change(verb, whole[uid]))
    return tuple(changes)


def seen(changes: Iterable[Change]) -> RunObjects:
    """The objects of the run after some changes."""
    objects = RunObjects("run")
    for change in changes:
        objects.see(change)
    return objects


@cache
def statuses(name: str, now: float = 0.0) -> tuple[RunStatus, ...]:
    """The status after each change of a scenario."""
    objects, reports, found = RunObjects("run"), Reports(), []
    for change in stream(name):
        if objects.see(change) or not found:
            found.append(status_of(objects, reports, now))
    return tuple(found)


def final(name: str) -> RunStatus:
    """The status after the last change of a scenario."""
    return status_of(seen(stream(name)), Reports(), 0.0)


def failure(name: str) -> Failure:
    """Why the run of a scenario failed."""
    found = final(name).failure
    assert found is not None, name
    return found


def troubles(name: str, now: float = 0.0) -> list[Failure]:
    """The troubles of a scenario's run, in the order in which they were reported."""
    found: list[Failure] = []
    for status in statuses(name, now):
        if status.trouble is not None and (not found or found[-1] != status.trouble):
            found.append(status.trouble)
    return found


def phases(name: str) -> list[str]:
    """The phases of a scenario's run with their reasons, each change once."""
    found: list[str] = []
    for status in statuses(name):
        phase = phase_words(status.phase, status.reason)
        if not found or found[-1] != phase:
            found.append(phase)
    return found


def left(name: str) -> list[Change]:
    """The objects that a list would return after a scenario, the workload first."""
    objects: dict[str, Object] = {}
    for change in stream(name):
        uid = change.object["metadata"]["uid"]
        objects[uid] = dict(change.object)
        if change.verb == "DELETED":
            del objects[uid]
    order = ("TrainJob", "JobSet", "StatefulSet", "Job", "Workload", "Pod", "Event")
    return [Change("ADDED", each) for each in sorted(objects.values(), key=lambda each: order.index(each["kind"]))]
