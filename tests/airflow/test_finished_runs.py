"""What the trigger of ended runs remembers of a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.watch.list_watch import Change
from stepset_airflow.triggers.jobset_finished import FinishedRuns

pytestmark = pytest.mark.airflow


def ended(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "run", "uid": uid, "labels": {"stepset.dev/run": "run"}},
        "spec": {},
        "status": {"conditions": [{"type": "Completed", "status": "True"}]},
    }


def test_each_run_that_ends_is_reported_once() -> None:
    runs = FinishedRuns()
    runs.start()
    for _ in range(2):
        runs.update([Change("MODIFIED", ended("a"))])
    assert list(runs.unreported) == ["a"]
    runs.unreported.clear()
    runs.keep([ended("a")])
    runs.update([Change("MODIFIED", ended("a"))])
    assert not runs.unreported


def test_runs_that_were_deleted_while_nothing_watched_are_forgotten() -> None:
    runs = FinishedRuns()
    for number in range(1000):
        runs.update([Change("ADDED", ended(f"u{number}"))])
        runs.keep([ended(f"u{number}")])
    assert runs.known == {"u999"}
