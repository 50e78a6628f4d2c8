"""`FollowPolicy` gives up after time limits, and gives the pods of a deleted run time to end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepset.hang import Hang, HangGroup, HangKind, StackFrame
from stepset.run_status import Failure, FailureKind, Phase, RankStatus, RunStatus
from stepset.watch.cluster.follow_policy import READ_ONLY, FollowPolicy, OutageNote, Timeouts
from stepset.watch.cluster.kueue.unqueued import Unqueued
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.state.reports import Reports
from tests.watch.cluster.streams import seen, stream

PENDING = RunStatus("run", "job", "kubernetes", reason="Starting")
QUEUED = PENDING.with_(reason="Queued")
RUNNING = PENDING.with_(phase=Phase.RUNNING, reason="")


class Owner:
    """Holds the current policy, as a follower does, and whether the follower gives up."""

    def __init__(self, timeouts: Timeouts, sources: frozenset[str] | None = None) -> None:
        self.policy, self.gave_up = FollowPolicy(timeouts, sources), False

    def status_to_report(
        self, status: RunStatus, before: RunStatus, objects: RunObjects, now: float, clock: float, silent: float
    ) -> RunStatus:
        self.policy, reported, self.gave_up = self.policy.decide(status, before, objects, now, clock, silent)
        return reported

    def explained(self, status: RunStatus) -> RunStatus:
        return self.policy.explained(status)


def status_after(policy: Owner, *changes: tuple[RunStatus, float], silent: float = 0.0) -> RunStatus:
    """The status that is reported last, after statuses at some times."""
    last = PENDING
    for status, clock in changes:
        last = policy.status_to_report(status, last, RunObjects("run"), 1000.0 + clock, clock, silent)
    return last


def test_a_run_that_does_not_start_fails_after_the_startup_limit() -> None:
    policy = Owner(Timeouts(None, 60))
    assert status_after(policy, (PENDING, 0), (PENDING, 59)).phase is Phase.PENDING
    status = status_after(policy, (PENDING, 60))
    assert (status.phase, status.reason, policy.gave_up) == (Phase.FAILED, "Infrastructure", True)
    assert status.failure is not None
    assert "still Pending (Starting); gave up after 60 s without all pods running" in status.failure.message


def test_the_failure_contains_the_trouble() -> None:
    trouble = Failure(FailureKind.IMAGE_PULL, "no such image.", "Check it.", pod="run-node-0")
    status = status_after(Owner(Timeouts(None, 60)), (PENDING, 0), (PENDING.with_(trouble=trouble, attempt=2), 61))
    assert status.failure is None
    status = status_after(
        Owner(Timeouts(None, 60)), (PENDING.with_(trouble=trouble), 0), (PENDING.with_(trouble=trouble), 61)
    )
    assert status.failure is not None
    assert (status.failure.kind, status.failure.pod, status.trouble) == (FailureKind.IMAGE_PULL, "run-node-0", None)
    assert status.failure.message == "no such image; gave up after 60 s without all pods running"


def test_time_in_a_queue_does_not_count_as_startup() -> None:
    assert (
        status_after(Owner(Timeouts(None, 60)), (QUEUED, 0), (QUEUED, 500), (PENDING, 501), (PENDING, 560)) == PENDING
    )
    status = status_after(Owner(Timeouts(100, 60)), (QUEUED, 0), (QUEUED, 100))
    assert status.failure is not None
    assert status.failure.kind is FailureKind.UNSCHEDULABLE
    assert status.failure.message.endswith("gave up after 100 s in the queue")


def test_a_run_for_which_kueue_creates_no_workload_has_the_startup_limit() -> None:
    policy, objects = Owner(Timeouts(None, 60)), RunObjects("run")
    objects.unqueued = Unqueued(True, unread=("PriorityClass high",))
    for clock in (0, 59):
        assert policy.status_to_report(QUEUED, QUEUED, objects, 1000.0, clock, 0.0).phase is Phase.PENDING
    failure = policy.status_to_report(QUEUED, QUEUED, objects, 1000.0, 60, 0.0).failure
    assert failure is not None and failure.message.endswith("gave up after 60 s without all pods running")
    policy = Owner(Timeouts(30, None))
    assert policy.status_to_report(QUEUED, QUEUED, objects, 1000.0, 0, 0.0).phase is Phase.PENDING
    failure = policy.status_to_report(QUEUED, QUEUED, objects, 1000.0, 30, 0.0).failure
    assert failure is not None and failure.message.endswith("gave up after 30 s in the queue")
    policy, objects.unqueued = Owner(Timeouts(None, 60)), Unqueued(False)
    for clock in (0, 500):
        assert policy.status_to_report(QUEUED, QUEUED, objects, 1000.0, clock, 0.0).phase is Phase.PENDING


def test_each_restart_has_its_own_limit_and_a_running_run_has_none() -> None:
    again = RunStatus("run", "job", "kubernetes", phase=Phase.RESTARTING, attempt=1)
    policy = Owner(Timeouts(None, 60))
    assert status_after(policy, (PENDING, 0), (RUNNING, 50), (RUNNING, 5000), (again, 5001), (again, 5060)) == again
    assert (
        status_after(policy, (again.with_(attempt=2), 5062), (again.with_(attempt=2), 5100)).phase is Phase.RESTARTING
    )
    assert status_after(policy, (again.with_(attempt=2), 5123)).phase is Phase.FAILED


@pytest.mark.parametrize("timeouts", [Timeouts(), Timeouts(None, None)])
def test_time_without_an_answer_from_the_server_does_not_count(timeouts: Timeouts) -> None:
    policy = Owner(timeouts)
    assert status_after(policy, (PENDING, 0)) == PENDING
    assert status_after(policy, (PENDING, 700), silent=11) == PENDING
    assert status_after(policy, (PENDING, 1200)) == PENDING


def test_a_run_without_output_has_a_note_until_it_prints() -> None:
    policy = Owner(Timeouts(quiet=60))
    assert status_after(policy, (PENDING, 0), (PENDING, 100), (RUNNING, 101), (RUNNING, 159)) == RUNNING
    (note,) = status_after(policy, (RUNNING, 160)).notes
    assert note.startswith("no rank has printed a line for 60 s")
    assert status_after(policy, (RUNNING, 500)).notes == (note,)
    policy.policy = replace(policy.policy, last_output=501)
    assert status_after(policy, (RUNNING, 560)) == RUNNING
    assert status_after(policy, (RUNNING, 561)).notes == (note,)
    assert status_after(policy, (RUNNING, 562), silent=11) == RUNNING  # its output cannot have arrived
    assert status_after(policy, (RUNNING, 600)) == RUNNING
    assert status_after(Owner(Timeouts()), (RUNNING, 0), (RUNNING, 10_000_000)) == RUNNING


HANGS = RUNNING.with_(
    started=900.0,
    ranks=tuple(
        RankStatus(f"rank {rank}", rank, "pod", state="Running", last_line_at=at)
        for rank, at in enumerate([970.0, 930.0])
    ),
)
LATE = RUNNING.with_(
    phase=Phase.FAILED,
    failure=Failure(FailureKind.DEADLINE_EXCEEDED, "the run took longer than its deadline of 2m.", "Set a longer one."),
)


def test_a_failure_after_a_deadline_states_when_the_ranks_printed_their_last_lines() -> None:
    policy = Owner(Timeouts())
    assert policy.explained(LATE) == LATE
    status_after(policy, (HANGS, 0))
    failure = policy.explained(LATE).failure
    assert failure is not None
    assert failure.message == (
        "the run took longer than its deadline of 2m; no running rank had printed a line for 30 s; rank 1 printed its"
        " last line 1m10s before."
    )
    assert failure.advice.startswith(
        "The training may hang: in the next run, call faulthandler.dump_traceback_later(600,"
    )
    assert "(the time must be longer than a step, and shorter than the deadline)" in failure.advice
    other = RUNNING.with_(phase=Phase.FAILED, failure=Failure(FailureKind.USER_ERROR, "rank 1 failed.", ""))
    assert policy.explained(other) == other


def test_a_failure_names_the_hang_that_was_known_before() -> None:
    group = HangGroup((1,), "sleeping", True, frame=StackFrame("load", "/app/data.py", 17))
    hang = Hang(HangKind.MISSING, 690.0, 310.0, 12.0, groups=(HangGroup((0,), "collective"), group))
    policy = Owner(Timeouts())
    status_after(policy, (HANGS.with_(hang=hang), 0))
    found = policy.explained(LATE)
    assert found.hang == hang
    assert found.failure is not None
    assert found.failure.message == (
        "the run took longer than its deadline of 2m; before, the run had made no progress for 5 min 10 s: rank 1 has"
        " not joined; sleeping in load data.py:17."
    )
    assert found.failure.advice == "data.py:17 on rank 1 blocks all other ranks."


def test_ranks_of_a_silent_server_or_an_attempt_that_is_over_do_not_hang() -> None:
    policy = Owner(Timeouts())
    for status, silent in ((HANGS, 11), (HANGS.with_(phase=Phase.RESTARTING), 0)):
        status_after(policy, (HANGS, 0))
        status_after(policy, (status, 1), silent=silent)
        assert policy.explained(LATE) == LATE


def test_ranks_whose_lines_are_not_read_do_not_seem_to_hang() -> None:
    policy = Owner(Timeouts(), frozenset({"rank 0"}))
    status_after(policy, (HANGS, 0))
    failure = policy.explained(LATE).failure
    assert failure is not None and "rank 1" not in failure.message


def test_lines_that_ranks_print_when_they_are_stopped_do_not_end_a_hang() -> None:
    policy, prints = Owner(Timeouts()), HANGS.with_(ranks=())
    status_after(policy, (HANGS, 0))
    policy.status_to_report(prints, HANGS, _stopping_run(), 1001.0, 1.0, 0.0)
    assert policy.explained(LATE) != LATE
    policy.status_to_report(prints, HANGS, RunObjects("run"), 1001.0, 1.0, 0.0)
    assert policy.explained(LATE) == LATE


def test_ranks_that_need_a_minute_to_stop_do_not_end_a_hang() -> None:
    hang = Hang(HangKind.MISSING, 690.0, 310.0, 12.0, groups=(HangGroup((1,), "sleeping", True),))
    policy, moment = Owner(Timeouts()), HANGS.with_(hang=hang)
    status_after(policy, (moment, 0), (HANGS, 1))
    policy.status_to_report(HANGS, HANGS, _stopping_run(), 1061.0, 61.0, 0.0)
    assert policy.explained(LATE).hang == hang


def _stopping_run() -> RunObjects:
    count = len(stream("job_takes_too_long"))
    return next(found for n in range(count) if _stopping(found := seen(stream("job_takes_too_long")[:n])))


def _stopping(objects: RunObjects) -> bool:
    return any(pod.deletion_requested is not None for pod in objects.pods)


def test_the_note_about_a_run_without_output_names_the_ranks_whose_last_lines_are_older() -> None:
    policy = Owner(Timeouts(quiet=60))
    (note,) = status_after(policy, (HANGS, 0), (HANGS, 60)).notes
    assert note.startswith(
        "no rank has printed a line for 60 s; rank 1 printed its last line earlier than the others; if the run hangs"
    )


class TestPermanentTrouble:
    """Callers that own the run give up before the time limit."""

    def status_of_recorded(self, name: str, timeouts: Timeouts, *clocks: float) -> RunStatus:
        """The last status of a recorded run that does not change, computed at some times."""
        policy, objects = Owner(timeouts), seen(stream(name))
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
    def test_that_cannot_be_fixed_fails_the_run_after_five_seconds(self, name: str, message: str) -> None:
        """The pod may belong to another user, and is then deleted by the controller of the Job."""
        assert self.status_of_recorded(name, Timeouts(None, None), 0, 4.9).phase is Phase.PENDING
        failure = self.status_of_recorded(name, Timeouts(None, None), 0, 5).failure
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
            ("queue_missing", "LocalQueue nowhere doesn't exist; create LocalQueue nowhere"),
        ],
    )
    def test_that_a_user_can_fix_fails_the_run_after_two_minutes(self, name: str, message: str) -> None:
        assert self.status_of_recorded(name, Timeouts(), 0, 119).phase is Phase.PENDING
        failure = self.status_of_recorded(name, Timeouts(), 0, 120).failure
        assert failure is not None
        assert message in failure.message
        assert failure.message.endswith("; gave up after 120 s in which the problem was not fixed")

    def test_that_a_user_can_fix_does_not_fail_a_run_without_a_startup_limit(self) -> None:
        for name in ("key_missing", "queue_missing"):
            assert self.status_of_recorded(name, Timeouts(None, None), 0, 5000).phase is Phase.PENDING

    def test_in_a_queue_is_limited_even_if_the_wait_for_admission_is_not(self) -> None:
        assert self.status_of_recorded("queue_missing", Timeouts(5000), 0, 120).phase is Phase.FAILED

    def test_of_a_run_that_was_evicted_is_not_limited(self) -> None:
        status = self.status_of_recorded("sent_back_into_the_queue", Timeouts(), 0, 5000)
        assert status.phase is Phase.PENDING
        assert status.waiting is not None and status.waiting.inadmissible

    def test_counts_from_its_first_observation(self) -> None:
        policy, objects = Owner(Timeouts()), seen(stream("key_missing"))
        status = status_of(objects, Reports(), 0.0)
        last = PENDING
        for known, clock in ((RunObjects("run"), 0.0), (objects, 500.0), (objects, 599.0)):
            last = policy.status_to_report(status, last, known, 0.0, clock, 0.0)
        assert last.phase is Phase.PENDING

    def test_of_another_kind_has_its_own_limit(self) -> None:
        policy, fixable, final = Owner(Timeouts()), seen(stream("key_missing")), seen(stream("image_misspelt"))
        for objects, clock in ((fixable, 0.0), (fixable, 100.0), (final, 101.0), (final, 105.9)):
            status = status_of(objects, Reports(), 0.0)
            assert policy.status_to_report(status, status, objects, 0.0, clock, 0.0).phase is Phase.PENDING, clock
        assert policy.status_to_report(status, status, final, 0.0, 106.0, 0.0).phase is Phase.FAILED

    @pytest.mark.parametrize("name", ["no_image", "no_room", "statefulset_exceeds_a_quota"])
    def test_excludes_problems_that_may_resolve_themselves(self, name: str) -> None:
        assert self.status_of_recorded(name, Timeouts(None, None), 0, 5000).phase is not Phase.FAILED

    @pytest.mark.parametrize("name", ["image_misspelt", "key_missing", "queue_missing"])
    def test_does_not_fail_a_run_that_is_only_read(self, name: str) -> None:
        assert self.status_of_recorded(name, READ_ONLY, 0, 5000).phase is Phase.PENDING


def test_a_note_reports_an_unreachable_server_after_ten_seconds() -> None:
    outage = OutageNote("https://api")
    assert outage.see(10, 110).at(110) == ()
    (note,) = outage.see(10.1, 110.1).at(110.1)
    assert note.startswith("server https://api does not answer")


def test_the_note_of_an_outage_remains_until_the_server_has_answered_for_fifteen_seconds() -> None:
    outage = OutageNote("https://api").see(11, 111)
    (note,) = outage.at(111)
    assert outage.see(0, 120).at(120) == outage.see(0, 125.9).at(125.9) == (note,), "it may fail again after a restart"
    assert outage.see(0, 126.1).at(126.1) == ()
