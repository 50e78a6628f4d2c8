"""The targets. Each module contains one description with the name `SPEC`, or functions that several targets use."""

from __future__ import annotations

from collections.abc import Mapping

from stepset.targets.kinds import indexed_job, jobset, statefulset, trainjob, volcano
from stepset.targets.target_spec import TargetSpec
from stepset.targets.workload_kinds import WORKLOAD_KINDS

TARGETS: Mapping[str, TargetSpec] = {
    "jobset": jobset.SPEC,
    "trainjob": trainjob.SPEC,
    "statefulset": statefulset.SPEC,
    "job": indexed_job.SPEC,
    "volcano": volcano.SPEC,
}
"""A mapping from the names of the targets to their descriptions."""

if TARGETS.keys() != WORKLOAD_KINDS.keys():
    raise TypeError(f"a target lacks one of its two descriptions: {TARGETS.keys() ^ WORKLOAD_KINDS.keys()}")
