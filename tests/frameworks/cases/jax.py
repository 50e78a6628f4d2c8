"""The data of JAX."""

from __future__ import annotations

from tests.frameworks.cases.case import MET_BY_TWO, TRAINED_BY_TWO, Form, FrameworkCase, PodRun, Training, no_options

CASE = FrameworkCase(
    forms=(Form("jax", (1, 1, 1, 1, 1)),),  # one process uses all devices of its node
    options=no_options,
    reserved=("JAX_PROCESS_ID",),
    training=Training("jax/train.py", "auto", TRAINED_BY_TWO),
    pods=(PodRun("jax", "jax", "jax/train.py", MET_BY_TWO, job={"procs_per_node": "auto"}),),
)
