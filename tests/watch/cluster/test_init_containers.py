"""Init containers that keep the ranks from starting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepset.run_status import FailureKind, Phase, RunStatus
from stepset.watch.cluster.follow_policy import FollowPolicy, Timeouts
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.list_watch import Change
from stepset.watch.present.failure_report import rank_to_read
from stepset.watch.present.sentences import logs_values
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import failure, final, seen, stream, troubles

STARTED = 1_000_000_000.0
FETCH = {"name": "fetch", "state": {"running": {"startedAt": "2001-09-09T01:46:40Z"}}}


def initializing(*init: dict[str, Any], sidecars: tuple[str, ...] = ()) -> RunObjects:
    """The objects of a run whose pods run init containers with these statuses."""
    return seen(_initializing(init, sidecars))


def _initializing(init: tuple[dict[str, Any], ...], sidecars: tuple[str, ...]) -> Iterator[Change]:
    waiting = {"name": "node", "state": {"waiting": {"reason": "PodInitializing"}}}
    ready = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2001-09-09T01:46:40Z"}
    pods = set()
    for change in stream("jobset_succeeds"):
        each = dict(change.object)
        if each["kind"] in ("JobSet", "Job") and change.verb == "ADDED":
            yield change
        if each["kind"] == "Pod" and each["spec"].get("nodeName") and each["metadata"]["uid"] not in pods:
            pods.add(each["metadata"]["uid"])
            spec = [{"name": row["name"], **_policy(row["name"] in sidecars)} for row in init]
            scheduled = [row for row in each["status"]["conditions"] if row["type"] == "PodScheduled"]
            status = {"phase": "Pending", "conditions": [*scheduled, ready]}
            status |= {"initContainerStatuses": list(init), "containerStatuses": [waiting]}
            yield Change("ADDED", {**each, "spec": {**each["spec"], "initContainers": spec}, "status": status})


def _policy(sidecar: bool) -> dict[str, str]:
    return {"restartPolicy": "Always"} if sidecar else {}


def status(objects: RunObjects, seconds: float) -> RunStatus:
    return status_of(objects, Reports(), STARTED + seconds)


class TestRunningInitContainer:
    def test_is_the_reason_why_the_run_has_not_started(self) -> None:
        found = status(initializing(FETCH), 30.0)
        assert (found.phase, found.reason) == (Phase.PENDING, "Starting")
        trouble = found.trouble
        assert trouble is not None and trouble.kind is FailureKind.INFRASTRUCTURE
        assert trouble.message == (
            f"init container fetch of pod {trouble.pod} on {trouble.node} and 1 more has been running since"
            " 2001-09-09 01:46:40 UTC, and has not exited"
        )
        command = f"kubectl logs {trouble.pod} -c fetch -n ns"
        assert trouble.advice == f"While the pod exists, read what the init container waits for ({command})."

    def test_is_no_trouble_in_the_first_seconds(self) -> None:
        found = status(initializing(FETCH), 9.0)
        assert (found.phase, found.reason, found.trouble) == (Phase.PENDING, "Starting", None)

    def test_is_named_by_the_failure_after_the_timeout(self) -> None:
        objects, policy = initializing(FETCH), FollowPolicy(Timeouts(startup=40.0))
        found = status(objects, 1.0)
        policy = policy.decide(found, found, objects, STARTED + 1.0, 1.0, 0.0).policy
        found = status(objects, 41.0)
        failure = policy.decide(found, found, objects, STARTED + 41.0, 41.0, 0.0).status.failure
        assert failure is not None
        assert failure.message.startswith("init container fetch of pod run-node-0-0-")
        assert failure.message.endswith("; gave up after 40 s without all pods running")
        assert f"kubectl logs {failure.pod} -c fetch" in failure.advice

    def test_that_is_a_sidecar_does_not_delay_the_ranks(self) -> None:
        found = status(initializing(FETCH, sidecars=("fetch",)), 30.0)
        assert (found.reason, found.trouble) == ("PullingImage", None)

    def test_after_a_sidecar_is_named(self) -> None:
        sidecar = {**FETCH, "name": "exporter"}
        trouble = status(initializing(sidecar, FETCH, sidecars=("exporter",)), 30.0).trouble
        assert trouble is not None and trouble.message.startswith("init container fetch of pod ")


class TestFailedInitContainer:
    NAME = "jobset_fails_before_its_containers"

    def test_is_named_by_the_failure_and_its_advice(self) -> None:
        """The training code has not run."""
        found = failure(self.NAME)
        assert found.message.endswith("failed, as its init container fetch exited with code 4.")
        assert found.advice == (
            f"Read its log (kubectl logs {found.pod} -c fetch -n ns), and correct the image, command or volumes of"
            " container fetch."
        )

    def test_that_could_not_be_started_is_named(self) -> None:
        message = 'unable to start container process: exec: "fetch": not found'
        changes = [_with_init_end(change, "StartError", message) for change in stream(self.NAME)]
        found = status(seen(changes), 0.0).failure
        assert found is not None and found.kind is FailureKind.REJECTED
        assert found.message.endswith('its init container fetch could not be started: exec: "fetch": not found')
        assert "-c fetch -n ns" in found.advice

    def test_with_its_log_as_termination_message_has_last_lines(self) -> None:
        """The kubelet writes the message if the policy of the init container is FallbackToLogsOnError."""
        changes = [_with_init_end(change, "Error", "cannot reach s3://bucket\n") for change in stream(self.NAME)]
        found = status(seen(changes), 0.0).failure
        assert found is not None and found.tail == ("cannot reach s3://bucket",)
        assert found.message.endswith("exited with code 4; its last line: cannot reach s3://bucket")

    def test_leaves_ranks_without_an_exit_code_and_without_lines(self) -> None:
        found = final(self.NAME)
        assert [(row.state, row.exit_code) for row in found.ranks] == [("Failed", None), ("Stopped", None)]
        assert logs_values(found, "stepset logs run") == []
        assert rank_to_read(found) is None

    def test_that_ends_again_and_again_has_advice_about_its_log(self) -> None:
        trouble = troubles("sidecar_never_starts")[-1]
        assert f"kubectl logs {trouble.pod} -c exporter -n ns" in trouble.advice


def _with_init_end(change: Change, reason: str, message: str) -> Change:
    status = change.object.get("status", {})
    if not any("terminated" in row["state"] for row in status.get("initContainerStatuses", ())):
        return change
    rows = [
        {**row, "state": {"terminated": {**row["state"]["terminated"], "reason": reason, "message": message}}}
        for row in status["initContainerStatuses"]
    ]
    return Change(change.verb, {**change.object, "status": {**status, "initContainerStatuses": rows}})
