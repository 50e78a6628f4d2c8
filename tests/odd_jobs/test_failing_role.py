"""A role outside the training world fails: before the nodes start, or beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepset.backends.base import RunRequest
from stepset.backends.local import LocalBackend
from stepset.run_status import Phase
from stepset.sources import read_sources
from stepset.spec.job import TrainingJob
from tests.cluster.many import BRIEF, SLEEP, Many, many
from tests.cluster.testbed.handle import Cluster
from tests.odd_jobs import OddJob
from tests.targets.making import request, workload

FAIL = ["sh", "-c", "exit 3"]
SINGLE = "roles.board: target {} cannot start and stop pods of several kinds together"
ODD_JOB = OddJob(
    job={"num_nodes": 2, "restart": {"max_restarts": 1}, "roles": [{"name": "board", "command": FAIL}]},
    expected="A failed role counts as a failed node: the gang restarts while restarts are left, then the run fails.",
    source="jobset v0.12.0 pkg/controllers/failure_policy.go; kubernetes-sigs/jobset#1042; docs/targets.md, Roles",
    refused={"statefulset": SINGLE.format("statefulset"), "job": SINGLE.format("job")},
)
# `once` fails in the first attempt only.
ONCE = ["sh", "-c", 'test "$STEPSET_TEST_ATTEMPT" != 0 || exit 3']
TRAINS = f"import time\nprint('training', flush=True)\n{SLEEP}"
JOBS: dict[str, dict[str, Any]] = {
    "before": {"text": "print('never')", "roles": [{"name": "prepare", "before": True, "command": FAIL}]},
    "beside": {"text": TRAINS, "roles": [{"name": "board", "command": FAIL}]},
    "again": {
        "text": "import os\nprint('attempt', os.environ['STEPSET_ATTEMPT'])",
        "restart": {"max_restarts": 1},
        "roles": [
            {
                "name": "prepare",
                "before": True,
                "command": ONCE,
                "env": {
                    "STEPSET_TEST_ATTEMPT": {"field": "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"}
                },
            }
        ],
    },
    "still-running": {"text": "print('trained')", "roles": [{"name": "board", "command": ["sleep", "600"]}]},
}


def test_in_volcano_any_failed_task_restarts_the_job() -> None:
    (policy,) = workload(ODD_JOB.render("volcano"))["spec"]["policies"]
    assert policy == {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}


@pytest.mark.local
@pytest.mark.parametrize("before", [True, False], ids=["before", "beside"])
def test_locally_it_fails_the_run_as_on_a_cluster(tmp_path: Path, before: bool) -> None:
    roles = [{"name": "board", "before": before, "command": FAIL}]
    job = request(function="import time; time.sleep(60)", framework="plain", roles=roles)
    handle = LocalBackend(tmp_path, grace=1.0).start(_run_request(job.job, tmp_path))
    status = handle.wait()
    assert status.phase is Phase.FAILED
    assert status.failure is not None
    assert (status.failure.exit_code, status.failure.rank) == (3, None)


@pytest.mark.local
def test_locally_a_restart_runs_completed_roles_again(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    once = f"echo prepare >> {ran}; test $(grep -c prepare {ran}) = 2 || exit 3"
    roles = [
        {"name": "fetch", "before": True, "command": ["sh", "-c", f"echo fetch >> {ran}"]},
        {"name": "prepare", "before": True, "after": ["fetch"], "command": ["sh", "-c", once]},
    ]
    job = request(function="print('trained')", framework="plain", roles=roles, restart={"max_restarts": 1}).job
    status = LocalBackend(tmp_path, grace=1.0).start(_run_request(job, tmp_path)).wait()
    assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)
    assert ran.read_text().split() == ["fetch", "prepare"] * 2


def _run_request(job: TrainingJob, directory: Path) -> RunRequest:
    return RunRequest(job, read_sources(job, directory))


@pytest.fixture(scope="module", params=["jobset", "trainjob"])
def ends(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Many]:
    """The runs of the table, started together."""
    jobs = {name: {**job, "pod_template": BRIEF} for name, job in JOBS.items()}
    with many(cluster, tmp_path_factory.mktemp("runs"), jobs, target=request.param) as found:
        yield found


@pytest.mark.cluster
class TestOnTheRealControllers:
    @pytest.mark.parametrize(("run", "role"), [("before", "prepare"), ("beside", "board")])
    def test_without_restarts_it_fails_the_run_and_is_named(self, ends: Many, run: str, role: str) -> None:
        assert ends.end(run).phase is Phase.FAILED
        failure = ends.failure(run)
        assert (failure.exit_code, failure.rank) == (3, None)
        assert failure.pod.startswith(f"{run}-{role}-0-0")
        assert "never" not in ends.listener(run).texts("node 0")

    def test_a_restart_runs_the_roles_again_and_the_run_may_succeed(self, ends: Many) -> None:
        status = ends.end("again")
        assert (status.phase, status.attempt) == (Phase.SUCCEEDED, 1)
        assert [line.text for line in ends.listener("again").lines if line.text.startswith("attempt")] == ["attempt 1"]

    def test_a_role_that_still_runs_when_the_nodes_have_ended_is_stopped(self, ends: Many) -> None:
        assert ends.end("still-running").phase is Phase.SUCCEEDED
