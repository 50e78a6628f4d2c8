"""`FollowPolicy` gives up after time limits, and gives the pods of a deleted run time to end."""

from __future__ import annotations

import pytest

from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.cluster.follow_policy import READ_ONLY, FollowPolicy, OutageNote, Timeouts
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from tests.watch.cluster.streams import seen, stream

PENDING = RunStatus("run", "job", "kubernetes", reason="Starting")
QUEUED = PENDING.with_(reason="Queued")
RUNNING = PENDING.with_(phase=Phase.RUNNING, reason="")


def status_after(policy: FollowPolicy, *changes: tuple[RunStatus, float], silent: float = 0.0) -> RunStatus:
    """The status that is reported last, after statuses at some times."""
    last = PENDING
    for status, clock in changes:
        last = policy.status_to_report(status, last, RunObjects("run"), 1000.0 + clock, clock, silent)
    return last


def test_a_run_that_does_not_start_fails_after_the_startup_limit() -> None:
    policy = FollowPolicy(Timeouts(None, 60))
    assert status_after(policy, (PENDING, 0), (PENDING, 59)).phase is Phase.PENDING
    status = status_after(policy, (PENDING, 60))
    assert (status.phase, status.reason, policy.gave_up) == (Phase.FAILED, "", True)
    assert status.failure is not None
    assert "still Pending (Starting); gave up after 60 s without all pods running" in status.failure.message


def test_the_failure_contains_the_trouble() -> None:
    trouble = Failure(FailureKind.IMAGE_PULL, "no such image.", "Check it.", pod="run-node-0")
    status = status_after(
        FollowPolicy(Timeouts(None, 60)), (PENDING, 0), (PENDING.with_(trouble=trouble, attempt=2), 61)
    )
    assert status.failure is None
    status = status_after(
        FollowPolicy(Timeouts(None, 60)), (PENDING.with_(trouble=trouble), 0), (PENDING.with_(trouble=trouble), 61)
    )
    assert status.failure is not None
    assert (status.failure.kind, status.failure.pod, status.trouble) == (FailureKind.IMAGE_PULL, "run-node-0", None)
    assert status.failure.message == "no such image; gave up after 60 s without all pods running"


def test_time_in_a_queue_does_not_count_as_startup() -> None:
    assert (
        status_after(FollowPolicy(Timeouts(None, 60)), (QUEUED, 0), (QUEUED, 500), (PENDING, 501), (PENDING, 560))
        == PENDING
    )
    status = status_after(FollowPolicy(Timeouts(100, 60)), (QUEUED, 0), (QUEUED, 100))
    assert status.failure is not None
    assert status.failure.kind is FailureKind.UNSCHEDULABLE
    assert status.failure.message.endswith("gave up after 100 s in the queue")


def test_each_restart_has_its_own_limit_and_a_running_run_has_none() -> None:
    again = RunStatus("run", "job", "kubernetes", phase=Phase.RESTARTING, attempt=1)
    policy = FollowPolicy(Timeouts(None, 60))
    assert status_after(policy, (PENDING, 0), (RUNNING, 50), (RUNNING, 5000), (again, 5001), (again, 5060)) == again
    assert (
        status_after(policy, (again.with_(attempt=2), 5062), (again.with_(attempt=2), 5100)).phase is Phase.RESTARTING
    )
    assert status_after(policy, (again.with_(attempt=2), 5123)).phase is Phase.FAILED


@pytest.mark.parametrize("timeouts", [Timeouts(), Timeouts(None, None)])
def test_time_without_an_answer_from_the_server_does_not_count(timeouts: Timeouts) -> None:
    policy = FollowPolicy(timeouts)
    assert status_after(policy, (PENDING, 0)) == PENDING
    assert status_after(policy, (PENDING, 700), silent=11) == PENDING
    assert status_after(policy, (PENDING, 1200)) == PENDING


def test_a_run_without_output_has_a_note_until_it_prints() -> None:
    policy = FollowPolicy(Timeouts(quiet=60))
    assert status_after(policy, (PENDING, 0), (PENDING, 100), (RUNNING, 101), (RUNNING, 159)) == RUNNING
    (note,) = status_after(policy, (RUNNING, 160)).notes
    assert note.startswith("no rank has printed a line for 60 s")
    assert status_after(policy, (RUNNING, 500)).notes == (note,)
    policy.record_output(501)
    assert status_after(policy, (RUNNING, 560)) == RUNNING
    assert status_after(policy, (RUNNING, 561)).notes == (note,)
    assert status_after(policy, (RUNNING, 562), silent=11) == RUNNING  # its output cannot have arrived
    assert status_after(policy, (RUNNING, 600)) == RUNNING
    assert status_after(FollowPolicy(Timeouts()), (RUNNING, 0), (RUNNING, 10_000_000)) == RUNNING


class TestPermanentTrouble:
    """Callers that own the run give up before the time limit."""

    def status_of_recorded(self, name: str, timeouts: Timeouts, *clocks: float) -> RunStatus:
        """The last status of a recorded run that does not change, computed at some times."""
        policy, objects = FollowPolicy(timeouts), seen(stream(name))
        status = status_of(objects, Reports(), 0.0)
        for clock in clocks:
            last = policy.status_to_report(status, status, objects, 0.0, clock, 0.0)
        assert policy.gave_up is last.phase.final
        return last

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("image_misspelt", "InvalidImageName"),
            ("image_never_pulled", "ErrImageNeverPull"),
            ("image_is_roots", "container has runAsNonRoot and image will run as root"),
        ],
    )
    def test_that_cannot_be_fixed_fails_the_run_at_once(self, name: str, message: str) -> None:
        failure = self.status_of_recorded(name, Timeouts(None, None), 0).failure
        assert failure is not None
        assert message in failure.message and failure.message.endswith("; waiting cannot resolve this")

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("key_missing", "couldn't find key token in Secret "),
            ("volume_missing", 'configmap "nowhere" not found'),
            ("claim_missing", 'persistentvolumeclaim "nowhere" not found'),
            ("service_account_missing", 'serviceaccount "nowhere" not found'),
            ("pods_refused_by_policy", "violates PodSecurity"),
        ],
    )
    def test_that_a_user_can_fix_fails_the_run_after_two_minutes(self, name: str, message: str) -> None:
        assert self.status_of_recorded(name, Timeouts(), 0, 119).phase is Phase.PENDING
        failure = self.status_of_recorded(name, Timeouts(), 0, 120).failure
        assert failure is not None
        assert message in failure.message
        assert failure.message.endswith("; gave up after 120 s in which the problem was not fixed")

    def test_that_a_user_can_fix_does_not_fail_a_run_without_a_startup_limit(self) -> None:
        assert self.status_of_recorded("key_missing", Timeouts(None, None), 0, 5000).phase is Phase.PENDING

    def test_counts_from_its_first_observation(self) -> None:
        policy, objects = FollowPolicy(Timeouts()), seen(stream("key_missing"))
        status = status_of(objects, Reports(), 0.0)
        last = PENDING
        for known, clock in ((RunObjects("run"), 0.0), (objects, 500.0), (objects, 599.0)):
            last = policy.status_to_report(status, last, known, 0.0, clock, 0.0)
        assert last.phase is Phase.PENDING

    @pytest.mark.parametrize("name", ["no_image", "no_room", "statefulset_exceeds_a_quota", "queue_missing"])
    def test_excludes_problems_that_may_resolve_themselves(self, name: str) -> None:
        assert self.status_of_recorded(name, Timeouts(None, None), 0, 5000).phase is not Phase.FAILED

    @pytest.mark.parametrize("name", ["image_misspelt", "key_missing"])
    def test_does_not_fail_a_run_that_is_only_read(self, name: str) -> None:
        assert self.status_of_recorded(name, READ_ONLY, 0, 5000).phase is Phase.PENDING


def test_a_note_reports_an_unreachable_server_after_ten_seconds() -> None:
    outage = OutageNote("https://api")
    assert outage.notes(10, 110) == ()
    (note,) = outage.notes(10.1, 110.1)
    assert note.startswith("server https://api does not answer")


def test_the_note_of_an_outage_remains_until_the_server_has_answered_for_fifteen_seconds() -> None:
    outage = OutageNote("https://api")
    (note,) = outage.notes(11, 111)
    assert outage.notes(0, 120) == outage.notes(0, 125.9) == (note,), "a server that restarts may fail again"
    assert outage.notes(0, 126.1) == ()
