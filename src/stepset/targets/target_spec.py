"""The description of a target: what every part of stepset must know to render and check the runs of the target.

Each module of the package `kinds` contains one description, with the name `SPEC`. No field has a default value.
Therefore a target cannot be defined without its limits, for example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.targets.request import RenderRequest


@dataclass(frozen=True, kw_only=True)
class TargetSpec:
    """The description of a target. `workload_kinds.py` describes how an API server stores its workloads.

    Args:
        render: returns the manifests of a run, in the order in which they must be applied.
        problems: yields one line for each feature of a job that the target does not support, and for each value that
            its controller would refuse.
        name_budget: returns the maximum length of a run's name. The name is a part of the host names of the pods, which
            have at most 63 characters.
        max_pods: the maximum number of pods of a group. None if there is no limit.
        reserved_env: matches the environment variables that the target or its controller sets.
        own_fields: the fields of the job file that only some targets have. A target without the field refuses a job
            that sets the field.
        manifest_fields: the fields of the workload that contain the value of a field of the job file: regular
            expressions for paths in the manifest, and for each, the path in the job file. `submit/field_map.py`
            contains the fields that several targets have.
    """

    render: Callable[[RenderRequest], list[dict[str, Any]]]
    problems: Callable[[TrainingJob, LaunchPlan], Iterator[str]]
    name_budget: Callable[[LaunchPlan], int]
    max_pods: int | None
    reserved_env: re.Pattern[str]
    own_fields: tuple[str, ...]
    manifest_fields: Mapping[str, str]
