"""Counts how often the training code of a step has been started.

The number of starts is 1 plus the sum of three numbers:

- The number of restarts of the run. JobSet counts these restarts, and stores the number in an annotation of the pods.
- The number of times that a step has resumed the run. The step stores this number in an annotation of the pods.
- The number of starts of earlier runs that the run has replaced. The step stores this number in the request.

The agent reads the three numbers in the pods and computes the sum (docs/design/agent.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepset.backends.base import RunRequest
from stepset.spec.environ import EnvField
from stepset.unstructured import number, part

EARLIER_STARTS = "kfp.stepset.dev/earlier-starts"
"""An annotation of a run that has replaced earlier runs. The value is the number of starts of the earlier runs."""
RESUMES = "kfp.stepset.dev/resumes"
"""An annotation of a JobSet and of the pods. The value is the number of times that a step has resumed the JobSet."""
_VARIABLE = "STEPSET_RESUMES"


@dataclass(frozen=True)
class Starts:
    """The number of times that the training code of a step has been started.

    Args:
        earlier: the number of starts of the earlier runs that the current run has replaced.
        restarts: the number of times that the cluster has restarted all pods of the current run.
        resumes: the number of times that a step has resumed the current run.

    >>> Starts(earlier=2, restarts=1, resumes=0).total
    4
    """

    earlier: int
    restarts: int
    resumes: int

    @property
    def total(self) -> int:
        """The number of all starts, including the first start of the current run."""
        return self.earlier + self.restarts + self.resumes + 1


def starts_of(workload: Mapping[str, Any], restarts: int) -> Starts:
    """Returns the number of starts of an existing run.

    `restarts` is the number of times that the cluster has restarted the run. Users can change annotations. Therefore
    the function reads an annotation with an invalid value as 0.
    """
    annotations = part(workload, "metadata", "annotations")
    return Starts(max(number(annotations, EARLIER_STARTS), 0), restarts, max(number(annotations, RESUMES), 0))


def with_counted_resumes(request: RunRequest) -> RunRequest:
    """Adds an environment variable to a request. From this variable, the agent reads the number of resumptions."""
    env = {**request.job.env, _VARIABLE: EnvField(field=f"metadata.annotations['{RESUMES}']")}
    return replace(request, job=request.job.model_copy(update={"env": env}))


def with_earlier_starts(request: RunRequest, earlier: int) -> RunRequest:
    """Returns the request for a run that replaces earlier runs, which were started `earlier` times."""
    if not earlier:
        return request
    annotations = {**request.job.annotations, EARLIER_STARTS: str(earlier)}
    return replace(request, attempt=earlier, job=request.job.model_copy(update={"annotations": annotations}))
