"""Each event of a run is presented once and in a fixed order, also if another process continues."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stepset.hang import Hang, HangGroup, HangKind, SlowRanks, StackFrame
from stepset.run_status import Failure, FailureKind, LogLine, Phase, Progress, RankStatus, RunStatus, Waiting
from stepset.watch.lines import OpenLine
from stepset.watch.present.presenter import PROGRESS_AFTER, PROGRESS_EVERY, STARTING_EVERY, Presenter
from stepset.watch.present.records import (
    FirstFailure,
    HeldUp,
    LinesOmitted,
    Note,
    PhaseChanged,
    ProgressReported,
    RanksStarted,
    Restarted,
    RunEnded,
    cause_of,
    held_up,
)
from stepset.watch.reported import parse_report

PENDING = RunStatus("run-1", "job", "kubernetes", reason="Starting", world_size=4, created=100.0)
RUNNING = PENDING.with_(phase=Phase.RUNNING, reason="")
FAILURE = Failure(FailureKind.USER_ERROR, "rank 3 exited with code 1.", "Look at the error.", rank=3)


def resumed(presenter: Presenter) -> Presenter:
    """The presenter of another process that continues."""
    return Presenter(json.loads(json.dumps(presenter.presented)))


def no_room(pod: str, missing: int) -> RunStatus:
    text = f"no room for pod {pod}: {missing} Insufficient cpu"
    trouble = Failure(FailureKind.UNSCHEDULABLE, text, "Request less.", pod=pod)
    return PENDING.with_(reason="Unschedulable", trouble=trouble)


def queued(position: int | None, message: str = "insufficient quota for cpu, 2 more needed") -> RunStatus:
    return PENDING.with_(reason="Queued", waiting=Waiting("team", "Pending", message, position))


class TestPhases:
    def test_are_presented_when_phase_reason_or_restart_changes(self) -> None:
        presenter = Presenter()
        changes = (PENDING, PENDING, PENDING.with_(reason="Queued"), RUNNING, RUNNING.with_(attempt=1), RUNNING)
        assert [record.text for status in changes for record in presenter.see(status, 0.0)] == [
            "run run-1: Pending (Starting), 4 ranks",
            "run run-1: Pending (Queued), 4 ranks",
            "run run-1: Running, 4 ranks",
            "run run-1: Running, 4 ranks, restart 1",
            "run run-1: Running, 4 ranks",
        ]

    def test_are_presented_after_the_restart_and_before_the_trouble(self) -> None:
        status = no_room("a", 2).with_(phase=Phase.RESTARTING, attempt=1, notes=("few cores", "restart 1: it failed."))
        kinds = [type(record) for record in Presenter().see(status, 0.0)]
        assert kinds == [Note, Restarted, PhaseChanged, HeldUp]


class TestEnd:
    def test_is_presented_after_the_last_progress_and_before_the_diagnosis(self) -> None:
        end = RUNNING.with_(phase=Phase.FAILED, failure=FAILURE, finished=162.0, progress=Progress(step=3))
        found = Presenter().see(end, 0.0)
        assert [type(record) for record in found] == [ProgressReported, RunEnded, FirstFailure]
        assert found[1].text == "run run-1 failed after 1m02s: UserError: rank 3 exited with code 1."
        assert (
            found[2].text
            == "  first failure rank 3\n  advice        Look at the error.\n  see           stepset failures UserError"
        )

    def test_is_presented_once_across_processes(self) -> None:
        first, end = Presenter(), RUNNING.with_(phase=Phase.SUCCEEDED, finished=110.0)
        assert [record.text for record in first.see(end, 0.0)] == ["run run-1 succeeded in 10 s"]
        assert first.see(end, 1.0) == []
        # Pods and controllers may report different times.
        assert resumed(first).see(end.with_(finished=111.0), 0.0) == []

    @pytest.mark.parametrize("backend", ["kubernetes", "local"])
    def test_of_a_cancelled_run_refers_to_its_logs_only_if_they_remain(self, backend: str) -> None:
        presenter = Presenter()
        assert not presenter.shows(LogLine("rank 0", "stopped", aftermath=True))
        failure = Failure(FailureKind.CANCELLED, "the run was cancelled: its JobSet was deleted.", "")
        end = RUNNING.with_(backend=backend, phase=Phase.FAILED, failure=failure)
        (omitted,) = [record.text for record in presenter.see(end, 0.0) if isinstance(record, LinesOmitted)]
        assert ("stepset logs" in omitted) is (backend == "local")
        assert ("the logs were deleted with the pods of the run" in omitted) is (backend == "kubernetes")

    def test_without_a_failure_states_that_the_reason_is_unknown(self) -> None:
        for phase, words in (
            (Phase.FAILED, "run run-1 failed; no reason is known"),
            (Phase.LOST, "run run-1 was lost: no process followed it to its end; look at the machine it ran on"),
        ):
            assert [record.text for record in Presenter().see(RUNNING.with_(phase=phase), 0.0)] == [words]

    @pytest.mark.parametrize(
        ("message", "why"),
        [
            ("the run was cancelled: its JobSet was deleted.", ": its JobSet was deleted."),
            ("the run was cancelled.", ""),
        ],
    )
    def test_of_a_cancelled_run_states_the_reason_if_known(self, message: str, why: str) -> None:
        cancelled = RUNNING.with_(phase=Phase.FAILED, failure=Failure(FailureKind.CANCELLED, message, ""), finished=101)
        end = Presenter().see(cancelled, 0.0)[0]
        assert end.text == f"run run-1 was cancelled after 1 s{why}"

    def test_is_a_warning_unless_the_run_succeeded(self) -> None:
        phases = (Phase.SUCCEEDED, Phase.FAILED, Phase.LOST)
        ends = [record for phase in phases for record in Presenter().see(RUNNING.with_(phase=phase), 0.0)]
        assert {type(end) for end in ends} == {RunEnded}
        assert [end.level for end in ends] == ["info", "warning", "warning"]


class TestNotes:
    def test_are_presented_once(self) -> None:
        presenter = Presenter()
        assert presenter.note("few cores") == [Note("few cores", "warning")]
        resuming = "resuming from /ckpt/last.pt, written 14:46"
        assert presenter.note(resuming) == [Note(resuming, "info")]
        assert presenter.note("few cores") == []
        assert resumed(presenter).note("few cores") == []

    def test_about_restarts_are_restarts(self) -> None:
        notes = ("restart 2: rank 3 failed:\nwith two lines", "started again: node 0 exited", "restart policy is Never")
        found = Presenter().see(RUNNING.with_(notes=notes), 0.0)[:3]
        assert [type(record) for record in found] == [Restarted, Restarted, Note]
        assert tuple(record.text for record in found) == notes


class TestProgress:
    @staticmethod
    def at(presenter: Presenter, step: int, clock: float, **changes: Any) -> list[str]:
        status = RUNNING.with_(progress=Progress(step), **changes)
        return [each.text for each in presenter.see(status, clock) if isinstance(each, ProgressReported)]

    def test_is_presented_at_a_limited_rate(self) -> None:
        presenter = Presenter()
        times = [number * PROGRESS_EVERY / 4 for number in range(9)]
        assert [self.at(presenter, step, clock) for step, clock in enumerate(times)] == [
            ["progress: step 0"], [], [], [], ["progress: step 4"], [], [], [], ["progress: step 8"],
        ]  # fmt: skip

    def test_without_any_finite_value_is_not_presented(self) -> None:
        report = parse_report(b'{"stepset": {"progress": NaN, "metrics": {"loss": NaN, "scale": Infinity}}}')
        assert report is not None
        records = Presenter().see(RUNNING.with_(progress=report.progress), 0.0)
        assert not [each for each in records if isinstance(each, ProgressReported)]

    def test_that_was_held_back_is_presented_with_a_later_status(self) -> None:
        presenter = Presenter()
        assert self.at(presenter, 1, 0.0) and not self.at(presenter, 2, 0.5)
        assert self.at(presenter, 2, PROGRESS_EVERY) == ["progress: step 2"]
        assert not self.at(presenter, 2, 2 * PROGRESS_EVERY)

    def test_that_was_held_back_is_presented_before_the_end(self) -> None:
        presenter = Presenter()
        assert self.at(presenter, 1, 0.0)
        assert self.at(presenter, 2, 0.1, phase=Phase.SUCCEEDED) == ["progress: step 2"]

    def test_is_presented_once_across_processes(self) -> None:
        presenter = Presenter()
        status = RUNNING.with_(progress=Progress(3, 0.5, {"loss": 0.1}))
        presenter.see(status, 0.0)
        other = resumed(presenter)
        assert other.progress == status.progress
        assert other.see(status, 0.0) == []


class TestStartingRanks:
    @staticmethod
    def starting(running: int) -> RunStatus:
        rows = (RankStatus(f"rank {n}", n, "pod", state="Running" if n < running else "Pending") for n in range(4))
        return PENDING.with_(ranks=tuple(rows))

    def test_are_counted_while_a_run_takes_long_to_start(self) -> None:
        presenter = Presenter()
        assert [type(each) for each in presenter.see(self.starting(1), 0.0)] == [PhaseChanged]
        assert presenter.see(self.starting(2), STARTING_EVERY - 1) == []
        assert presenter.see(self.starting(2), STARTING_EVERY) == [RanksStarted("starting: 2/4 ranks running")]
        assert presenter.see(self.starting(3), STARTING_EVERY + 1) == []
        assert presenter.see(self.starting(2), 3 * STARTING_EVERY) == []
        assert presenter.see(self.starting(3), 3 * STARTING_EVERY) == [RanksStarted("starting: 3/4 ranks running")]

    def test_are_not_counted_once_the_run_runs(self) -> None:
        presenter = Presenter()
        presenter.see(self.starting(3).with_(phase=Phase.RUNNING), 0.0)
        assert presenter.see(self.starting(2).with_(phase=Phase.RUNNING), 10 * STARTING_EVERY) == []


class TestHeldUp:
    def test_is_presented_once_for_each_cause_ignoring_pods_and_numbers(self) -> None:
        presenter = Presenter()
        changes = (no_room("a", 1), no_room("a", 2), PENDING, no_room("b and 1 more", 1), no_room("b", 12))
        found = [each for status in changes for each in presenter.see(status, 0.0) if isinstance(each, HeldUp)]
        assert [each.text for each in found] == [
            "trouble: Unschedulable: no room for pod a: 1 Insufficient cpu. Request less.",
        ]
        assert {each.level for each in found} == {"warning"}

    def test_is_presented_again_in_another_attempt(self) -> None:
        presenter = Presenter()
        changes = (no_room("a", 1), no_room("b", 1).with_(attempt=1), no_room("c", 1).with_(attempt=1))
        found = [each for status in changes for each in presenter.see(status, 0.0) if isinstance(each, HeldUp)]
        assert len(found) == 2

    @pytest.mark.parametrize(
        ("first", "second", "same"),
        [
            (
                'Job run-node-0 cannot create its objects: pods "run-node-0-1-tw5s6" is forbidden: exceeded quota: few',
                'Job run-node-0 cannot create its objects: pods "run-node-0-1-cp7lc" is forbidden: exceeded quota: few',
                True,
            ),
            (
                'pod run-node-0-0-w4t8f on node-b cannot get the image: ErrImagePull: failed to resolve "r/train:1"',
                "pod run-node-0-1-bd4fv on node-a and 3 more cannot get the image: ImagePullBackOff: Back-off pulling"
                ' image "r/train:1": ErrImagePull: failed to resolve "r/train:1"',
                True,
            ),
            (
                "pod a on b: back-off 40s restarting failed container",
                "pod a on b: back-off 1m20s restarting failed container",
                True,
            ),
            (
                'pod a on b cannot be started: secret "hub" not found',
                'pod a on b cannot be started: secret "key" not found',
                False,
            ),
            (
                "node gpu-1 does not answer; pod a on gpu-1 may be lost.",
                "node gpu-2 does not answer; pod b on gpu-2 may be lost.",
                False,
            ),
        ],
        ids=["creation", "image", "back-off", "another-secret", "another-node"],
    )
    def test_has_the_cause_of_a_problem_that_affects_other_pods(self, first: str, second: str, same: bool) -> None:
        assert (cause_of(first) == cause_of(second)) is same

    def test_is_not_presented_again_by_another_process(self) -> None:
        presenter = Presenter()
        assert presenter.see(no_room("a", 1), 0.0)
        assert resumed(presenter).see(no_room("a", 2), 0.0) == []

    def test_remembers_a_limited_number_of_reasons(self) -> None:
        presenter = Presenter()
        for number in range(1000):
            presenter.see(no_room("a", 1).with_(attempt=number), 0.0)
        assert len(presenter.presented["waiting"]) <= 50

    def test_is_none_once_the_run_is_over(self) -> None:
        assert held_up(no_room("a", 1).with_(phase=Phase.FAILED)) is None
        assert held_up(queued(1).with_(phase=Phase.SUCCEEDED)) is None

    def test_prefers_the_queue_to_the_trouble(self) -> None:
        held = held_up(queued(None).with_(trouble=no_room("a", 1).trouble))
        assert held is not None and (held.rows[0][0], held.level) == ("queued", "info")


class TestPositionInAQueue:
    @staticmethod
    def seen(presenter: Presenter, *statuses: RunStatus) -> list[str]:
        return [each.text for status in statuses for each in presenter.see(status, 0.0) if isinstance(each, HeldUp)]

    def test_is_presented_when_it_changes(self) -> None:
        presenter, why = Presenter(), "insufficient quota for cpu, 2 more needed"
        assert self.seen(presenter, queued(3), queued(3), queued(2), queued(3)) == [
            f"queued: the run waits in queue team at position 3: {why}",
            "queued: now at position 2 in queue team",
            "queued: now at position 3 in queue team",
        ]
        assert self.seen(resumed(presenter), queued(3)) == []
        assert len(self.seen(resumed(presenter), queued(1))) == 1

    def test_is_presented_once_if_the_queue_can_never_admit_the_run(self) -> None:
        waits = [
            PENDING.with_(reason="Queued", waiting=Waiting("team", "Inadmissible", "no such queue", each, "create it"))
            for each in (None, 1, 2)
        ]
        assert len(self.seen(Presenter(), *waits)) == 1

    def test_is_presented_without_a_reason_if_the_queue_reports_none(self) -> None:
        assert self.seen(Presenter(), queued(2, "")) == ["queued: the run waits in queue team at position 2"]

    def test_is_not_presented_again_after_it_was_unknown(self) -> None:
        presenter = Presenter()
        assert len(self.seen(presenter, queued(None), queued(2), queued(None), queued(2))) == 2

    def test_is_presented_for_a_new_reason_but_not_for_a_new_number(self) -> None:
        other = queued(None, "insufficient quota for cpu, 5 more needed")
        evicted = queued(None, "its Workload is not active")
        assert len(self.seen(Presenter(), queued(None), other, evicted)) == 2

    def test_is_not_presented_before_the_queue_reports_a_reason_or_a_position(self) -> None:
        assert self.seen(Presenter(), queued(None, "")) == []


class TestAHang:
    GROUP = HangGroup((2,), "sleeping", guilty=True, frame=StackFrame("load", "/app/data.py", 17))
    ROWS = tuple(RankStatus(f"rank {rank}", rank, "node-0", state="Running") for rank in range(4))
    HUNG = RUNNING.with_(ranks=ROWS, hang=Hang(HangKind.MISSING, since=0.0, silent=300.0, longest=9.0, groups=(GROUP,)))
    MOVING = HUNG.with_(hang=None)
    AGAIN = "progress again after 5 min 20 s"

    def test_ends_when_there_was_progress_for_a_while(self) -> None:
        presenter = Presenter()
        assert [record.text.split("\n")[0] for record in presenter.see(self.HUNG, 100.0)][-1].startswith("no progress")
        assert presenter.see(self.MOVING, 120.0) == []
        assert [record.text for record in presenter.see(self.MOVING, 120.0 + PROGRESS_AFTER)] == [self.AGAIN]
        assert presenter.see(self.MOVING, 200.0) == []

    def test_goes_on_if_the_progress_was_short(self) -> None:
        presenter = Presenter()
        presenter.see(self.HUNG, 100.0)
        later = [(self.MOVING, 120.0), (self.HUNG, 125.0), (self.MOVING, 129.0), (self.HUNG, 140.0)]
        assert [record for status, clock in later for record in presenter.see(status, clock)] == []

    @pytest.mark.parametrize("state", ["Failed", "Stopped"])
    def test_does_not_end_because_its_ranks_are_stopped(self, state: str) -> None:
        presenter = Presenter()
        presenter.see(self.HUNG, 100.0)
        stopping = self.MOVING.with_(ranks=(replace(self.ROWS[0], state=state), *self.ROWS[1:]))
        assert [record for clock in (120.0, 170.0) for record in presenter.see(stopping, clock)] == []


class TestASlowRank:
    SLOW = RUNNING.with_(slow=SlowRanks((2,), "node 1", "", 97, 100, 0.215, 0.18))
    WORDS = (
        "rank 2 (node 1) joins last in 97 of 100 collectives, by 215 ms; the other ranks wait for it 18 % of the time"
    )

    def later(self, **changes: Any) -> RunStatus:
        slow = self.SLOW.slow
        assert slow is not None
        return self.SLOW.with_(slow=replace(slow, last=99, **changes))

    def test_is_presented_once_although_its_numbers_change(self) -> None:
        presenter = Presenter()
        first = [record for record in presenter.see(self.SLOW, 0.0) if isinstance(record, Note)]
        assert [(record.text, record.level) for record in first] == [(self.WORDS, "warning")]
        assert presenter.see(self.later(), 1.0) == []
        assert resumed(presenter).see(self.later(), 2.0) == []
        ended = resumed(presenter).see(self.later().with_(phase=Phase.SUCCEEDED, finished=110.0), 3.0)
        assert [type(record) for record in ended] == [RunEnded]

    def test_is_presented_if_it_is_another_rank(self) -> None:
        presenter = Presenter()
        presenter.see(self.SLOW, 0.0)
        (record,) = presenter.see(self.later(ranks=(3,)), 1.0)
        assert record.text.startswith("rank 3 ")


def test_the_data_of_an_earlier_version_with_fewer_keys_is_read() -> None:
    presented = {"phase": "run run-1: Running, 4 ranks", "notes": ["few cores"], "progress": None}
    assert Presenter(presented).see(RUNNING.with_(notes=("few cores",)), 0.0) == []


class TestLinesAfterTheFirstFailure:
    LINE = LogLine("node 0", "ChildFailedError", aftermath=True)

    def test_are_counted_at_a_restart_and_at_the_end(self) -> None:
        presenter = Presenter()
        assert not presenter.shows(self.LINE)
        restarted = presenter.see(RUNNING.with_(attempt=1), 0.0)
        assert not presenter.shows(self.LINE)
        assert not presenter.shows(self.LINE)
        ended = presenter.see(RUNNING.with_(attempt=1, phase=Phase.FAILED), 0.0)
        counts = [each.text for each in (*restarted, *ended) if isinstance(each, LinesOmitted)]
        assert [text.partition(" of ")[0] for text in counts] == [
            "omitted after the first failure: 1 line",
            "omitted after the first failure: 2 lines",
        ]

    def test_are_counted_by_a_presenter_in_another_process(self) -> None:
        presenter = Presenter()
        presenter.shows(self.LINE)
        (omitted, *_) = resumed(presenter).see(RUNNING.with_(phase=Phase.FAILED), 0.0)
        assert omitted.text.startswith("omitted after the first failure: 1 line of ")

    @pytest.mark.parametrize("kind", [FailureKind.CANCELLED, FailureKind.DEADLINE_EXCEEDED])
    def test_are_counted_as_lines_while_the_run_was_stopped_if_no_rank_had_failed(self, kind: FailureKind) -> None:
        presenter = Presenter()
        presenter.shows(self.LINE)
        ended = RUNNING.with_(phase=Phase.FAILED, failure=Failure(kind, "the run was cancelled.", ""))
        assert presenter.see(ended, 0.0)[0].text.startswith("omitted while the run was stopped: 1 line of ")

    @pytest.mark.parametrize(("restarts", "who"), [(0, "launchers"), (1, "launchers and stopped ranks")])
    def test_of_a_successful_run_are_those_of_stopped_ranks_only_if_a_rank_was_restarted(
        self, restarts: int, who: str
    ) -> None:
        presenter = Presenter()
        presenter.shows(self.LINE)
        ended = RUNNING.with_(phase=Phase.SUCCEEDED, ranks=(RankStatus("rank 0", 0, "pod", restarts=restarts),))
        assert f"omitted before the run succeeded: 1 line of {who}; " in presenter.see(ended, 0.0)[0].text

    def test_are_shown_if_verbose(self) -> None:
        assert Presenter(verbose=True).shows(self.LINE)


class TestAnIncompleteLine:
    def test_is_shown_in_a_log_every_ten_seconds_for_each_source(self) -> None:
        presenter = Presenter()
        shown = [at for at in range(0, 35) if presenter.shows_open(OpenLine("rank 0", f"{at} %"), float(at))]
        assert shown == [10, 20, 30]
        assert not presenter.shows_open(OpenLine("rank 1", "0 %"), 35.0)

    def test_that_ends_earlier_is_not_shown(self) -> None:
        presenter = Presenter()
        for epoch in range(0, 100, 8):
            assert not presenter.shows_open(OpenLine("rank 0", "50 %"), float(epoch))
            assert not presenter.shows_open(OpenLine("rank 0", "90 %"), epoch + 6.0)
            assert presenter.shows(LogLine("rank 0", "100 %"))
