"""What follows from a run's state: patience, and what a deleted run's pods are given."""

from __future__ import annotations

import pytest

from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.reports import Reports
from stepset.watch.cluster.status import status_of
from stepset.watch.cluster.supervisor import READ_ONLY, Supervisor, Timeouts, unreachable_notes
from stepset.watch.state import Failure, FailureKind, Phase, RunStatus
from tests.watch.cluster.streams import seen, stream

PENDING = RunStatus("run", "job", "kubernetes", reason="Starting")
QUEUED = PENDING.with_(reason="Queued")
RUNNING = PENDING.with_(phase=Phase.RUNNING, reason="")


def told(keeper: Supervisor, *looks: tuple[RunStatus, float], silent: float = 0.0) -> RunStatus:
    """What is told last, of statuses at times."""
    last = PENDING
    for status, clock in looks:
        last = keeper.status_to_report(status, last, RunObjects("run"), 1000.0 + clock, clock, silent)
    return last


def test_a_run_that_does_not_start_is_given_up_when_patience_is_at_an_end() -> None:
    keeper = Supervisor(Timeouts(None, 60))
    assert told(keeper, (PENDING, 0), (PENDING, 59)).phase is Phase.PENDING
    status = told(keeper, (PENDING, 60))
    assert (status.phase, status.reason, keeper.gave_up) == (Phase.FAILED, "", True)
    assert status.failure is not None
    assert "still Pending (Starting); gave up after 60 s without all pods running" in status.failure.message


def test_its_failure_is_its_trouble() -> None:
    trouble = Failure(FailureKind.IMAGE_PULL, "no such image.", "Check it.", pod="run-node-0")
    status = told(Supervisor(Timeouts(None, 60)), (PENDING, 0), (PENDING.with_(trouble=trouble, attempt=2), 61))
    assert status.failure is None
    status = told(
        Supervisor(Timeouts(None, 60)), (PENDING.with_(trouble=trouble), 0), (PENDING.with_(trouble=trouble), 61)
    )
    assert status.failure is not None
    assert (status.failure.kind, status.failure.pod, status.trouble) == (FailureKind.IMAGE_PULL, "run-node-0", None)
    assert status.failure.message == "no such image; gave up after 60 s without all pods running"


def test_waiting_in_a_queue_does_not_count_as_starting() -> None:
    assert told(Supervisor(Timeouts(None, 60)), (QUEUED, 0), (QUEUED, 500), (PENDING, 501), (PENDING, 560)) == PENDING
    status = told(Supervisor(Timeouts(100, 60)), (QUEUED, 0), (QUEUED, 100))
    assert status.failure is not None
    assert status.failure.kind is FailureKind.UNSCHEDULABLE
    assert status.failure.message.endswith("gave up after 100 s in the queue")


def test_every_restart_has_its_own_time_and_what_runs_has_all_the_time() -> None:
    again = RunStatus("run", "job", "kubernetes", phase=Phase.RESTARTING, attempt=1)
    keeper = Supervisor(Timeouts(None, 60))
    assert told(keeper, (PENDING, 0), (RUNNING, 50), (RUNNING, 5000), (again, 5001), (again, 5060)) == again
    assert told(keeper, (again.with_(attempt=2), 5062), (again.with_(attempt=2), 5100)).phase is Phase.RESTARTING
    assert told(keeper, (again.with_(attempt=2), 5123)).phase is Phase.FAILED


@pytest.mark.parametrize("patience", [Timeouts(), Timeouts(None, None)])
def test_a_silent_server_s_time_does_not_count(patience: Timeouts) -> None:
    keeper = Supervisor(patience)
    assert told(keeper, (PENDING, 0)) == PENDING
    assert told(keeper, (PENDING, 700), silent=11) == PENDING
    assert told(keeper, (PENDING, 1200)) == PENDING


def test_a_run_that_prints_nothing_for_long_is_told_of_until_it_does() -> None:
    keeper = Supervisor(Timeouts(quiet=60))
    assert told(keeper, (PENDING, 0), (PENDING, 100), (RUNNING, 101), (RUNNING, 159)) == RUNNING
    (note,) = told(keeper, (RUNNING, 160)).notes
    assert note.startswith("no rank has printed a line for 60 s")
    assert told(keeper, (RUNNING, 500)).notes == (note,)
    keeper.record_output(501)
    assert told(keeper, (RUNNING, 560)) == RUNNING
    assert told(keeper, (RUNNING, 561)).notes == (note,)
    assert told(keeper, (RUNNING, 562), silent=11) == RUNNING  # nobody can have heard it
    assert told(keeper, (RUNNING, 600)) == RUNNING
    assert told(Supervisor(Timeouts()), (RUNNING, 0), (RUNNING, 10_000_000)) == RUNNING


class TestWhatWaitingDoesNotMend:
    """Given up before patience is at an end, by whoever is answerable for the run."""

    def told_of(self, name: str, patience: Timeouts, *clocks: float) -> RunStatus:
        """What is told last of a recorded run that stands still, looked at at some times."""
        keeper, objects = Supervisor(patience), seen(stream(name))
        status = status_of(objects, Reports(), 0.0)
        for clock in clocks:
            last = keeper.status_to_report(status, status, objects, 0.0, clock, 0.0)
        assert keeper.gave_up is last.phase.final
        return last

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("image_misspelt", "InvalidImageName"),
            ("image_never_pulled", "ErrImageNeverPull"),
            ("image_is_roots", "container has runAsNonRoot and image will run as root"),
        ],
    )
    def test_and_nobody_can_is_given_up_at_once(self, name: str, said: str) -> None:
        failure = self.told_of(name, Timeouts(None, None), 0).failure
        assert failure is not None
        assert said in failure.message and failure.message.endswith("; waiting cannot resolve this")

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("key_missing", "couldn't find key token in Secret "),
            ("volume_missing", 'configmap "nowhere" not found'),
            ("claim_missing", 'persistentvolumeclaim "nowhere" not found'),
            ("service_account_missing", 'serviceaccount "nobody" not found'),
            ("pods_refused_by_policy", "violates PodSecurity"),
        ],
    )
    def test_but_somebody_can_is_given_up_after_two_minutes(self, name: str, said: str) -> None:
        assert self.told_of(name, Timeouts(), 0, 119).phase is Phase.PENDING
        failure = self.told_of(name, Timeouts(), 0, 120).failure
        assert failure is not None
        assert said in failure.message
        assert failure.message.endswith("; gave up after 120 s in which the problem was not fixed")

    def test_but_somebody_can_is_waited_for_for_ever_by_who_says_so(self) -> None:
        assert self.told_of("key_missing", Timeouts(None, None), 0, 5000).phase is Phase.PENDING

    def test_counts_from_when_it_is_seen(self) -> None:
        keeper, objects = Supervisor(Timeouts()), seen(stream("key_missing"))
        status = status_of(objects, Reports(), 0.0)
        last = PENDING
        for known, clock in ((RunObjects("run"), 0.0), (objects, 500.0), (objects, 599.0)):
            last = keeper.status_to_report(status, last, known, 0.0, clock, 0.0)
        assert last.phase is Phase.PENDING

    @pytest.mark.parametrize("name", ["no_image", "no_room", "statefulset_exceeds_a_quota", "queue_missing"])
    def test_is_not_what_time_may_mend(self, name: str) -> None:
        assert self.told_of(name, Timeouts(None, None), 0, 5000).phase is not Phase.FAILED

    @pytest.mark.parametrize("name", ["image_misspelt", "key_missing"])
    def test_is_not_given_up_by_who_only_looks(self, name: str) -> None:
        assert self.told_of(name, READ_ONLY, 0, 5000).phase is Phase.PENDING


def test_that_a_server_is_silent_is_said_after_a_while() -> None:
    assert unreachable_notes("https://api", 10) == ()
    (said,) = unreachable_notes("https://api", 10.1)
    assert said.startswith("server https://api does not answer")
