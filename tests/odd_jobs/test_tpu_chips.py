"""JAX and XGBoost on a host with four TPU chips."""

from __future__ import annotations

import pytest

from tests.odd_jobs import OddJob
from tests.targets.making import agent_config

ODD_JOB = OddJob(
    job={"num_nodes": 4, "framework": "jax", "resources_per_node": {"google.com/tpu": 4}},
    expected="Each host runs one process, which uses its four chips.",
    source="JAX, Introduction to multi-controller JAX: one process per host",
)


@pytest.mark.parametrize("target", ODD_JOB.targets)
def test_jax_runs_one_process_for_each_host(target: str) -> None:
    assert agent_config(ODD_JOB.render(target))["processes"] == 1


@pytest.mark.parametrize("framework", [{"kind": "torch", "launcher": "none"}, "xgboost", "mlx"])
def test_other_frameworks_do_so_too(framework: object) -> None:
    assert agent_config(ODD_JOB.render("jobset", framework=framework))["processes"] == 1
