"""Whole numbers that are written with a fraction of zero, as some templates write them."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import request

ODD_JOB = OddJob(
    job={"num_nodes": 2.0, "procs_per_node": 4.0},
    expected="procs_per_node accepts what num_nodes accepts; before, it rejected 4.0.",
    source="docs.pydantic.dev, conversion table: int accepts a float without a fraction",
)


@pytest.mark.parametrize("value", [4.0, "4", "4.0", 4])
def test_both_fields_have_the_same_rule(value: object) -> None:
    job = request(num_nodes=value, procs_per_node=value).job
    assert (job.num_nodes, job.procs_per_node) == (4, 4)
    assert type(job.procs_per_node) is int
