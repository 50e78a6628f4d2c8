"""The data of torch."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.frameworks.cases.case import ONE_A_NODE, ONE_EPOCH, TRAINED_BY_TWO, Form, FrameworkCase, PodRun


@cache
def _elastic(num_nodes: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "min_nodes": st.integers(1, num_nodes),
            "max_nodes": st.integers(num_nodes, num_nodes + 4),
            "max_restarts": st.integers(0, 9),
            "rdzv_id": st.sampled_from(["a", "b1", "team-a", "x--y"]),
            "rdzv_conf": st.dictionaries(
                st.sampled_from(["read_timeout", "join_timeout", "timeout"]),
                st.one_of(st.integers(1, 900), st.just("60")),
            ),
        },
    ).filter(
        lambda e: (
            len(e.keys() & {"min_nodes", "max_nodes"}) != 1 or num_nodes in (e.get("min_nodes"), e.get("max_nodes"))
        )
    )


@cache
def _options(num_nodes: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"elastic": _elastic(num_nodes)}),
        st.fixed_dictionaries({}, optional={"env_layer": st.sampled_from(["launcher", "both"])}),
        st.fixed_dictionaries(
            {"launcher": st.just("none")}, optional={"env_layer": st.sampled_from(["worker", "both"])}
        ),
    )


CASE = FrameworkCase(
    forms=(Form("torch", (1, 3, 4, 2, 8)), Form({"kind": "torch", "launcher": "none"}, (1, 3, 4, 2, 8))),
    options=_options,
    reserved=("PET_NNODES", "PET_MASTER_PORT"),
    training="tests/training/test_on_torch.py::test_torch_fsdp_shards_over_all_ranks",
    pods=(
        PodRun("torch", "torch", "torch/train.py", target="trainjob", job=ONE_EPOCH),
        PodRun(  # torchrun is put before the command
            "torch-command",
            "torch",
            "torch/train.py",
            TRAINED_BY_TWO,
            job={"script": None, "command": ["env", "A=1", "python3", "speaking.py"], **ONE_EPOCH, **ONE_A_NODE},
        ),
    ),
)
