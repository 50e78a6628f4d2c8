"""torchrun's own argument parser reads the variables of the plan, without training."""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys

import pytest

from tests.frameworks.planned import Plan

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch for its launcher"),
]

# Reads the variables of each pod in turn in one process, because importing torch is slow.
_PARSE = """
import json, os, sys
from torch.distributed.run import config_from_args, parse_args

for env in json.load(sys.stdin):
    for name in [name for name in os.environ if name.startswith("PET_")]:
        del os.environ[name]
    os.environ.update(env)
    config, _, _ = config_from_args(parse_args(["train.py"]))
    print(json.dumps({
        "nodes": [config.min_nodes, config.max_nodes],
        "nproc": config.nproc_per_node,
        "backend": config.rdzv_backend,
        "endpoint": config.rdzv_endpoint,
        "run_id": config.run_id,
        "restarts": config.max_restarts,
        **{key: config.rdzv_configs.get(key) for key in ("rank", "is_host", "read_timeout")},
    }))
"""

_ELASTIC = {
    "kind": "torch",
    "elastic": {"min_nodes": 1, "max_nodes": 4, "max_restarts": 7, "rdzv_id": "x", "rdzv_conf": {"read_timeout": 90}},
}


def env_of(plan: Plan, node: int) -> dict[str, str]:
    """Returns the variables of one pod, with the places resolved for it."""
    places = {"<pod index>": str(node), "<1 in pod 0, else 0>": "0" if node else "1"}
    env = plan.env()
    for place, value in places.items():
        env = {name: text.replace(place, value) for name, text in env.items()}
    return env


def test_torchrun_reads_the_variables_of_the_plan() -> None:
    fixed, single = Plan("torch", num_nodes=3, procs_per_node=2), Plan("torch", num_nodes=1, procs_per_node=2)
    elastic = Plan(_ELASTIC, num_nodes=2, procs_per_node=1)
    pods = [env_of(fixed, 2), env_of(single, 0), env_of(elastic, 0), env_of(elastic, 1)]
    done = subprocess.run(
        [sys.executable, "-c", _PARSE], input=json.dumps(pods), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    third_of_three, alone, host, guest = (json.loads(line) for line in done.stdout.splitlines())

    assert (third_of_three["nodes"], third_of_three["nproc"], third_of_three["rank"]) == ([3, 3], 2, 2)
    assert (third_of_three["backend"], third_of_three["endpoint"]) == ("static", "job-node-0-0.job:29500")
    assert (alone["nodes"], alone["backend"], alone["rank"]) == ([1, 1], "static", 0)
    for node, is_host in ((host, "1"), (guest, "0")):
        assert (node["nodes"], node["restarts"], node["run_id"]) == ([1, 4], 7, "x")
        assert (node["backend"], node["endpoint"]) == ("c10d", "job-node-0-0.job:29500")
        assert (node["is_host"], str(node["read_timeout"])) == (is_host, "90")


def test_torch_logs_the_text_by_which_the_agent_recognises_a_failed_exit_barrier() -> None:
    from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

    assert 'logger.exception(\n                "Error waiting on exit barrier.' in inspect.getsource(SimpleElasticAgent)
