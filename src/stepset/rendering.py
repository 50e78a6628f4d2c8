"""Creates the `RenderRequest` of a run, and renders the request as the manifests of a target."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from stepset.agent import BUILT_FILE
from stepset.frameworks import make_plan
from stepset.requirements import PROGRAM_FILE
from stepset.sources import Sources
from stepset.spec.job import TrainingJob
from stepset.targets.kinds import TARGETS
from stepset.targets.request import RenderRequest
from stepset.targets.validation.preflight import check_request, check_sizes


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
    """Returns the `RenderRequest` of one run of a job, which contains the plan and the agent's source code.

    Args:
        run: the name of the run. Default: the name of the job.
        namespace: the namespace in the objects. Default: the objects contain no namespace.
        owner, attempt, owned_by: the values of the fields of the same names in `RunRequest`.

    Raises:
        BadInputError: the sources cannot be shipped.
    """
    sources.check_shippable()
    run = run or job.name
    installer = PROGRAM_FILE.read_text(encoding="utf-8") if sources.requirements else ""
    plan = make_plan(job)
    return RenderRequest(job, plan, sources, agent_text(), run, namespace, owner, attempt, owned_by, installer)


@cache
def agent_text() -> str:
    """Returns the content of the agent's Python file. The pods mount this file from a ConfigMap."""
    return BUILT_FILE.read_text(encoding="utf-8")


def render(request: RenderRequest, target: str = "jobset") -> list[dict[str, Any]]:
    """Returns the manifests of a run, in the order in which they must be applied.

    Equal requests result in equal manifests. Raises BadInputError if the target is unknown, or if a cluster would
    reject the job.
    """
    check_request(request, target)
    objects = TARGETS[target].render(request)
    check_sizes(objects)
    return objects
