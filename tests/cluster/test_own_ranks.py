"""A command in pods that must start the ranks itself: the agent ends a run with too few ranks."""

from __future__ import annotations

import pytest

from stepset.run_status import FailureKind
from tests.cluster.runs import Runs

pytestmark = pytest.mark.cluster

ALONE = "import time; time.sleep(2)"
SMALLER = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", "import time; time.sleep(100)"], env={**os.environ, "WORLD_SIZE": "1"})
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (ALONE, "the command ran alone in this node, as a world of 1 rank instead of 4; "),
        (SMALLER, "the command started 1 rank instead of 4; "),
    ],
)
def test_a_run_with_too_few_ranks_fails_with_both_numbers(runs: Runs, text: str, error: str) -> None:
    (runs.directory / "code").mkdir()
    (runs.directory / "code" / "launch.py").write_text(text)
    program = [runs.cluster.python, "launch.py"]
    job = {"num_nodes": 2, "procs_per_node": 2, "code": "code", "script": None, "command": program}
    status, _ = runs.run(run="own", framework="torch", **job)
    assert status.failure is not None
    assert (status.failure.kind, status.failure.exit_code) == (FailureKind.RENDEZVOUS, 71)
    assert error in status.failure.error
