"""Reads the job from the arguments of a call of the Python API. Keyword arguments change fields of the job."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Any

from stepset.backends import backend_of
from stepset.backends.base import Backend, ClusterOptions, RunRequest
from stepset.backends.local.runs.run_dir import RecordedJob
from stepset.errors import BadInputError
from stepset.functions.source import function_file
from stepset.job_source.checkpoint_dir import absolute_in, parse_job_in
from stepset.job_source.earlier_run import (
    check_exclusive,
    check_switches,
    continuation_notes,
    earlier_run,
    fresh_job,
    inherited_fields,
    names_file,
    recorded_job,
    start_after,
)
from stepset.job_source.function_job import arguments_of, function_fields, included_names
from stepset.job_source.merged import merged
from stepset.job_source.origin import check_origin
from stepset.job_source.unshipped import unshipped_notes
from stepset.safe_names import slug
from stepset.sources import absolute, read_sources
from stepset.spec import TrainingJob, parse_job
from stepset.spec.base import nearest
from stepset.spec.job import PARTS
from stepset.spec.load import read_job_file
from stepset.spec.misplaced import hint_elsewhere
from stepset.spec.scalars import as_text

JobSource = TrainingJob | Mapping[str, Any] | str | Path | Callable[..., Any]

PARAMETERS = frozenset({"backend", "run_name", "base_dir", "listener", "cluster", "resume", "fresh"})
"""The parameters of the API's functions that are not fields of a job file."""
_SCRIPT = ".py"
_CLUSTER_OPTIONS = frozenset({field.name for field in dataclass_fields(ClusterOptions)})
_MAX_SHOWN = 40
"""The maximum number of characters of a value in an error message."""
_log = logging.getLogger(__name__)


def request_of(
    job: JobSource,
    run_name: str | None = None,
    base_dir: str | Path | None = None,
    fields: Mapping[str, Any] | None = None,
) -> RunRequest:
    """Reads the files of a job and returns the request to render the job.

    `stepset.run` describes the arguments and errors.
    """
    fields = fields or {}
    loaded = job_of(job, fields, base_dir)
    request = RunRequest(loaded, read_sources(loaded, _base_of(job, base_dir)), name=run_name)
    if not callable(job):
        return request
    own_path = "code" in fields or "PYTHONPATH" in loaded.env
    notes = () if own_path else unshipped_notes(job, included_names(fields))
    return replace(request, function_file=function_file(job), notes=notes)


@dataclass(frozen=True)
class RunArguments:
    """The arguments of `stepset.run` and `stepset.submit` that determine what to run."""

    job: JobSource | None
    backend: str
    run_name: str | None
    base_dir: str | Path | None
    cluster: ClusterOptions | None
    resume: bool
    fresh: bool
    fields: Mapping[str, Any]


def run_request(given: RunArguments, *, shows_notes: bool = False) -> RunRequest:
    """Returns the request to run a job on a backend. `stepset.run` describes the errors.

    Logs two kinds of notes as warnings: notes about an earlier run, and notes about modules that are not shipped. If
    `shows_notes` states that the caller shows the run's notes, logs no notes.

    For a run on a cluster, the notes of the request also list some environment variables. This process has these
    variables, but the pods do not get them.
    """
    check_switches(given.resume, given.fresh)
    check_exclusive(given.resume, given.fresh)
    _check_names(given.job, given.fields, accepts_cluster=True)
    if given.resume:
        request = _resumed(given)
    elif given.job is None and not given.fields:
        raise BadInputError(
            "job: missing; give a function, the path of a script or of a job file, a TrainingJob, or a field such as"
            " module='trainer.main'"
        )
    else:
        job = {} if given.job is None else given.job
        request = request_of(job, given.run_name, given.base_dir, given.fields)
    if given.fresh:
        request = replace(request, job=fresh_job(request.job, time.time_ns()))
    for note in () if shows_notes else request.notes:
        _log.warning("stepset: %s", note)
    if given.backend != "kubernetes":
        return request
    from stepset.backends.kubernetes.submit.shell_variables import unpassed_variables

    return replace(request, notes=(*request.notes, *unpassed_variables(request.job, os.environ, "python")))


def _resumed(given: RunArguments) -> RunRequest:
    """Returns the request to continue an earlier run. Here, `given.job` can also be the name of a run or of a job."""
    backend = backend_of(given.backend, given.cluster)
    stored, inherited = False, dict[str, Any]()
    if given.job is None or (isinstance(given.job, str) and not names_file(given.job)):
        stored = True
        run = earlier_run(backend, given.job)
        args = given.fields.get("args")
        recorded = recorded_job(backend, run, arguments="args" if args else "", call_arguments=f"args={args!r}")
        base_dir = recorded.base_dir if given.base_dir is None else given.base_dir
        request = request_of(recorded.content, given.run_name, base_dir, given.fields)
        request = replace(request, function_file=recorded.function_file)
        origin: tuple[str, ...] = ()
    else:
        if isinstance(given.job, FunctionType) and "args" not in given.fields:
            _check_arguments(backend, given.job, given.fields.get("name"))
        request = request_of(given.job, given.run_name, given.base_dir, given.fields)
        run = earlier_run(backend, request.job.name)
        named = "name" in given.fields or not (callable(given.job) or is_script(given.job))
        program = RecordedJob(request.job.to_dict(), request.sources.base_dir, request.function_file)
        origin = check_origin(backend, run, program, named=named)
        if callable(given.job) and (inherited := inherited_fields(backend, run, given.fields)):
            fields = merged(inherited, given.fields)
            request = request_of(given.job, given.run_name, given.base_dir, fields)
    start = start_after(run)
    notes = (*continuation_notes(run, request.job, stored=stored, inherited=inherited), *origin)
    return replace(request, attempt=start.attempt, continues=start.continues, notes=(*notes, *request.notes))


def _check_arguments(backend: Backend, function: FunctionType, name: str | None) -> None:
    """Raises BadInputError if a function that continues a run needs arguments, because `args` was not given.

    `name` is the name of the job, or None for the name of the function.
    """
    try:
        arguments_of(function, ())
    except BadInputError as error:
        run = earlier_run(backend, name or slug(function.__name__))
        raise BadInputError(
            f"{error}; a function does not inherit args from the earlier run, so give args, too; run {run.name} is"
            f" {run.program}"
        ) from error


def job_of(job: JobSource, fields: Mapping[str, Any], base_dir: str | Path | None = None) -> TrainingJob:
    """Converts the `job` argument of a call to a TrainingJob. The keyword arguments `fields` change fields of the job.

    Raises:
        BadInputError: a field is unknown, the function cannot be used, or the job is invalid.
    """
    _check_names(job, fields)
    base = absolute(_base_of(job, base_dir) or Path())
    checkpoints = fields.get("checkpoint_dir")
    if isinstance(checkpoints, (str, os.PathLike)) and checkpoints != "":  # TrainingJob rejects an empty string
        fields = {**fields, "checkpoint_dir": absolute_in(base, checkpoints)}
    if isinstance(labels := fields.get("labels"), Mapping):
        fields = {**fields, "labels": {key: as_text(value) for key, value in labels.items()}}
    if callable(job):
        return parse_job(function_fields(job, merged({}, fields), _base_of(job, base_dir)))
    if is_script(job):
        return parse_job(merged({"script": str(job)}, fields))
    if isinstance(job, TrainingJob):
        return parse_job(merged(job.to_dict(), fields)) if fields else job
    if isinstance(job, Mapping):
        return parse_job_in(base, merged(job, fields))
    return parse_job_in(base, merged(read_job_file(job), fields), where=str(job))


def _base_of(job: JobSource, base_dir: str | Path | None) -> Path | None:
    """Returns the directory that relative paths of the job start from, or None for the current directory."""
    if base_dir is None and isinstance(job, (str, Path)) and not is_script(job):
        return Path(os.path.realpath(job)).parent
    return None if base_dir is None else Path(base_dir)


def is_script(job: object) -> bool:
    """Returns whether `job` is the path of a script. The command line also uses this function."""
    return isinstance(job, (str, Path)) and str(job).lower().endswith(_SCRIPT)


def _check_names(job: JobSource | None, fields: Mapping[str, Any], *, accepts_cluster: bool = False) -> None:
    """Raises BadInputError for unknown fields. `accepts_cluster` is whether the caller has the parameter `cluster`."""
    known = {*TrainingJob.model_fields, *PARAMETERS, *(["include"] if callable(job) else [])}
    if unknown := [name for name in fields if name not in known]:
        raise BadInputError(*(_unknown(name, fields[name], job, known, accepts_cluster) for name in unknown))


def _unknown(name: str, value: object, job: JobSource | None, known: set[str], accepts_cluster: bool) -> str:
    if isinstance(job, FunctionType) and name in signature(job).parameters:
        return f"{name} is a parameter of {job.__name__}; pass args={{{name!r}: ...}}"  # the value may be secret
    if accepts_cluster and name in _CLUSTER_OPTIONS:
        return f"unknown argument {name!r}; pass cluster=stepset.ClusterOptions({name}={_shown(value)})"
    return f"unknown argument {name!r}; {hint_elsewhere(name, PARTS, options=False) or nearest(name, known)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN and "\n" not in text else "..."
