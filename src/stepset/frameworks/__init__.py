"""Creates the `LaunchPlan` of a `TrainingJob`. The package `kinds` has one module for each framework.

The functions of this package perform no I/O. They use neither the clock nor random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

from stepset.errors import BadInputError
from stepset.frameworks.common import uses_agent
from stepset.frameworks.framework_spec import FrameworkSpec
from stepset.frameworks.launcher_flags import check_launcher_flags, launcher_notes
from stepset.frameworks.rank_starters import notes_on_ranks
from stepset.plan.argument_notes import argument_notes
from stepset.plan.dollar_notes import dollar_notes
from stepset.plan.exec_limits import exec_problems
from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob
from stepset.spec.options import KINDS, NodeLaunched
from stepset.spec.parts import HangTimes
from stepset.spec.quantity import format_duration

FRAMEWORKS: Mapping[str, FrameworkSpec] = {
    kind: import_module(f"stepset.frameworks.kinds.{kind}").SPEC for kind in KINDS
}
"""A mapping from the values of `framework.kind` to the descriptions of the frameworks."""


def make_plan(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a job.

    Raises BadInputError if the framework does not support the job. Also raises BadInputError if Linux cannot start a
    process with the job's arguments and variables, or if the command contains a launcher with an option that
    contradicts the job. A command that may not start the ranks of the job gets a note.
    """
    if problems := list(exec_problems(job)):
        raise BadInputError(*problems)
    plan = _planned(job)
    if problems := check_launcher_flags(job, plan):
        raise BadInputError(*problems)
    notes = [*launcher_notes(job, plan), *notes_on_ranks(job, plan), *dollar_notes(job), *argument_notes(job.args)]
    notes += _hang_notes(job) if uses_agent(job) else [_without_agent(job)]
    return replace(plan, notes=(*plan.notes, *notes)) if notes else plan


def _without_agent(job: TrainingJob) -> str:
    why = (
        "as the job requests"
        if job.agent is False
        else f"because {job.command[0] if job.command else ''!r} is not Python"
    )
    return (
        f"agent: off, {why}: the run reports no result, no progress and no cause of a failure, and its pods do not wait"
        " for each other; set agent: true if the image has python3"
    )


def _hang_notes(job: TrainingJob) -> list[str]:
    """Returns a note if the job shortens the time without progress, but not the time before the first step."""
    hang = job.hang_times
    if hang is None or "first" in hang.model_fields_set or hang.after >= HangTimes().after:
        return []
    return [
        f"hang: after: {format_duration(hang.after)} applies only from the first step on, which is a reported step or"
        f" a finished collective; a hang before the first step is reported after first: {format_duration(hang.first)}"
    ]


def _planned(job: TrainingJob) -> LaunchPlan:
    if isinstance(job.framework, NodeLaunched) and job.framework.launch == "command" and job.command is None:
        raise BadInputError(
            "framework.launch: 'command' lets the command of the job start the ranks, and the job has no command; leave"
            " launch out"
        )
    return FRAMEWORKS["mpi" if job.framework.mpirun else job.framework.kind].plan(job)
