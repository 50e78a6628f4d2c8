"""A lost node: its pod remains after its deletion, and no controller reports this."""

from __future__ import annotations

from typing import Any

from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.trouble import OVERDUE, lost_pods
from stepset.watch.list_watch import Change
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import final, seen, statuses, stream

AFTER = 20.0
"""`restart.lost_node_after` of the recorded run."""


def at_its_worst(after: bool = True) -> tuple[RunObjects, float]:
    """The run when the deletion of its lost pod is due, and that time."""
    objects = RunObjects("run")
    for change in stream("node_lost"):
        objects.see(change if after else _without_release(change))
        due = [pod.due for pod in objects.history.terminating() if pod.silent and pod.due is not None]
        if due:
            return objects, due[0]
    raise AssertionError("no pod is being deleted")


def _without_release(change: Change) -> Change:
    each: dict[str, Any] = dict(change.object)
    notes = {k: v for k, v in each["metadata"].get("annotations", {}).items() if not k.endswith("lost-node-after")}
    return Change(change.verb, {**each, "metadata": {**each["metadata"], "annotations": notes}})


def status(objects: RunObjects, now: float) -> RunStatus:
    return status_of(objects, Reports(), now)


class TestNodeThatDoesNotAnswer:
    def test_is_trouble_before_its_pods_are_deleted(self) -> None:
        first = next(each for each in statuses("node_lost") if each.reason == "NodeLost")
        assert (first.phase, [row.state for row in first.ranks]) == (Phase.RUNNING, ["Running", "Running"])
        assert first.trouble is not None
        assert (first.trouble.kind, first.trouble.node) == (FailureKind.INFRASTRUCTURE, first.ranks[1].node)
        assert first.trouble.message == (
            f"node {first.trouble.node} does not answer; pod {first.trouble.pod} on {first.trouble.node} may be lost."
        )

    def test_is_lost_when_the_deletion_of_its_pod_is_overdue(self) -> None:
        objects, due = at_its_worst()
        assert lost_pods(objects, due + OVERDUE - 1) == []
        (pod,) = lost_pods(objects, due + OVERDUE + 1)
        found = status(objects, due + OVERDUE + 1)
        assert (found.phase, found.reason) == (Phase.RUNNING, "NodeLost")
        assert found.trouble is not None and found.trouble.message == (
            f"node {pod.node} is lost, and the run cannot continue before its pod {pod.name} is deleted;"
            " stepset deletes the pod by force 20 s after its deletion was due"
        )

    def test_has_its_pod_released_after_lost_node_after(self) -> None:
        objects, due = at_its_worst()
        assert [pod.release for pod in lost_pods(objects, due + AFTER - 1)] == [False]
        (pod,) = lost_pods(objects, due + AFTER)
        assert (pod.release, pod.since, pod.uid) == (True, due, objects.pods[1].uid)

    def test_keeps_its_pod_without_lost_node_after(self) -> None:
        objects, due = at_its_worst(after=False)
        assert [pod.release for pod in lost_pods(objects, due + 1e6)] == [False]
        trouble = status(objects, due + 1e6).trouble
        assert trouble is not None and "node.kubernetes.io/out-of-service" in trouble.message


class TestAfterTheRestart:
    def test_no_pod_is_lost(self) -> None:
        assert lost_pods(seen(stream("node_lost")), 4e9) == []

    def test_a_note_explains_the_restart(self) -> None:
        found = final("node_lost")
        assert (found.phase, found.attempt) == (Phase.SUCCEEDED, 1)
        assert " was lost with its node: Taint manager" in found.notes[0]

    def test_a_note_blames_the_lost_node_although_no_controller_recorded_a_reason(self) -> None:
        """For example, a user has deleted the pod of the lost node. Both pods are deleted in the same second."""
        objects = seen(map(_without_reason, stream("node_lost")))
        (note,) = status(objects, 4e9).notes
        assert note == "restart 1: rank 1 (pod run-node-0-1-phzw5 on node-a) was lost with its node."


def _without_reason(change: Change) -> Change:
    """A change without the reason that the taint manager has recorded, and without its events."""
    each: dict[str, Any] = dict(change.object)
    known = each.get("status", {}).get("conditions", [])
    kept = [row for row in known if row["type"] != "DisruptionTarget"]
    return Change(change.verb, {**each, "status": {**each["status"], "conditions": kept}}) if known else change


def test_a_pod_within_its_grace_period_is_not_lost() -> None:
    objects = RunObjects("run")
    for change in stream("jobset_is_deleted_in_the_foreground"):
        objects.see(change)
        for pod in objects.history.terminating():
            assert pod.due is not None
            assert lost_pods(objects, pod.due) == []


def test_a_lost_pod_of_an_earlier_attempt_delays_the_next_attempt() -> None:
    """BlockingRecreate: no pod is created while an old one exists."""
    objects, due = at_its_worst()
    workload = next(change.object for change in stream("node_lost") if change.object["kind"] == "JobSet")
    objects.see(Change("MODIFIED", {**workload, "status": {"restarts": 1}}))
    found = status(objects, due + OVERDUE + 1)
    assert (found.phase, found.reason, found.ranks) == (Phase.RESTARTING, "NodeLost", ())
    assert len(lost_pods(objects, due + OVERDUE + 1)) == 1
