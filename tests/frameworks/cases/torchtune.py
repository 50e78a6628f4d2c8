"""The data of TorchTune."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.frameworks.cases.case import ONE_A_NODE, TRAINED_BY_TWO, Form, FrameworkCase, PodRun


def _options(num_nodes: int) -> st.SearchStrategy[dict[str, Any]]:
    models = ["llama3_3/70B"] if num_nodes > 1 else ["llama3_2/1B", "qwen2_5/1.5B", "llama3_3/70B"]
    return st.one_of(
        st.fixed_dictionaries({"model": st.sampled_from(models)}),
        st.just({"recipe": "full_finetune_distributed", "config": "my.yaml"}),
    )


CASE = FrameworkCase(
    forms=(Form({"kind": "torchtune", "model": "llama3_3/70B"}, (1, 3, 4, 2, 8)),),
    options=_options,
    reserved=("PET_NNODES", "PET_MASTER_PORT"),
    training="tests/training/test_on_torch.py::test_torchtune_runs_a_recipe_of_the_users",
    pods=(
        PodRun(
            "torchtune",
            {"kind": "torchtune", "recipe": "speaking.py", "config": "torchtune/config.yaml"},
            "torchtune/recipe.py",
            TRAINED_BY_TWO,
            job={"script": None, "args": ["steps=10"], **ONE_A_NODE},
            source_kind="node",
        ),
    ),
)
