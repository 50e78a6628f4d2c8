"""Creates the RenderRequest of a run from a job, its sources and the agent's file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from stepset.agent import BUILT_FILE
from stepset.frameworks import make_plan
from stepset.sources import Sources
from stepset.spec.job import TrainingJob
from stepset.targets.request import RenderRequest


def make_request(
    job: TrainingJob,
    sources: Sources,
    *,
    run: str | None = None,
    namespace: str | None = None,
    owner: str | None = None,
    attempt: int = 0,
    owned_by: Mapping[str, Any] | None = None,
) -> RenderRequest:
    """Returns the input of a target for one run of a job.

    Args:
        run: the run's name; default: the job's.
        namespace: written into the objects; default: none.
        owner, attempt, owned_by: as in RunRequest.
    """
    run = run or job.name
    return RenderRequest(job, make_plan(job), sources, agent_text(), run, namespace, owner, attempt, owned_by)


@cache
def agent_text() -> str:
    """Returns the text of the agent's built file, which every pod mounts from a ConfigMap."""
    return BUILT_FILE.read_text(encoding="utf-8")
