"""Runs are followed while the API server restarts, is down, hangs, is slow or loses history; controllers are down."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from stepset.backends.kubernetes.api.client import client_of
from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.errors import InfrastructureError
from stepset.run_status import FailureKind, Phase
from stepset.watch.list_watch import ListWatch
from tests.cluster.many import RESULT
from tests.cluster.proxy import proxy_to
from tests.cluster.runs import RecordingListener, Runs
from tests.cluster.stage import Stage, missing_lines
from tests.cluster.testbed import outages
from tests.cluster.testbed.layout import Choice
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive]

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
RANKS = ("rank 0", "rank 1")
DOES_NOT_ANSWER = "does not answer; the run continues"
"""The message about the server. Afterwards the same may be reported of a node, whose heartbeats the server missed."""
DOWNTIME = 60.0
"""Seconds for which the API server is down."""
FAILS = "if rank == 1: raise ValueError('batch 7 is empty')"
LEAVES_COUNT = "if rank == 0: " + RESULT.format("count")


def wait_for_more(listener: RecordingListener, lines: int = 10) -> None:
    """Waits until more lines of both ranks are reported."""

    def counted() -> int:
        return min(len(listener.texts(source)) for source in RANKS)

    before = counted()
    listener.wait_until(lambda: counted() >= before + lines, f"{lines} more lines of each rank")


def reports_no_answer(listener: RecordingListener) -> bool:
    """Whether the latest status states that the server does not answer."""
    return any(DOES_NOT_ANSWER in note for note in listener.statuses[-1].notes)


def line_errors(*listeners: RecordingListener) -> list[str]:
    """Errors in the numbered lines of the ranks."""
    found = [missing_lines(listener.lines, source) for listener in listeners for source in RANKS]
    return [each for each in found if each]


def test_a_run_is_followed_over_restarts_of_the_server_and_every_line_is_reported_once(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    succeeds, listener = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="succeeds")
    fails, failing_listener = runs.start(**stage.job("count_until('end' if rank else 'never')", FAILS), run="fails")
    for each in (listener, failing_listener):
        wait_for_more(each)
    for _ in range(2):
        outages.stop(outages.API_SERVER, signal.SIGKILL)
        outages.start(testbed_choice, outages.API_SERVER)
        for each in (listener, failing_listener):
            wait_for_more(each)
    stage.say("end")
    status, failed = succeeds.wait(), fails.wait()
    assert (status.phase, status.result) == (Phase.SUCCEEDED, len(listener.texts("rank 0")))
    assert failed.failure is not None and (failed.failure.kind, failed.failure.rank) == (FailureKind.USER_ERROR, 1)
    assert "batch 7 is empty" in failed.failure.message
    assert line_errors(listener, failing_listener) == []
    assert listener.phases()[-2:] == ["Running", "Succeeded"]
    assert failing_listener.phases()[-2:] == ["Running", "Failed"]
    assert (status.notes, failed.notes) == ((), ())


def test_a_server_that_is_down_for_a_minute_is_reported_and_runs_are_followed_when_it_is_back(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    continues, listener = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="continues")
    ends, ending_listener = runs.start(**stage.job("count_until('meanwhile')", LEAVES_COUNT), run="ends")
    fails, failing_listener = runs.start(**stage.job("count_until('meanwhile')", FAILS), run="fails")
    to_stop, stopped_listener = runs.start(**stage.job("count_until('never')"), run="stopped")
    with command_line_run(runs, **stage.job("count_until('end')", num_nodes=1)) as (program, out, err):
        first = out.readline()
        for each in (listener, ending_listener, failing_listener, stopped_listener):
            wait_for_more(each)
        fields = stage.job("count_until('never')", resources_per_node={"cpu": 999})
        waits, waiting_listener = runs.start(**fields, run="waits", options={"startup_timeout": 20.0})
        waiting_listener.wait_for(Phase.PENDING, "Unschedulable")

        outages.stop(outages.API_SERVER, signal.SIGKILL)
        down_since = time.monotonic()
        stage.say("meanwhile")
        to_stop.cancel()
        for each in (listener, ending_listener, failing_listener, stopped_listener, waiting_listener):
            each.wait_until(lambda each=each: reports_no_answer(each), "the note that the server does not answer")
        done = runs.cli("status", "continues")
        assert done.returncode == 3
        assert "cannot be reached" in done.stderr and len(done.stderr.splitlines()) == 1
        time.sleep(max(0.0, down_since + DOWNTIME - time.monotonic()))
        assert waiting_listener.statuses[-1].phase is Phase.PENDING, "an outage does not count towards the timeout"
        outages.start(testbed_choice, outages.API_SERVER)

        assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(ending_listener.texts("rank 0")))
        failed = fails.wait().failure
        assert failed is not None and (failed.kind, failed.rank) == (FailureKind.USER_ERROR, 1)
        stopped = to_stop.wait().failure
        assert stopped is not None and stopped.kind is FailureKind.CANCELLED
        wait_for_more(listener)
        listener.wait_until(lambda: not reports_no_answer(listener), "the removal of the note")
        stage.say("end")
        assert (continues.wait().phase, continues.wait().result) == (Phase.SUCCEEDED, len(listener.texts("rank 0")))
        lines, notes = [first, *out], err.read()
        assert program.wait() == 0 and notes.count(DOES_NOT_ANSWER) == 1, notes
    assert lines == [f"[rank 0] line {number}\n" for number in range(len(lines))]
    assert line_errors(listener, ending_listener, failing_listener, stopped_listener) == []
    given_up = waits.wait()
    assert given_up.failure is not None and given_up.failure.kind is FailureKind.UNSCHEDULABLE


@contextmanager
def command_line_run(runs: Runs, **job: Any) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """Starts `stepset run`; yields the process, its stdout and its stderr."""
    with runs.program("run", runs.job_file(**job)) as program:
        assert program.stdout is not None and program.stderr is not None
        try:
            yield program, program.stdout, program.stderr
        finally:
            program.kill()


def test_a_server_that_hangs_is_reported_and_runs_are_followed_from_where_it_stopped(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    continues, listener = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="continues")
    ends, ending_listener = runs.start(**stage.job("count_until('meanwhile')", LEAVES_COUNT), run="ends")
    for each in (listener, ending_listener):
        wait_for_more(each)
    outages.freeze(outages.API_SERVER)
    stage.say("meanwhile")
    for each in (listener, ending_listener):
        each.wait_until(lambda each=each: reports_no_answer(each), "the note that the server does not answer")
    outages.thaw(outages.API_SERVER)
    assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(ending_listener.texts("rank 0")))
    wait_for_more(listener)
    listener.wait_until(lambda: not reports_no_answer(listener), "the removal of the note")
    stage.say("end")
    assert (continues.wait().phase, continues.wait().result) == (Phase.SUCCEEDED, len(listener.texts("rank 0")))
    assert line_errors(listener, ending_listener) == []


def test_lists_again_after_the_server_has_lost_its_history(
    runs: Runs, testbed_choice: Choice, stage: Stage, tmp_path: Path
) -> None:
    """A server that has just started answers 410 to a watch from an older version."""
    with proxy_to(str(runs.kubeconfig), tmp_path) as (proxy, kubeconfig):
        options = {"kubeconfig": kubeconfig}
        ends, listener = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="ends", options=options)
        deleted, deleted_listener = runs.start(**stage.job("count_until('never')"), run="deleted", options=options)
        for each in (listener, deleted_listener):
            wait_for_more(each)
        old = runs.get("pods")["metadata"]["resourceVersion"]
        proxy.refuse()
        runs.cluster.kubectl("delete", "jobset/deleted", "-n", runs.namespace, "--cascade=foreground", "--timeout=300s")
        stage.say("end")
        runs.cluster.kubectl("wait", "jobset/ends", "-n", runs.namespace, "--for=condition=Completed", "--timeout=300s")
        outages.stop(outages.API_SERVER, signal.SIGKILL)
        outages.start(testbed_choice, outages.API_SERVER)
        assert answer_to_a_watch_from(runs, old) == 410
        proxy.refuse(False)
        assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(listener.texts("rank 0")))
        assert line_errors(listener) == []
        lost = deleted.wait()
    assert lost.failure is not None
    assert (lost.phase, lost.failure.kind, int(lost.exit_code)) == (Phase.LOST, FailureKind.LOST, 3)


def answer_to_a_watch_from(runs: Runs, version: str) -> int:
    """The HTTP status with which the server answers a watch from an old version."""
    feed = ListWatch()
    feed.listed({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": []})
    path, query = f"/api/v1/namespaces/{runs.namespace}/pods", feed.next_request().query

    async def watch() -> None:
        async with client_of(str(runs.kubeconfig)) as client, client.stream(path, query, 30) as pieces:
            feed.data(await anext(pieces))

    try:
        asyncio.run(watch())
    except RefusedError as refused:
        return refused.reply.status
    return 200 if feed.next_request().watch else 410


def test_restarts_a_list_whose_next_page_has_expired(runs: Runs, testbed_choice: Choice) -> None:
    path = f"/api/v1/namespaces/{runs.namespace}/configmaps"
    with connect(runs.cluster.kubeconfig) as connection:
        for name in ("a", "b", "c"):
            connection.call(connection.client.post, path, {**CONFIG_MAP, "metadata": {"name": name}})
        feed = ListWatch()
        assert feed.listed(connection.get(path, {**feed.next_request().query, "limit": "1"}).body) == []
        connection.call(connection.client.delete, f"{path}/c", {})
        outages.compact_etcd()
        # The restart clears the server's cache, which still contains the compacted versions.
        outages.stop(outages.API_SERVER, signal.SIGKILL)
        outages.start(testbed_choice, outages.API_SERVER)
        assert connection.get(path, {**feed.next_request().query, "limit": "1"}).status == 410
        feed.expired()
        found = {
            each.object["metadata"]["name"]
            for each in feed.listed(connection.get(path, feed.next_request().query).body)
        }
    assert found >= {"a", "b"} and "c" not in found


def test_a_run_succeeds_while_etcd_takes_seconds_for_each_request(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    some = {**CONFIG_MAP, "metadata": {"generateName": "some-"}}
    with outages.slow(outages.ETCD, frozen=1.5, awake=0.05), connect(runs.cluster.kubeconfig) as connection:

        def takes_seconds() -> bool:
            began = time.monotonic()
            path = f"/api/v1/namespaces/{runs.namespace}/configmaps"
            assert connection.call(connection.client.post, path, some).accepted
            return time.monotonic() - began > 1

        assert until(takes_seconds)
        handle, listener = runs.start(**stage.job("count_until('end')", LEAVES_COUNT))
        wait_for_more(listener)
        assert until(takes_seconds)
        stage.say("end")
        status = handle.wait()
        assert runs.cli("status", "run").returncode == 0
    assert (status.phase, status.result) == (Phase.SUCCEEDED, len(listener.texts("rank 0")))
    assert line_errors(listener) == []


def test_controllers_that_are_down_delay_a_run_without_other_effects(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    ends, listener = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="ends")
    again, again_listener = runs.start(
        **stage.job("count_until('end' if attempt == 0 else 'later')", "if attempt == 0: sys.exit(3)"),
        restart={"max_restarts": 1},
        run="again",
    )
    for each in (listener, again_listener):
        wait_for_more(each)
    for name in (outages.CONTROLLER_MANAGER, outages.JOBSET):
        outages.stop(name)
    with pytest.raises(InfrastructureError, match="webhook"):
        runs.backend().submit(runs.request(**stage.job(), run="refused"))
    stage.say("end")
    for each in (listener, again_listener):
        each.wait_until(
            lambda each=each: all(row.state in ("Succeeded", "Failed") for row in each.statuses[-1].ranks),
            "the ranks' ends",
        )
        assert each.statuses[-1].phase is Phase.RUNNING
    assert "jobset/refused" not in runs.left()
    for name in (outages.CONTROLLER_MANAGER, outages.JOBSET):
        outages.start(testbed_choice, name)
    assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(listener.texts("rank 0")))
    again_listener.wait_until(
        lambda: again_listener.statuses[-1].attempt == 1 and again_listener.statuses[-1].phase is Phase.RUNNING,
        "the restart",
    )
    stage.say("later")
    status = again.wait()
    assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)
    assert line_errors(listener, again_listener) == []
    assert until(lambda: not [name for name in runs.left() if "refused" in name])
