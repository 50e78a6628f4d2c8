"""The data of plain commands."""

from __future__ import annotations

from tests.frameworks.cases.case import Form, FrameworkCase, no_options

CASE = FrameworkCase(
    forms=(Form("plain", (1, 1, 1, 2, 8)),),
    options=no_options,
    reserved=("STEPSET_RUN",),
    training="tests/training/test_frameworks.py::test_a_plain_command_runs_in_every_pod",
    pods=(),
)
