"""The sources of log lines that a task log needs for the ranks that it shows."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.frameworks import make_plan
from stepset.spec import parse_job
from stepset_airflow.run.create import log_sources

MPI = {"framework": "mpi", "num_nodes": 2, "procs_per_node": 2}
TORCH = {"framework": "torch", "num_nodes": 3, "procs_per_node": 2}


@pytest.mark.parametrize(
    ("job", "ranks", "expected"),
    [
        pytest.param(TORCH, None, None, id="all"),
        pytest.param(TORCH, [], set(), id="none"),
        pytest.param(TORCH, [0], {"rank 0", "node 0"}, id="the first, and its node's launcher"),
        pytest.param(TORCH, [3, 4], {"rank 3", "rank 4", "node 1", "node 2"}, id="of several nodes"),
        pytest.param(MPI, [0], {"rank 0", "node 0", "launcher"}, id="and a launcher pod"),
        pytest.param(
            {**TORCH, "roles": [{"name": "monitor", "replicas": 2, "command": ["watch"]}]},
            [0],
            {"rank 0", "node 0", "monitor-0", "monitor-1"},
            id="and pods of other roles",
        ),
    ],
)
def test_selects_the_sources_of_the_ranks(
    job: dict[str, Any], ranks: list[int] | None, expected: set[str] | None
) -> None:
    plan = make_plan(parse_job({"name": "digits", "image": "i", "script": "train.py", **job}))
    assert log_sources(None if ranks is None else frozenset(ranks), plan) == expected
