"""A TrainJob whose run fails and has a `ttl`: on Trainer 2.3.0, a JobSet that its own TTL deletes trains again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stepset.backends.prune import PruneRule
from stepset.run_status import Phase
from stepset.targets.metadata import TTL
from tests.cluster.many import BRIEF, SLEEP
from tests.cluster.runs import Runs
from tests.odd_jobs import OddJob
from tests.targets.making import of_kind
from tests.waiting import until

# The expected result: the training runs once. The TrainJob keeps the ttl in an annotation; the runtime's JobSet has
# none.
ODD_JOB = OddJob(
    job={"num_nodes": 2, "restart": {"max_restarts": 1}, "ttl": "1h"},
    expected="Each rank of a failed TrainJob has exactly one pod until the TrainJob is deleted.",
    source="kubeflow/trainer v2.3.0 pkg/controller/trainjob_controller.go (removeFailedCondition); #3779, #3737",
    refused={
        "statefulset": "ttl: a StatefulSet has none",
        "job": "restart.max_restarts: target job cannot start the whole gang again",
    },
)
TRAINJOBS = pytest.mark.parametrize("runs", ["trainjob"], indirect=True)
FAILS: dict[str, Any] = {"num_nodes": 2, "pod_template": BRIEF}
WITHOUT_FOLLOWER = 120.0
"""Seconds after the ttl. With the ttl in the JobSet, the controller creates another JobSet every 8 s."""


def test_the_ttl_is_an_annotation_of_the_trainjob() -> None:
    objects = ODD_JOB.render("trainjob")
    assert "ttlSecondsAfterFinished" not in str(objects)
    assert of_kind(objects, "TrainJob")["metadata"]["annotations"][TTL] == "3600"


@pytest.mark.parametrize("target", ["jobset", "volcano"])
def test_other_controllers_delete_the_workload_themselves(target: str) -> None:
    objects = ODD_JOB.render(target)
    assert objects[-1]["spec"]["ttlSecondsAfterFinished"] == 3600
    assert TTL not in objects[-1]["metadata"]["annotations"]


@contextmanager
def pods_and_jobsets(runs: Runs) -> Iterator[dict[str, str]]:
    """Yields uid -> name of every pod and every JobSet that exists at some moment of the context."""
    seen: dict[str, str] = {}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            for kind in ("pods", "jobsets"):
                seen.update({row["metadata"]["uid"]: row["metadata"]["name"] for row in runs.get(kind)["items"]})

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def names_of(seen: dict[str, str]) -> list[str]:
    """The names without the random end of pods."""
    return sorted(name.rpartition("-")[0] if "-" in name else name for name in seen.values())


ONCE = ["run", "run-node-0-0", "run-node-0-1"]
"""One JobSet, and one pod for each rank."""


@pytest.mark.cluster
@TRAINJOBS
def test_a_failed_run_trains_once_and_is_deleted_by_its_follower_when_the_ttl_is_over(runs: Runs) -> None:
    with pods_and_jobsets(runs) as seen:
        status, _ = runs.run("raise SystemExit(3)", ttl="5s", **FAILS)
        assert status.phase is Phase.FAILED
        assert status.finished is not None
        assert status.expires == status.finished + 5
        assert "trainjob/run" in runs.left()
        runs.wait_nothing_left()
        assert time.time() > status.expires
    assert names_of(seen) == ONCE


@pytest.mark.cluster
@TRAINJOBS
def test_without_a_follower_it_is_listed_as_expired_and_prune_deletes_it(runs: Runs) -> None:
    with pods_and_jobsets(runs) as seen:
        backend = runs.backend()
        backend.submit(runs.request("raise SystemExit(3)", ttl="5s", **FAILS))
        status = backend.wait("run", 120)
        assert status.phase is Phase.FAILED
        assert status.expires is not None
        time.sleep(max(0.0, status.expires + WITHOUT_FOLLOWER - time.time()))
        assert [each.expires for each in backend.list()] == [status.expires]
        row = next(line for line in runs.cli("list").stdout.splitlines() if line.startswith("run "))
        assert "UserError, expired" in row
        dry = runs.cli("prune", "--dry-run")
        assert (dry.stdout, dry.stderr) == ("run\n", "stepset: would delete 1 run\n")
        assert "trainjob/run" in runs.left()
        done = runs.cli("prune")
        assert (done.returncode, done.stdout, done.stderr) == (0, "run\n", "stepset: deleted 1 run\n")
        runs.wait_nothing_left()
        assert list(backend.prune(PruneRule())) == []
    assert names_of(seen) == ONCE


@pytest.mark.cluster
@TRAINJOBS
def test_a_cancelled_trainjob_does_not_train_again_and_its_name_is_free_when_its_pods_have_ended(runs: Runs) -> None:
    handle, listener = runs.start(f"import time\nprint('training', flush=True)\n{SLEEP}", num_nodes=2)
    listener.wait_for_line("training", count=2)
    with pods_and_jobsets(runs) as seen:
        assert until(lambda: len(seen) == len(ONCE))
        done = runs.cli("cancel", "run")
        assert done.stderr.startswith("stepset: run run is stopping")
        assert done.stderr.splitlines()[1].startswith("stepset: run run was cancelled after ")
        assert done.returncode == 0
        assert not [pod for pod in runs.pods() if pod["status"]["phase"] == "Running"]
        assert handle.wait().phase is Phase.FAILED
        runs.wait_nothing_left()
        time.sleep(3)  # the controller created another JobSet as soon as the first one was deleted
    assert names_of(seen) == ONCE
