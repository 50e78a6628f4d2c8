"""The agents' output adds details to a status: single ranks, last lines, progress, exact times, the result."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from stepset.html.charts import metric_charts
from stepset.run_status import Progress, ProgressPoint, RankStatus, RunStatus
from stepset.watch.cluster.objects import RunObjects
from stepset.watch.cluster.status import status_of
from stepset.watch.lines import Splitter
from stepset.watch.list_watch import Change
from stepset.watch.points import LIMIT
from stepset.watch.state.reports import NO_OUTPUT, Reports
from tests.watch.cluster.streams import Object, seen, stream
from tests.watch.hangs.evidence import BACKWARD, SLEEP, done, flying, process, stalled


def event(name: str, **fields: Any) -> str:
    return "[stepset] " + json.dumps({"event": name, **fields})


def log(reports: Reports, pod: str, *lines: str, source: str = "node 0") -> None:
    """Adds lines to a pod's log."""
    reports.see(pod, Splitter(source).feed("".join(f"{line}\n" for line in lines).encode()))


def running(name: str = "jobset_succeeds") -> RunObjects:
    """A run whose pods are all running."""
    objects = RunObjects("run")
    for change in stream(name):
        objects.see(change)
        if status_of(objects, Reports(), 0.0).phase.value == "Running":
            return objects
    raise AssertionError(name)


def uid(objects: RunObjects, index: int) -> str:
    return next(pod.uid for pod in objects.pods if pod.index == index)


def row(status: RunStatus, source: str) -> RankStatus:
    return next(each for each in status.ranks if each.source == source)


class TestRanks:
    def test_end_separately_while_their_pod_runs(self) -> None:
        objects, reports = running(), Reports()
        pod = uid(objects, 0)
        log(reports, pod, event("started", rank=0), event("started", rank=1), event("exited", rank=1, exit_code=0))
        status = status_of(objects, reports, 0.0)
        assert [(each.source, each.state) for each in status.ranks] == [
            ("rank 0", "Running"),
            ("rank 1", "Succeeded"),
            ("rank 2", "Running"),
            ("rank 3", "Running"),
        ]

    def test_that_have_moved_are_shown_in_their_last_pod(self) -> None:
        """The ranks of an elastic world get new numbers after a restart."""
        objects, reports = running(), Reports()
        log(reports, uid(objects, 1), event("started", rank=0), event("exited", rank=0, exit_code=1, at=1.0))
        log(reports, uid(objects, 0), event("started", rank=0))
        found = row(status_of(objects, reports, 0.0), "rank 0")
        assert (found.state, found.pod) == ("Running", objects.pods[0].name)

    def test_are_running_while_their_agent_waits_for_peers_and_a_note_names_the_peers(self) -> None:
        objects, reports = running(), Reports()
        log(reports, uid(objects, 0), event("waiting", missing=["run-node-0-1.run"]))
        status = status_of(objects, reports, 0.0)
        assert row(status, "rank 0").state == "Running"
        assert status.notes == ("node 0 waits for run-node-0-1.run",)
        log(reports, uid(objects, 0), event("started", rank=0), event("started", rank=1))
        assert status_of(objects, reports, 0.0).notes == ()

    def test_have_their_last_lines(self) -> None:
        objects, reports = running(), Reports()
        log(reports, uid(objects, 1), event("started", rank=2), "[rank 2] epoch 1", "[rank 2] epoch 2", "[node 1] all")
        assert row(status_of(objects, reports, 0.0), "rank 2").last_line == "epoch 2"
        log(reports, uid(objects, 1), "[rank 2] [rank2]: ValueError: x")
        assert row(status_of(objects, reports, 0.0), "rank 2").last_line == "ValueError: x"

    def test_have_the_times_of_their_last_lines(self) -> None:
        objects, reports = running(), Reports()
        splitter = Splitter("node 1")
        for at, line in (
            (10.0, "[rank 2] epoch 1"),
            (20.0, '[rank 3] {"stepset": {"step": 1}}'),
            (30.0, "[rank 2~] 7/9"),
        ):
            batch = splitter.feed(f"{line}\n".encode())
            batch.at = at
            reports.see(uid(objects, 1), batch)
        status = status_of(objects, reports, 0.0)
        assert [row(status, f"rank {rank}").last_line_at for rank in range(4)] == [None, None, 30.0, 20.0]

    def test_that_were_not_planned_replace_the_row_of_their_pod(self) -> None:
        """Ranks of an elastic world, or of a launcher in the user's command."""
        objects, reports = running("jobset_without_the_agent_fails"), Reports()
        assert [each.source for each in status_of(objects, reports, 0.0).ranks] == ["node 0", "node 1"]
        log(reports, uid(objects, 0), event("started", rank=0), event("started", rank=1))
        status = status_of(objects, reports, 0.0)
        assert [(each.source, each.pod) for each in status.ranks][:2] == [
            ("rank 0", objects.pods[0].name),
            ("rank 1", objects.pods[0].name),
        ]
        assert [each.source for each in status.ranks] == ["rank 0", "rank 1", "node 1"]

    def test_are_in_the_pod_that_reports_them(self) -> None:
        """Open MPI assigns rank 0 to the node of its launcher."""
        objects, reports = running(), Reports()
        log(reports, uid(objects, 1), event("started", rank=0), event("started", rank=1))
        log(reports, uid(objects, 0), event("started", rank=2), event("started", rank=3))
        status = status_of(objects, reports, 0.0)
        assert row(status, "rank 0").pod == objects.pods[1].name
        assert row(status, "rank 2").pod == objects.pods[0].name

    def test_are_not_negative(self) -> None:
        objects, reports = running(), Reports()
        before = status_of(objects, reports, 0.0).ranks
        log(reports, uid(objects, 0), event("started", rank=-5), event("exited", rank=-5, exit_code=1, at=1.0))
        assert status_of(objects, reports, 0.0).ranks == before

    def test_count_their_starts_by_the_launcher(self) -> None:
        objects, reports = running(), Reports()
        failed = event("exited", rank=0, exit_code=1, at=1.0), event("failed", rank=0, exit_code=1, at=1.0)
        log(reports, uid(objects, 0), event("started", rank=0), *failed)
        assert row(status_of(objects, reports, 0.0), "rank 0").state == "Failed"
        log(reports, uid(objects, 0), event("started", rank=0))
        found = row(status_of(objects, reports, 0.0), "rank 0")
        assert (found.state, found.restarts, found.exit_code) == ("Running", 1, None)

    @pytest.mark.parametrize("joined", [None, 2])
    def test_that_all_ended_alone_are_noted_once_the_run_has_succeeded(self, joined: int | None) -> None:
        objects, reports = seen(stream("jobset_succeeds")), Reports()
        for rank in range(4):
            end = event("exited", rank=rank, exit_code=0, **({} if rank == joined else {"alone": 1}))
            log(reports, uid(objects, rank // 2), event("started", rank=rank), end)
        notes = status_of(objects, reports, 0.0).notes
        assert any("no rank joined a process group: each of the 4 ranks ran alone" in note for note in notes) == (
            joined is None
        )


class TestProgressAndResult:
    def test_progress_is_the_last_report(self) -> None:
        objects, reports = running(), Reports()
        log(reports, uid(objects, 0), '[rank 0] {"stepset": {"step": 3, "metrics": {"loss": 0.5}}}')
        log(reports, uid(objects, 0), '[rank 0] {"stepset": {"step": 4}}')
        assert status_of(objects, reports, 0.0).progress == Progress(step=4, metrics={"loss": 0.5})

    def test_each_report_is_a_point_with_the_time_of_its_line(self) -> None:
        objects, reports = running(), Reports()
        for step in (1, 2):
            batch = Splitter("node-0").feed(b'[rank 0] {"stepset": {"step": %d}}\n' % step)
            batch.at = 100.0 + step
            reports.see(uid(objects, 0), batch)
        assert reports.points == tuple(ProgressPoint(100.0 + step, Progress(step)) for step in (1, 2))

    def test_the_points_of_many_reports_are_evenly_spaced_from_the_first_to_the_last(self) -> None:
        objects, reports = running(), Reports()
        for step in range(1000):
            log(reports, uid(objects, 0), f'[rank 0] {{"stepset": {{"step": {step}}}}}')
        steps = [point.progress.step for point in reports.points]
        assert len(steps) <= LIMIT
        assert (steps[0], steps[-1]) == (0, 999)
        gaps = {after - before for before, after in pairwise(steps[:-1])}
        assert gaps == {8}

    def test_a_metric_that_is_not_finite_is_a_gap_and_one_note(self) -> None:
        objects, reports = running(), Reports()
        for step, loss in enumerate(("0.5", "NaN", "NaN", "Infinity", "0.25")):
            log(reports, uid(objects, 0), f'[rank 0] {{"stepset": {{"step": {step}, "metrics": {{"loss": {loss}}}}}}}')
        assert [point.progress.metrics for point in reports.points] == [{"loss": 0.5}, {}, {}, {}, {"loss": 0.25}]
        assert reports.notes_of(0.0) == (
            "loss became NaN at step 1; a value that is not a finite number is a gap in the curve",
        )
        (chart,) = metric_charts(reports.points)
        assert chart.svg.count("<polyline") == 2, "the curve has a gap"

    def test_a_field_that_cannot_be_used_is_one_note(self) -> None:
        objects, reports = running(), Reports()
        for step in range(3):
            log(reports, uid(objects, 0), f'[rank 0] {{"stepset": {{"step": {step}, "loss": 0.5}}}}')
        (note,) = reports.notes_of(0.0)
        assert note.startswith("unknown field loss in a progress report")

    def test_a_report_that_is_not_json_is_one_note(self) -> None:
        objects, reports = running(), Reports()
        for step in range(3):
            log(reports, uid(objects, 0), f"[rank 0] {{'stepset': {{'step': {step}}}}}")
        (note,) = reports.notes_of(0.0)
        assert note.startswith('a line contains "stepset" but is no report: print(json.dumps(')

    def test_the_same_metric_or_step_of_several_ranks_is_one_note(self) -> None:
        for report in ('{"stepset": {"step": 1, "metrics": {"loss": 0.5}}}', '{"stepset": {"step": 1}}'):
            objects, reports = running(), Reports()
            for _ in range(2):
                log(reports, uid(objects, 0), f"[rank 0] {report}")
                assert not reports.notes_of(0.0)
            log(reports, uid(objects, 1), f"[rank 1] {report}", f"[rank 2] {report}")
            (note,) = reports.notes_of(0.0)
            assert note.endswith("report progress only in rank 0")

    def test_several_ranks_may_report_different_metrics_and_another_rank_may_report_in_the_next_attempt(self) -> None:
        objects, reports = running(), Reports()
        loss = '{"stepset": {"step": 1, "metrics": {"loss": 0.5}}}'
        log(reports, uid(objects, 0), f"[rank 0] {loss}", '[rank 1] {"stepset": {"metrics": {"gpu 1": 0.5}}}')
        log(reports, uid(objects, 0), '[rank 1] {"stepset": {"progress": 0.5}}', f"[prepare-0] {loss}")
        reports.clear()
        log(reports, uid(objects, 0), f"[rank 3] {loss}")
        assert reports.notes_of(0.0) == ()

    def test_each_report_is_returned_once_with_the_values_of_earlier_ones(self) -> None:
        objects, reports = running(), Reports()
        report = '{{"stepset": {{"step": {}}}}}'.format
        log(reports, uid(objects, 0), '{"stepset": {"metrics": {"loss": 0.5}}}', report(1), report(2))
        assert reports.take_recent() == [Progress(step, metrics={"loss": 0.5}) for step in (None, 1, 2)]
        assert reports.take_recent() == []
        log(reports, uid(objects, 0), *map(report, range(1, 10_001)))
        many = [progress.step for progress in reports.take_recent()]
        assert len(many) <= 20
        assert (many[0], many[-1]) == (1, 10_000)

    def test_the_result_is_the_pods_termination_message(self) -> None:
        objects, reports = seen(stream("jobset_succeeds")), Reports()
        log(reports, uid(objects, 0), event("result", result="another"))
        assert status_of(objects, reports, 0.0).result == {"loss": 0.25, "world": "4"}

    def test_the_result_is_otherwise_the_one_that_the_agent_printed(self) -> None:
        objects, reports = seen(_without_messages(stream("jobset_succeeds"))), Reports()
        assert status_of(objects, reports, 0.0).result is None
        log(reports, uid(objects, 0), event("result", result={"loss": 1}))
        assert status_of(objects, reports, 0.0).result == {"loss": 1}

    def test_a_termination_message_without_the_agent_is_not_a_result(self) -> None:
        def plain(change: Change) -> Change:
            if change.object["kind"] != "Pod":
                return change
            spec = {**change.object["spec"], "containers": [{"name": "node", "command": ["python3", "train.py"]}]}
            return Change(change.verb, {**change.object, "spec": spec})

        objects = seen(plain(change) for change in stream("jobset_succeeds"))
        assert status_of(objects, Reports(), 0.0).result is None


def _without_messages(changes: tuple[Change, ...]) -> list[Change]:
    def changed(each: Object) -> Object:
        return json.loads(json.dumps(each).replace('"message"', '"removed"')) if each["kind"] == "Pod" else each

    return [Change(change.verb, changed(dict(change.object))) for change in changes]


class TestFailures:
    def test_have_the_agents_exact_times(self) -> None:
        """Kubernetes reports whole seconds: both pods ended in the same second, without termination messages."""
        objects, reports = seen(_without_messages(stream("jobset_fails_in_the_aftermath"))), Reports()
        end = max(pod.end.at for pod in objects.pods if pod.end is not None and pod.end.at is not None)
        lines = event("started", rank=1), event("exited", rank=1, signal=11, at=end - 0.6)
        log(reports, uid(objects, 1), *lines)
        log(reports, uid(objects, 0), event("started", rank=0), event("exited", rank=0, exit_code=1, at=end - 0.5))
        found = status_of(objects, reports, 0.0).failure
        assert found is not None
        assert (found.rank, found.signal, found.aftermath) == (1, 11, ("rank 0",))

    def test_have_the_last_lines_of_the_log(self) -> None:
        objects, reports = seen(_without_messages(stream("jobset_fails"))), Reports()
        lines = event("started", rank=1), "[rank 1] Traceback", "[rank 1] ValueError: from the log"
        log(reports, uid(objects, 1), *lines, event("exited", rank=1, exit_code=1, at=1.0))
        found = status_of(objects, reports, 0.0).failure
        assert found is not None
        assert (found.error, found.tail) == ("ValueError: from the log", ("Traceback", "ValueError: from the log"))

    def test_have_the_frame_of_the_log_above_the_last_lines(self) -> None:
        objects, reports = seen(_without_messages(stream("jobset_fails"))), Reports()
        library = ('  File "/usr/lib/python3/dist-packages/torch/nn/module.py", line 7, in call', "    call()") * 12
        rows = (
            "Traceback (most recent call last):",
            '  File "train.py", line 3, in fit',
            "    step(" + "x" * 999,
            *library,
        )
        lines = (f"[rank 1] {row}" for row in (*rows, "ValueError: bad"))
        exited = event("exited", rank=1, exit_code=1, at=1.0)
        log(reports, uid(objects, 1), event("started", rank=1), *lines, exited)
        found = status_of(objects, reports, 0.0).failure
        assert found is not None
        assert found.frame == "train.py, line 3, in fit", "a long source line is not kept"
        assert found.tail == (*library[-19:], "ValueError: bad")

    def test_of_a_rank_in_a_successful_run_are_ignored(self) -> None:
        objects, reports = seen(stream("jobset_succeeds")), Reports()
        log(reports, uid(objects, 0), event("started", rank=0), event("exited", rank=0, exit_code=1, at=1.0))
        status = status_of(objects, reports, 0.0)
        assert (status.phase.value, status.failure) == ("Succeeded", None)


class TestTheTail:
    def tail(self, source: str, *lines: str) -> tuple[str, ...]:
        """The last lines of a source, after a pod has printed `lines`."""
        reports = Reports()
        log(reports, "a", *lines)
        return reports.of("a").tail(source)

    def test_has_the_last_lines_of_each_source(self) -> None:
        lines = [*(f"[rank 0] line {n}" for n in range(1000)), "[rank 1] other"]
        assert self.tail("rank 0", *lines)[-1] == "line 999"
        assert 20 <= len(self.tail("rank 0", *lines)) <= 100
        assert self.tail("rank 1", *lines) == ("other",)
        assert self.tail("rank 2", *lines) == ()

    def test_has_no_progress(self) -> None:
        progress = '{"stepset": {"step": 1}}'
        assert self.tail("rank 0", "[rank 0] a", f"[rank 0] {progress}") == ("a",)
        assert self.tail("rank 0", "[rank 0] a", f"[rank 0] {progress}", "[rank 1] b") == ("a",)

    def test_truncates_long_lines(self) -> None:
        assert len(self.tail("rank 0", "[rank 0] " + "x" * 100_000)[0]) <= 1000


class TestMemory:
    def test_long_lines_are_cut_and_few_are_kept(self) -> None:
        reports = Reports()
        for number in range(1000):
            log(reports, "a", f"[rank 0] {number} " + "x" * 100_000)
        report = reports.of("a")
        assert sum(len(line) for line in report.tails["rank 0"]) <= 20 * 1000
        assert report.last_line("rank 0").startswith("999 ")

    def test_reports_of_pods_that_no_status_mentions_are_dropped(self) -> None:
        objects, reports = running(), Reports()
        present = uid(objects, 0)
        log(reports, present, "[rank 0] x")
        earlier = [f"pod of attempt {attempt}" for attempt in range(1000)]
        for pod in earlier:
            log(reports, pod, "[rank 0] x")
            reports.prune(lambda: objects.history.known)
        assert reports.of(present).tail("rank 0") == ("x",)
        assert sum(reports.of(pod) is not NO_OUTPUT for pod in earlier) < 64


class TestHangs:
    def events(self) -> list[str]:
        waits = [stalled(n, process(BACKWARD), collectives=[flying()]) for n in (0, 1, 2)]
        return [json.dumps(each) for each in (*waits, stalled(3, process(SLEEP, syscall=230), collectives=[done()]))]

    def test_are_joined_from_the_logs_of_all_pods(self) -> None:
        objects, reports = running(), Reports()
        first, second = self.events()[:2], self.events()[2:]
        log(reports, uid(objects, 0), *(f"[stepset] {each}" for each in first))
        assert status_of(objects, reports, 0.0).hang is None
        log(reports, uid(objects, 1), *(f"[stepset] {each}" for each in second))
        hang = status_of(objects, reports, 0.0).hang
        assert hang is not None
        assert [group.ranks for group in hang.guilty] == [(3,)]
        assert hang.guilty[0].node == row(status_of(objects, reports, 0.0), "rank 3").node
        log(reports, uid(objects, 0), "[rank 0] step 119")
        assert status_of(objects, reports, 0.0).hang is None

    def test_of_pods_of_an_earlier_attempt_do_not_count(self) -> None:
        objects, reports = running(), Reports()
        log(reports, "uid of a pod that was replaced", *(f"[stepset] {each}" for each in self.events()))
        assert status_of(objects, reports, 0.0).hang is None
