"""TorchTune: the recipe and config for model, nodes, devices and method, and the rendezvous flag."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.frameworks.kinds.torchtune import builtin_recipe, uses_lora, uses_qlora
from tests.frameworks.planned import Plan

LORA = "model.lora_attn_modules=['q_proj','v_proj']"
QUANTISED, DORA = "model.quantize_base=True", "model.use_dora=True"
M1B, M70B = "llama3_2/1B", "llama3_3/70B"


def tune(model: str = M1B, **job: Any) -> Plan:
    return Plan({"kind": "torchtune", "model": model}, script=None, **job)


@pytest.mark.parametrize(
    ("nodes", "one_device", "args", "recipe", "config"),
    [
        (1, True, [], "full_finetune_single_device", "full_single_device"),
        (1, True, [LORA], "lora_finetune_single_device", "lora_single_device"),
        (1, True, [LORA, QUANTISED], "lora_finetune_single_device", "qlora_single_device"),
        (1, True, [QUANTISED], "lora_finetune_single_device", "qlora_single_device"),
        (1, True, [LORA, DORA, QUANTISED], "lora_finetune_single_device", "lora_single_device"),
        (1, False, [], "full_finetune_distributed", "full"),
        (1, False, [LORA], "lora_finetune_distributed", "lora"),
        (1, False, [LORA, QUANTISED], "lora_finetune_distributed", "qlora"),
        (1, False, [LORA, DORA], "lora_finetune_distributed", "lora"),
        (2, False, [], "full_finetune_distributed", "full_multinode"),
        (1, True, [DORA, QUANTISED], "full_finetune_single_device", "full_single_device"),
    ],
)
def test_the_recipe_fits(nodes: int, one_device: bool, args: list[str], recipe: str, config: str) -> None:
    assert builtin_recipe(M1B, nodes, one_device, args) == (recipe, f"{M1B}_{config}")


@pytest.mark.parametrize(
    ("args", "lora", "qlora"),
    [
        ([], False, False),
        ([LORA], True, False),
        ([QUANTISED], False, True),
        (["model.quantize_base=true"], False, True),
        (["model.quantize_base=TRUE"], False, True),
        (["model.quantize_base=False"], False, False),
        ([LORA, QUANTISED, "model.use_dora=false"], True, True),
        ([LORA, QUANTISED, "model.use_dora=TRUE"], True, False),
        ([DORA, LORA, QUANTISED], True, False),
    ],
)
def test_the_args_select_the_method(args: list[str], lora: bool, qlora: bool) -> None:
    assert (uses_lora(args), uses_qlora(args)) == (lora, qlora)


ENDPOINT = "--rdzv_endpoint=job-node-0-0.job:29500"


@pytest.mark.parametrize(
    ("job", "command"),
    [
        ({}, ["full_finetune_single_device", "--config", f"{M1B}_full_single_device"]),
        ({"resources_per_node": {"gpus": 1}}, ["full_finetune_single_device", "--config", f"{M1B}_full_single_device"]),
        ({"resources_per_node": {"gpus": 2}}, [ENDPOINT, "full_finetune_distributed", "--config", f"{M1B}_full"]),
        ({"resources_per_node": {"cpu": 8}}, [ENDPOINT, "full_finetune_distributed", "--config", f"{M1B}_full"]),
        ({"procs_per_node": 4}, [ENDPOINT, "full_finetune_distributed", "--config", f"{M1B}_full"]),
        (
            {"procs_per_node": 1, "resources_per_node": {"gpus": 8}},
            ["full_finetune_single_device", "--config", f"{M1B}_full_single_device"],
        ),
        (
            {"resources_per_node": {"gpus": 2}, "network": {"port": 1, "subdomain": "ring"}},
            ["--rdzv_endpoint=job-node-0-0.ring:1", "full_finetune_distributed", "--config", f"{M1B}_full"],
        ),
        ({"command": ["tune", "run"]}, ["full_finetune_single_device", "--config", f"{M1B}_full_single_device"]),
    ],
)
def test_tune_run_gets_recipe_and_config(job: dict[str, Any], command: list[str]) -> None:
    plan = tune(args=["epochs=3"], **job)
    assert plan.command() == ["tune", "run", *command]
    assert plan.words(plan.plan.group("node").args) == ["epochs=3"]


def test_tune_run_gets_torchruns_variables_except_the_masters() -> None:
    env = tune(M70B, num_nodes=2, resources_per_node={"gpus": 8}).env()
    assert env == {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "<pod index>"}


@pytest.mark.parametrize("name", ["PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT"])
def test_variables_that_torchrun_reads_are_reserved_for_torchtune(name: str) -> None:
    with pytest.raises(BadInputError, match=f"^env.{name}: reserved"):
        tune(env={name: "1"})


def test_the_users_recipe_and_config_are_unchanged() -> None:
    own = {"kind": "torchtune", "recipe": "my_recipe.py", "config": "my.yaml"}
    assert Plan(own, script=None, num_nodes=2).command() == [
        "tune",
        "run",
        ENDPOINT,
        "my_recipe.py",
        "--config",
        "my.yaml",
    ]


def test_a_script_is_the_recipe_of_a_models_config() -> None:
    plan = Plan({"kind": "torchtune", "model": M1B}, script="recipes/mine.py")
    assert plan.command() == ["tune", "run", "/stepset/code/mine.py", "--config", f"{M1B}_full_single_device"]


def test_other_commands_are_started_by_torchrun() -> None:
    for command in (["torchrun", "x.py"], ["tune", "run", "--x"]):
        plan = Plan({"kind": "torchtune", "model": M1B}, command=command, num_nodes=2)
        assert plan.command() == command
        assert plan.env()["PET_MASTER_ADDR"] == "job-node-0-0.job"


@pytest.mark.parametrize(
    ("framework", "job", "message"),
    [
        (
            {"model": "llama3_1/8B"},
            {},
            r"framework\.model: 'llama3_1/8B' has no built-in recipe; use one of llama3_2/1B",
        ),
        ({}, {}, r"framework: torchtune needs a model, or a recipe with its config; give one of them"),
        ({"model": M1B}, {"num_nodes": 2}, r"num_nodes: llama3_2/1B trains on one node only; set num_nodes: 1"),
        ({"model": M70B}, {"num_nodes": 2, "args": [LORA]}, r"args: TorchTune has no LoRA recipe for several nodes"),
        (
            {"model": M70B},
            {"num_nodes": 2, "args": [QUANTISED]},
            r"args: TorchTune has no LoRA recipe for several nodes",
        ),
        ({"model": "qwen2_5/1.5B"}, {"args": [QUANTISED]}, r"args: TorchTune has no QLoRA recipe for qwen2_5/1.5B"),
        (
            {"model": M1B},
            {"args": [LORA, QUANTISED], "resources_per_node": {"gpus": 2}},
            r"procs_per_node: QLoRA of llama3_2/1B needs one device; set procs_per_node: 1 and gpus: 1",
        ),
        (
            {"model": M1B},
            {"module": "recipe"},
            r"module: tune runs a recipe; give a recipe as script, or give only framework\.model",
        ),
        ({"model": M1B}, {"function": "pass"}, r"function: tune runs a recipe; give a recipe as script"),
    ],
)
def test_unsupported_jobs_are_rejected(framework: dict[str, str], job: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=f"^{message}"):
        Plan({"kind": "torchtune", **framework}, **({"script": None} | job))


def test_qlora_of_the_large_model_can_use_many_devices() -> None:
    plan = tune(M70B, args=[LORA, QUANTISED], resources_per_node={"gpus": 8})
    assert plan.command()[-1] == f"{M70B}_qlora"
