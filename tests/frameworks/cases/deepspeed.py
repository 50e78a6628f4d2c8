"""The data of DeepSpeed."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.frameworks.cases.case import ONE_A_NODE, TRAINED_BY_TWO, Form, FrameworkCase, PodRun


def _options(_: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={"launcher": st.sampled_from(["torchrun", "deepspeed", "mpirun"])})


CASE = FrameworkCase(
    forms=(
        Form("deepspeed", (1, 3, 4, 2, 8)),
        Form({"kind": "deepspeed", "launcher": "deepspeed"}, (1, 3, 4, 2, 8), lists_hosts=True),
        Form({"kind": "deepspeed", "launcher": "mpirun"}, (1, 1, 4, 2, 8), lists_hosts=True),
    ),
    options=_options,
    reserved=("STEPSET_JOB",),
    training="tests/training/test_on_torch.py::test_deepspeed_trains_with_zero_under_mpirun",
    pods=(PodRun("zero", {"kind": "deepspeed"}, "deepspeed/train.py", TRAINED_BY_TWO, job=ONE_A_NODE),),
)
