"""JAX and XGBoost on a host with four TPU chips."""

from __future__ import annotations

import pytest

from stepset.frameworks import make_plan
from stepset.spec import parse_job
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


def test_a_note_mentions_that_pytorch_xla_may_need_one_process_per_chip() -> None:
    job = {**ODD_JOB.job, "framework": {"kind": "torch", "launcher": "none"}, "script": "train.py"}
    (note,) = make_plan(parse_job(job)).notes
    assert note == (
        "procs_per_node: 1 (google.com/tpu: one process for all); PyTorch/XLA without SPMD runs one process per chip:"
        " give procs_per_node as the number of chips"
    )
    assert make_plan(parse_job({**job, "procs_per_node": 4})).notes == ()
