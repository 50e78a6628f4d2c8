"""TorchTune with one process: `tune run` runs the recipe in its own process, which is rank 0 of the run.

Source: torchtune 0.6.1 _cli/run.py; torchrun starts only if one of its options precedes the recipe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset.plan.ranks import max_ranks
from stepset.rendering import render
from tests.notebook.conftest import home
from tests.targets.making import agent_config, request

__all__ = ["home"]

MODEL = {"kind": "torchtune", "model": "llama3_2/1B"}
RECIPE = {"kind": "torchtune", "recipe": "full_finetune_single_device", "config": "llama3_2/1B_full_single_device"}


@pytest.mark.parametrize("framework", [MODEL, RECIPE])
@pytest.mark.parametrize(
    "job",
    [
        {"command": ["tune", "run"]},
        {"script": "recipe.py"},
        {"command": ["tune", "run", "recipe", "--config", "c"]},
        {"command": ["bash", "-c", "cd /work && exec tune run recipe --config c"], "agent": True},
    ],
)
def test_one_process_is_a_rank(framework: dict[str, str], job: dict[str, Any]) -> None:
    made = request(framework=framework, procs_per_node=1, **job)
    assert agent_config(render(made))["processes"] == 1
    assert max_ranks(made.plan) == 1


@pytest.mark.parametrize(
    "job",
    [
        {"command": ["tune", "run"], "procs_per_node": 2},
        {"command": ["tune", "run", "--nproc_per_node=1", "recipe", "--config", "c"], "procs_per_node": 1},
    ],
)
def test_ranks_of_torchrun_are_not_the_process_of_tune(job: dict[str, Any]) -> None:
    assert "processes" not in agent_config(render(request(framework=MODEL, **job)))


@pytest.mark.frameworks
def test_the_result_of_the_recipe_is_that_of_the_run(home: Path, tmp_path: Path) -> None:
    (tmp_path / "my_recipe.py").write_text("import os\nopen(os.environ['STEPSET_RESULT_FILE'], 'w').write('7')\n")
    command = ["tune", "run", "my_recipe", "--config", "none"]
    status = stepset.run({"framework": MODEL, "procs_per_node": 1, "command": command, "code": "."}, base_dir=tmp_path)
    assert status.result == 7
    assert [rank.rank for rank in status.ranks] == [0]
