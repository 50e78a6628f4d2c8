"""Each target on a cluster: a run that succeeds, one that fails with a diagnosis, and one that a user cancels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stepset.run_status import FailureKind, Phase
from tests.cluster.many import BRIEF, MEET, PAIR, RANK, RESULT, SLEEP, Many, many
from tests.cluster.testbed.handle import Cluster
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.gate]

JOBS: dict[str, dict[str, Any]] = {
    "succeeds": {
        **PAIR,
        "text": MEET + "print('trained', rank)\nif rank == 0: " + RESULT.format("{'loss': 0.5}"),
    },
    "fails": {
        **PAIR,
        "text": RANK + "if rank == 1:\n    raise ValueError('batch 7 is empty')\n" + SLEEP,
        "pod_template": BRIEF,
    },
    "is-cancelled": {**PAIR, "text": RANK + "print('started', flush=True)\n" + SLEEP, "pod_template": BRIEF},
}


@pytest.fixture(scope="module", params=["jobset", "trainjob", "statefulset", "job"])
def started(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Many]:
    """The runs of the table, of one target."""
    with many(cluster, tmp_path_factory.mktemp("runs"), JOBS, target=request.param) as found:
        yield found


def test_a_run_that_succeeds_has_its_result_and_each_line_once(started: Many) -> None:
    status = started.end("succeeds")
    assert (status.phase, status.result, int(status.exit_code)) == (Phase.SUCCEEDED, {"loss": 0.5}, 0)
    listener = started.listener("succeeds")
    assert [listener.texts("rank 0"), listener.texts("rank 1")] == [["trained 0"], ["trained 1"]]


def test_a_run_that_fails_names_the_rank_and_its_error(started: Many) -> None:
    failure = started.failure("fails")
    assert (failure.kind, failure.rank, failure.exit_code) == (FailureKind.USER_ERROR, 1, 1)
    assert failure.error == "ValueError: batch 7 is empty"


def test_a_run_that_a_user_cancels_ends_and_leaves_no_object(started: Many) -> None:
    started.listener("is-cancelled").wait_for_line("started", 2)
    done = started.runs.cli("cancel", "is-cancelled")
    assert done.returncode == 0, done.stderr
    assert started.failure("is-cancelled").kind is FailureKind.CANCELLED
    selector = "stepset.dev/run=is-cancelled"
    assert until(lambda: not started.runs.get("pods,configmaps", selector)["items"])


def test_a_list_contains_the_runs_that_are_left(started: Many) -> None:
    for run in started.started:
        started.end(run)
    done = started.runs.cli("list", "-o", "name")
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["fails", "succeeds"]), done.stderr
