"""The data of MLX."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.frameworks.cases.case import TRAINED, Form, FrameworkCase, PodRun, Training


def _options(_: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={"backend": st.sampled_from(["ring", "mpi"])})


CASE = FrameworkCase(
    forms=(
        Form("mlx", (1, 1, 4, 2, 8), lists_hosts=True),
        Form({"kind": "mlx", "backend": "mpi"}, (1, 1, 4, 2, 8), lists_hosts=True),
    ),
    options=_options,
    reserved=("MLX_RANK",),
    training=Training("mlx/train.py", 2, TRAINED),
    pods=(PodRun("mlx", "mlx", "mlx/train.py", target="job"),),
)
