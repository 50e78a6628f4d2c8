"""The API server restarts, is away, hangs, forgets, is slow; controllers are dead: runs are followed over all of it."""

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
from stepset.backends.kubernetes.api.connection import connect
from stepset.backends.kubernetes.api.replies import RefusedError
from stepset.errors import InfrastructureError
from stepset.watch.list_watch import ListWatch
from stepset.watch.state import FailureKind, Phase
from tests.cluster.many import RESULT
from tests.cluster.proxy import proxy_to
from tests.cluster.runs import Listening, Runs
from tests.cluster.stage import Stage, missing_lines
from tests.cluster.testbed import outages
from tests.cluster.testbed.layout import Choice
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive]

RANKS = ("rank 0", "rank 1")
DOES_NOT_ANSWER = "does not answer; the run continues"
"""Said of the server; a node may be said not to answer after it, because nobody took its word meanwhile."""
AWAY = 60.0
"""Seconds for which the API server is away."""
FAILS = "if rank == 1: raise ValueError('batch 7 is empty')"
LEAVES_COUNT = "if rank == 0: " + RESULT.format("count")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    path = tmp_path / "stage"
    path.mkdir()
    return Stage(path)


def wait_for_more(heard: Listening, lines: int = 10) -> None:
    """Until both ranks have been heard anew."""

    def counted() -> int:
        return min(len(heard.texts(source)) for source in RANKS)

    before = counted()
    heard.wait_until(lambda: counted() >= before + lines, f"{lines} more lines of each rank")


def is_told(heard: Listening) -> bool:
    """Whether the user reads just now that the server does not answer."""
    return any(DOES_NOT_ANSWER in note for note in heard.statuses[-1].notes)


def what_is_missing(*listening: Listening) -> list[str]:
    """What is wrong with the ranks' lines."""
    found = [missing_lines(heard.lines, source) for heard in listening for source in RANKS]
    return [each for each in found if each]


def test_a_run_is_followed_over_restarts_of_the_server_and_every_line_comes_once(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    succeeds, heard = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="succeeds")
    fails, heard_failing = runs.start(**stage.job("count_until('end' if rank else 'never')", FAILS), run="fails")
    for listening in (heard, heard_failing):
        wait_for_more(listening)
    for _ in range(2):
        outages.stop(outages.API_SERVER, signal.SIGKILL)
        outages.start(testbed_choice, outages.API_SERVER)
        for listening in (heard, heard_failing):
            wait_for_more(listening)
    stage.say("end")
    status, failed = succeeds.wait(), fails.wait()
    assert (status.phase, status.result) == (Phase.SUCCEEDED, len(heard.texts("rank 0")))
    assert failed.failure is not None and (failed.failure.kind, failed.failure.rank) == (FailureKind.USER_ERROR, 1)
    assert "batch 7 is empty" in failed.failure.message
    assert what_is_missing(heard, heard_failing) == []
    assert heard.phases()[-2:] == ["Running", "Succeeded"]
    assert heard_failing.phases()[-2:] == ["Running", "Failed"]
    assert (status.notes, failed.notes) == ((), ())


def test_a_server_that_is_away_for_a_minute_is_told_of_and_all_goes_on_when_it_is_back(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    goes_on, heard = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="goes-on")
    ends, heard_ending = runs.start(**stage.job("count_until('meanwhile')", LEAVES_COUNT), run="ends")
    fails, heard_failing = runs.start(**stage.job("count_until('meanwhile')", FAILS), run="fails")
    to_stop, heard_stopped = runs.start(**stage.job("count_until('never')"), run="stopped")
    with of_the_command_line(runs, **stage.job("count_until('end')", num_nodes=1)) as (program, out, err):
        first = out.readline()
        for listening in (heard, heard_ending, heard_failing, heard_stopped):
            wait_for_more(listening)
        fields = stage.job("count_until('never')", resources_per_node={"cpu": 999})
        waits, heard_waiting = runs.start(**fields, run="waits", options={"startup_timeout": 20.0})
        heard_waiting.wait_for(Phase.PENDING, "Unschedulable")

        outages.stop(outages.API_SERVER, signal.SIGKILL)
        gone_since = time.monotonic()
        stage.say("meanwhile")
        to_stop.cancel()
        for listening in (heard, heard_ending, heard_failing, heard_stopped, heard_waiting):
            listening.wait_until(lambda listening=listening: is_told(listening), "the word that the server is silent")
        asked = runs.cli("status", "goes-on")
        assert asked.returncode == 3
        assert "cannot be reached" in asked.stderr and len(asked.stderr.splitlines()) == 1
        time.sleep(max(0.0, gone_since + AWAY - time.monotonic()))
        assert heard_waiting.statuses[-1].phase is Phase.PENDING, "nobody is blamed for what he could not do"
        outages.start(testbed_choice, outages.API_SERVER)

        assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(heard_ending.texts("rank 0")))
        failed = fails.wait().failure
        assert failed is not None and (failed.kind, failed.rank) == (FailureKind.USER_ERROR, 1)
        stopped = to_stop.wait().failure
        assert stopped is not None and stopped.kind is FailureKind.CANCELLED
        wait_for_more(heard)
        heard.wait_until(lambda: not is_told(heard), "the word to be gone")
        stage.say("end")
        assert (goes_on.wait().phase, goes_on.wait().result) == (Phase.SUCCEEDED, len(heard.texts("rank 0")))
        lines, said = [first, *out], err.read()
        assert program.wait() == 0 and said.count(DOES_NOT_ANSWER) == 1, said
    assert lines == [f"[rank 0] line {number}\n" for number in range(len(lines))]
    assert what_is_missing(heard, heard_ending, heard_failing, heard_stopped) == []
    given_up = waits.wait()
    assert given_up.failure is not None and given_up.failure.kind is FailureKind.UNSCHEDULABLE


@contextmanager
def of_the_command_line(runs: Runs, **job: Any) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A run of `stepset run`, with its stdout and stderr."""
    with runs.program("run", runs.job_file(**job)) as program:
        assert program.stdout is not None and program.stderr is not None
        try:
            yield program, program.stdout, program.stderr
        finally:
            program.kill()


def test_a_server_that_hangs_is_noticed_and_goes_on_where_it_stopped(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    goes_on, heard = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="goes-on")
    ends, heard_ending = runs.start(**stage.job("count_until('meanwhile')", LEAVES_COUNT), run="ends")
    for listening in (heard, heard_ending):
        wait_for_more(listening)
    outages.freeze(outages.API_SERVER)
    stage.say("meanwhile")
    for listening in (heard, heard_ending):
        listening.wait_until(lambda listening=listening: is_told(listening), "the word that the server is silent")
    outages.thaw(outages.API_SERVER)
    assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(heard_ending.texts("rank 0")))
    wait_for_more(heard)
    heard.wait_until(lambda: not is_told(heard), "the word to be gone")
    stage.say("end")
    assert (goes_on.wait().phase, goes_on.wait().result) == (Phase.SUCCEEDED, len(heard.texts("rank 0")))
    assert what_is_missing(heard, heard_ending) == []


def test_what_a_server_has_forgotten_is_listed_anew(
    runs: Runs, testbed_choice: Choice, stage: Stage, tmp_path: Path
) -> None:
    """A server that has just started knows nothing of older versions: 410."""
    with proxy_to(str(runs.kubeconfig), tmp_path) as (proxy, kubeconfig):
        options = {"kubeconfig": kubeconfig}
        ends, heard = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="ends", options=options)
        deleted, heard_deleted = runs.start(**stage.job("count_until('never')"), run="deleted", options=options)
        for listening in (heard, heard_deleted):
            wait_for_more(listening)
        old = runs.get("pods")["metadata"]["resourceVersion"]
        proxy.refuse()
        runs.cluster.kubectl("delete", "jobset/deleted", "-n", runs.namespace, "--cascade=foreground", "--timeout=90s")
        stage.say("end")
        runs.cluster.kubectl("wait", "jobset/ends", "-n", runs.namespace, "--for=condition=Completed", "--timeout=90s")
        outages.stop(outages.API_SERVER, signal.SIGKILL)
        outages.start(testbed_choice, outages.API_SERVER)
        assert answer_to_a_watch_from(runs, old) == 410
        proxy.refuse(False)
        assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(heard.texts("rank 0")))
        assert what_is_missing(heard) == []
        gone = deleted.wait()
    assert gone.failure is not None
    assert (gone.phase, gone.failure.kind, int(gone.exit_code)) == (Phase.LOST, FailureKind.LOST, 3)


def answer_to_a_watch_from(runs: Runs, version: str) -> int:
    """What the server says to whoever goes on from an old version."""
    feed = ListWatch()
    feed.listed({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": []})
    path, query = f"/api/v1/namespaces/{runs.namespace}/pods", feed.ask().query

    async def watch() -> None:
        async with client_of(str(runs.kubeconfig)) as client, client.stream(path, query, 30) as pieces:
            feed.data(await anext(pieces))

    try:
        asyncio.run(watch())
    except RefusedError as refused:
        return refused.reply.status
    return 200 if feed.ask().watch else 410


def test_pages_that_etcd_has_forgotten_are_asked_for_from_the_first(runs: Runs, testbed_choice: Choice) -> None:
    path = f"/api/v1/namespaces/{runs.namespace}/configmaps"
    with connect(runs.cluster.kubeconfig) as connection:
        for name in ("a", "b", "c"):
            connection.call(connection.client.post, path, {"metadata": {"name": name}})
        feed = ListWatch()
        assert feed.listed(connection.get(path, {**feed.ask().query, "limit": "1"}).body) == []
        connection.call(connection.client.delete, f"{path}/c", {})
        outages.compact_etcd()
        # The server's own memory of what etcd has forgotten is thrown away with it.
        outages.stop(outages.API_SERVER, signal.SIGKILL)
        outages.start(testbed_choice, outages.API_SERVER)
        assert connection.get(path, {**feed.ask().query, "limit": "1"}).status == 410
        feed.expired()
        found = {each.object["metadata"]["name"] for each in feed.listed(connection.get(path, feed.ask().query).body)}
    assert found >= {"a", "b"} and "c" not in found


def test_a_run_gets_through_while_etcd_takes_seconds_for_everything(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    with outages.slow(outages.ETCD, frozen=1.5, awake=0.05), connect(runs.cluster.kubeconfig) as connection:

        def takes_seconds() -> bool:
            began = time.monotonic()
            path = f"/api/v1/namespaces/{runs.namespace}/configmaps"
            assert connection.call(connection.client.post, path, {"metadata": {"generateName": "some-"}}).accepted
            return time.monotonic() - began > 1

        assert until(takes_seconds)
        handle, heard = runs.start(**stage.job("count_until('end')", LEAVES_COUNT))
        wait_for_more(heard)
        assert until(takes_seconds)
        stage.say("end")
        status = handle.wait()
        assert runs.cli("status", "run").returncode == 0
    assert (status.phase, status.result) == (Phase.SUCCEEDED, len(heard.texts("rank 0")))
    assert what_is_missing(heard) == []


def test_controllers_that_are_dead_for_a_while_hold_a_run_up_and_change_nothing(
    runs: Runs, testbed_choice: Choice, stage: Stage
) -> None:
    ends, heard = runs.start(**stage.job("count_until('end')", LEAVES_COUNT), run="ends")
    again, heard_again = runs.start(
        **stage.job("count_until('end' if attempt == 0 else 'later')", "if attempt == 0: sys.exit(3)"),
        restart={"max_restarts": 1},
        run="again",
    )
    for listening in (heard, heard_again):
        wait_for_more(listening)
    for name in (outages.CONTROLLER_MANAGER, outages.JOBSET):
        outages.stop(name)
    with pytest.raises(InfrastructureError, match="webhook"):
        runs.backend().submit(runs.request(**stage.job(), run="refused"))
    stage.say("end")
    for listening in (heard, heard_again):
        listening.wait_until(
            lambda listening=listening: all(
                row.state in ("Succeeded", "Failed") for row in listening.statuses[-1].ranks
            ),
            "the ranks' ends",
        )
        assert listening.statuses[-1].phase is Phase.RUNNING
    assert "jobset/refused" not in runs.left()
    for name in (outages.CONTROLLER_MANAGER, outages.JOBSET):
        outages.start(testbed_choice, name)
    assert (ends.wait().phase, ends.wait().result) == (Phase.SUCCEEDED, len(heard.texts("rank 0")))
    heard_again.wait_until(
        lambda: heard_again.statuses[-1].attempt == 1 and heard_again.statuses[-1].phase is Phase.RUNNING, "the restart"
    )
    stage.say("later")
    status = again.wait()
    assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)
    assert what_is_missing(heard, heard_again) == []
    assert until(lambda: not [name for name in runs.left() if "refused" in name])
