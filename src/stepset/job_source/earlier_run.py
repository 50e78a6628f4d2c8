"""Implements the arguments `resume` and `fresh` of all interfaces.

With `resume`, a run continues an earlier run. With `fresh`, a run ignores existing checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from stepset.backends.base import Backend, newest_run
from stepset.backends.local import LocalBackend
from stepset.backends.local.checkpoints import FRESH, has_checkpoint
from stepset.backends.local.runs.run_dir import RecordedJob
from stepset.defaults import ENTRIES
from stepset.errors import BadInputError
from stepset.functions.program import called_function
from stepset.html.calls import function_call
from stepset.job_source.merged import MERGED
from stepset.run_status import Phase, RunStatus
from stepset.spec import TrainingJob, parse_job

JOB_FILES = (".yaml", ".yml", ".json")
"""The suffixes of job files."""


def names_file(text: str) -> bool:
    """Returns whether a string is the path of a script or job file. Other strings are names of runs or jobs."""
    return text.lower().endswith((".py", *JOB_FILES))


def fresh_job(job: TrainingJob, now: int) -> TrainingJob:
    """Returns the job for a run that ignores the checkpoints that were written before the time `now`.

    `now` is in nanoseconds since the epoch.
    """
    data = job.to_dict()
    return parse_job({**data, "env": {**data.get("env", {}), FRESH: str(now)}})


def check_switches(resume: object, fresh: object) -> None:
    """Raises BadInputError if one of the arguments is not a bool, such as the path of a checkpoint."""
    for name, value in (("resume", resume), ("fresh", fresh)):
        if not isinstance(value, bool):
            remedy = "; give a directory as checkpoint_dir" if isinstance(value, (str, os.PathLike)) else ""
            raise BadInputError(f"{name}: {value!r} is not True or False{remedy}")


def check_exclusive(resume: bool, fresh: bool, prefix: str = "") -> None:
    """Raises BadInputError if both `resume` and `fresh` are given.

    `prefix` is the prefix of the interface's arguments, such as `--`.
    """
    if resume and fresh:
        raise BadInputError(f"{prefix}fresh: {prefix}resume continues from the checkpoint; leave one of them out")


def earlier_run(backend: Backend, name: str | None, place: str = "resume") -> RunStatus:
    """Returns the run to continue.

    - If `name` is the name of a run, returns this run.
    - If `name` is the name of a job, returns the newest run of this job.
    - If `name` is None, returns the newest of all runs.

    Raises:
        BadInputError: the run has not finished. The message starts with `place`.
        RunNotFoundError: there is no such run.
    """
    run = newest_run(backend, place) if name is None else backend.status(name)
    if not run.phase.final:
        raise BadInputError(f"{place}: run {run.name} is not over: {run.phase.value}; cancel it first")
    return run


def recorded_job(
    backend: Backend, run: RunStatus, place: str = "resume", arguments: str = "", call_arguments: str = "args=..."
) -> RecordedJob:
    """Returns the stored job of an earlier run, for a caller that gives only the name of the run.

    `arguments` is the name that the caller's interface uses for new arguments of the program. The name is empty if the
    caller gives no new arguments. `call_arguments` contains the same arguments in the form of a Python call.

    Raises:
        BadInputError: the run is on a cluster. The message starts with `place`. Also raised if the caller gives new
            arguments for a run of a function, because the stored program already contains the arguments. The message
            then starts with `arguments`.
        InfrastructureError: the stored job cannot be read.
    """
    if not isinstance(backend, LocalBackend):
        raise BadInputError(
            f"{place}: the cluster does not store the job of run {run.name}; give its job file or script, too"
        )
    recorded = backend.recorded_job(run.name)
    if arguments and (program := recorded.content.get("function")):
        call = function_call(called_function(str(program)) or "FUNCTION", run.job, call_arguments)
        raise BadInputError(
            f"{arguments}: run {run.name} called a function, and can continue only with the arguments of that call; to"
            f" change them, call {call} in Python"
        )
    return recorded


def inherited_fields(backend: Backend, run: RunStatus, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of an earlier run of a Python function that a new run of the function inherits.

    The result contains neither the fields of `given`, nor the program and its arguments. The only exceptions are `env`
    and `labels`, to which the entries of `given` are added (`merged`). The result is empty if the earlier run called no
    Python function, and for a run on a cluster, because a cluster does not store the job.

    Raises:
        InfrastructureError: the stored job cannot be read.
    """
    if not isinstance(backend, LocalBackend):
        return {}
    content = backend.recorded_job(run.name).content
    if not called_function(str(content.get("function"))):
        return {}
    replaced = {name for name, value in given.items() if name not in MERGED or not isinstance(value, Mapping)}
    kept = {*ENTRIES, "args", "code", "name", "agent", *replaced}  # the backend has set `agent`
    return {name: value for name, value in content.items() if name not in kept}


@dataclass(frozen=True)
class Start:
    """The first start of a run.

    Args:
        attempt: the value of STEPSET_ATTEMPT.
        continues: the name of the earlier run that the run continues, or "".
        name: the name of the run. If None, the name is derived from the name of the job.
        function_file: the path of the file that defines the job's Python function, or "".
    """

    attempt: int = 0
    continues: str = ""
    name: str | None = None
    function_file: str = ""


def start_after(run: RunStatus) -> Start:
    """Returns the `Start` of a new run that continues `run`."""
    return Start(run.first_attempt + run.attempt + 1, run.name)


def continuation_notes(
    run: RunStatus, job: TrainingJob, *, stored: bool, inherited: Collection[str] = ()
) -> tuple[str, ...]:
    """Returns the notes for a new run of `job`. The new run continues `run`.

    One of the notes states whether the training starts from its beginning.

    Args:
        run: the earlier run.
        stored: whether `job` is the stored job of `run` (`recorded_job`).
        inherited: the names of the fields that `job` has from `run` (`inherited_fields`).
    """
    attempt, succeeded = start_after(run).attempt, run.phase is Phase.SUCCEEDED
    if job.checkpoint_dir is None:
        notes = [
            f"nothing to continue: run {run.name} {'succeeded' if succeeded else 'is over'}, and the job has no"
            f" checkpoint_dir, so the training starts from its beginning, with attempt {attempt}"
        ]
    else:
        notes = [f"continuing run {run.name}, attempt {attempt}, checkpoint_dir {job.checkpoint_dir}"]
    if stored and (function := called_function(job.function or "")):
        edited = function_call(function, job.name)
        notes.append(f"the run calls the stored function {function}; to call an edited function, use {edited}")
    if inherited:
        notes.append(f"fields of run {run.name}: {', '.join(inherited)}")
    if job.checkpoint_dir is None:
        return tuple(notes)
    if succeeded:
        notes.append(f"run {run.name} has already succeeded")
    # For a run on a cluster, it is not known whether there is a checkpoint: the checkpoint_dir is not on this machine.
    if run.backend == "local" and not has_checkpoint(job.checkpoint_dir, job.to_dict().get("env", {})):
        notes.append(f"no checkpoint was found in {job.checkpoint_dir}, so the training starts from its beginning")
    return tuple(notes)
