"""A variable that the StatefulSet target sets itself."""

from __future__ import annotations

from tests.odd_jobs import OddJob

ODD_JOB = OddJob(
    job={"env": {"POD_NAME": {"field": "metadata.name"}}},
    expected="The StatefulSet target refuses the name, from which it derives the rank; the others set the variable.",
    source="docs/targets.md (statefulset)",
    refused={"statefulset": "env.POD_NAME: target statefulset sets this variable itself; use another name"},
)
