"""`stepset prune`, and how `stepset list` shows runs whose ttl is over."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import stepset
from stepset.backends.local.runs.store import RunStore
from stepset.run_status import Phase, RunStatus
from stepset.spec import TrainingJob
from tests.cli.conftest import Cli


def ended(name: str, phase: Phase, *, ago: float, ttl: str | None = None) -> None:
    """Creates the directory of a run that ended some seconds ago."""
    now = time.time()
    status = RunStatus(name, "job", "local", phase=phase, created=now - ago - 1, finished=now - ago)
    _, lock = RunStore(Path(os.environ["STEPSET_HOME"])).create(status, TrainingJob(command=["true"], ttl=ttl))
    os.close(lock)


def test_deletes_what_has_expired_and_list_changes_nothing(cli: Cli) -> None:
    ended("over", Phase.FAILED, ago=100, ttl="1m")
    ended("later", Phase.SUCCEEDED, ago=100, ttl="1h")
    ended("kept", Phase.SUCCEEDED, ago=10**6)
    for _ in range(2):
        rows = {line.split()[0]: line for line in cli("list").out.splitlines()[1:]}
        assert {name: "expired" in row for name, row in rows.items()} == {"over": True, "later": False, "kept": False}
    expires = {run["name"]: run["expires"] for run in json.loads(cli("list", "-o", "json").out)["items"]}
    assert datetime.fromisoformat(expires["kept"]) > datetime.now(UTC) > datetime.fromisoformat(expires["over"])
    dry = cli("prune", "--dry-run")
    assert (dry.code, dry.out, dry.err) == (0, "over\n", "stepset: would delete 1 run\n")
    done = cli("prune")
    assert (done.code, done.out, done.err) == (0, "over\n", "stepset: deleted 1 run\n")
    note = "stepset: note: no run has expired; --older-than 1s selects 2 finished runs\n"
    assert cli("prune").err == f"stepset: deleted 0 runs\n{note}"
    assert cli("prune", "--failed").err == "stepset: deleted 0 runs\n"


def test_old_runs_are_deleted_on_request_and_failed_ones_alone_if_wanted(cli: Cli) -> None:
    ended("good", Phase.SUCCEEDED, ago=10**6)
    ended("bad", Phase.FAILED, ago=10**6)
    ended("new", Phase.FAILED, ago=10)
    assert cli("prune", "--older-than", "7d", "--failed").out == "bad\n"
    assert [run.name for run in stepset.prune(older_than=7 * 86400.0)] == ["good"]
    wrong = cli("prune", "--older-than", "soon")
    assert (wrong.code, wrong.err.startswith("stepset: --older-than: ")) == (2, True)
    for number in ("1", " 30 "):  # seconds, but most users mean days
        wrong = cli("prune", "--older-than", number)
        assert (wrong.code, wrong.out) == (2, "")
        unit = f"{number.strip()!r} has no unit; write for example {number.strip()}d"
        assert wrong.err.startswith(f"stepset: --older-than: {unit}, ")
    assert [run.name for run in stepset.list_runs()] == ["new"]
