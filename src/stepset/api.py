"""The Python API for jobs: runs, submits, explains and renders a job, and deletes expired runs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepset.backends import backend_of
from stepset.backends.base import ClusterOptions, RunListener
from stepset.backends.durations import argument_seconds
from stepset.backends.prune import PruneRule
from stepset.backends.unattended import check_submitted
from stepset.backends.user_listener import user_listener
from stepset.defaults import TARGET
from stepset.errors import explain_interrupt
from stepset.frameworks import make_plan
from stepset.job_source.call_signature import lists_job_fields
from stepset.job_source.request import JobSource as JobSource
from stepset.job_source.request import RunArguments, job_of, request_of, run_request
from stepset.notebook.display import display_of_kernel
from stepset.notebook.outcome import succeeded
from stepset.notebook.results import ExplainRows, RunList
from stepset.plan.explain import ExplainRow, explain_plan
from stepset.run_status import RunStatus
from stepset.runs import Run, resumed
from stepset.signals import interrupts_deferred
from stepset.targets.explained_groups import explained_plan
from stepset.targets.names import PodNames
from stepset.watch.present.sentences import end_sentence

_log = logging.getLogger(__name__)
__tracebackhide__ = True
"""Makes pytest omit the frames of this module, so that a failed test shows the line of the test."""


@lists_job_fields
def run(
    job: JobSource | Run | RunStatus | None = None,
    backend: str = "local",
    *,
    run_name: str | None = None,
    base_dir: str | Path | None = None,
    listener: RunListener | None = None,
    cluster: ClusterOptions | None = None,
    resume: bool = False,
    fresh: bool = False,
    **fields: Any,
) -> RunStatus:
    """Runs a job and waits until the run has finished.

    In a notebook, the cell shows the log lines and a table of the ranks, unless `listener` is given.

    Args:
        job: the job to run. `job` can be a function, the path of a Python script (`.py`), the path of a job file, a
            mapping with the keys of a job file, or a TrainingJob. A function must return JSON data. The value that
            rank 0 returns is the result of the run. If the function can be imported from a module, the files of the
            module are sent to the ranks. If the function cannot be imported, its source text is sent, together with
            the modules that the function imports from its own directory. If the field `code` names a directory, the
            files of this directory are sent instead. If `resume` is True, `job` can also be a `Run`, a RunStatus, the
            name of a run, or the name of a job. If `resume` is True and `job` is omitted, the last run is continued.
            Otherwise, if `job` is omitted, `fields` contain the program, such as `module="trainer.main"`.
        backend: where the ranks run. `local` starts processes on this machine, and `kubernetes` starts pods on a
            cluster. Default: `local`.
        run_name: the name of the run. Default: the name of the job with a suffix.
        base_dir: the base directory for relative paths in the job. Default: the directory of the job file, or the
            current directory if the job is not a job file. If `job` is the name of a run, the default is the directory
            of that run's job.
        listener: an object that receives each log line and each change of the run's state. Default: none.
        cluster: the cluster, the namespace and the timeouts, for the backend `kubernetes`. Default: the current
            context of the kubeconfig.
        resume: whether to continue an earlier run. If `job` is the name of a run, this run is continued. Otherwise the
            newest run of the job is continued. The new run uses the checkpoint_dir of the job and the next value of
            STEPSET_ATTEMPT. If `job` is a function, the new run also uses the fields of the earlier local run that are
            not given, except `args` and `code`. With the backend `kubernetes`, `job` must be the job and not a name,
            because a cluster does not store jobs.
        fresh: whether to ignore the existing checkpoints. The existing checkpoints are not deleted. STEPSET_RESUME_FROM
            is set only after the run has written a checkpoint and is restarted.
        fields: fields of a job file (docs/job-file.md), such as `num_nodes=2` or `name="fit"`. These fields replace the
            fields of the job. Entries of `env` and `labels` are added to the entries of the job, and the value None
            removes an entry. If the job is a function, the field `args` is a list of positional arguments or a mapping
            of keyword arguments. The arguments must be JSON data. `include` is a list of functions, classes and names
            of constants that are defined beside the function, and that are shipped with its source.

    Returns:
        The final status. `status.result` is the JSON value that rank 0 wrote to STEPSET_RESULT_FILE, or None if rank 0
        wrote no value.

    Raises:
        BadInputError: the job is not valid, a file is missing, the function cannot be sent to the ranks, an argument is
            unknown, the run that `resume` continues has not finished, or the cluster rejects the job.
        RunNotFoundError: the run that `resume` continues does not exist.
        TrainingFailedError: the run did not succeed. `error.status` is its final status.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
        KeyboardInterrupt: the user pressed Ctrl-C or interrupted the cell. The run has stopped before this error is
            raised. A second Ctrl-C kills the run.
    """
    if isinstance(job, (Run, RunStatus)):
        job, backend, cluster = resumed(job, backend, cluster, resume)
    opened = backend_of(backend, cluster)
    listener = user_listener(listener)
    display = display_of_kernel() if listener is None else None
    given = RunArguments(job, backend, run_name, base_dir, cluster, resume, fresh, fields)
    request = run_request(given, shows_notes=display is not None)
    handle = opened.start(request, listener if display is None else display)
    try:
        with interrupts_deferred(handle.cancel):
            status = handle.wait() if display is None else display.show_until_over(handle)
    except BaseException as error:
        # Ctrl-C stops every run. Any other exception stops only a local run, because the processes of a local run
        # belong to this process. A run on a cluster continues.
        if backend == "local" or not isinstance(error, Exception):
            handle.cancel()
            explain_interrupt(error, end_sentence(handle.wait()))
        raise
    return succeeded(status, shown=display is not None)


@lists_job_fields
def submit(
    job: JobSource | Run | RunStatus | None = None,
    backend: str = "local",
    *,
    run_name: str | None = None,
    base_dir: str | Path | None = None,
    cluster: ClusterOptions | None = None,
    resume: bool = False,
    fresh: bool = False,
    **fields: Any,
) -> Run:
    """Starts a run and returns at once. The run continues after this process exits.

    Args:
        job, backend, run_name, base_dir, resume, fresh, fields: the same arguments as those of `run`.
        cluster: the cluster, the namespace and the kind of workload, for the backend `kubernetes`. Default: the current
            context of the kubeconfig.

    Returns:
        A `Run`, which reads, waits for and cancels the run.

    Raises:
        BadInputError: `run` would raise this error for the same arguments. `submit` also raises this error if `cluster`
            contains a timeout or `sources`, because no process follows the run.
        RunNotFoundError: the run that `resume` continues does not exist.
        InfrastructureError: the run cannot be started, the cluster cannot be reached, or the cluster denies access.
    """
    if isinstance(job, (Run, RunStatus)):
        job, backend, cluster = resumed(job, backend, cluster, resume)
    opened = backend_of(backend, cluster)
    check_submitted(cluster)
    request = run_request(RunArguments(job, backend, run_name, base_dir, cluster, resume, fresh, fields))
    name = opened.submit(request).name
    if backend != "kubernetes":
        return Run(name, backend)
    # The handle looks up only runs of this kind. Therefore the account needs no permissions for the other kinds.
    options = cluster or ClusterOptions()
    return Run(name, backend, replace(options, target=options.target or TARGET))


def prune(
    backend: str = "local",
    *,
    older_than: float | str | None = None,
    failed: bool = False,
    dry_run: bool = False,
    cluster: ClusterOptions | None = None,
) -> RunList:
    """Deletes finished runs whose `ttl` has expired.

    For a local run, this deletes the directory of the run. On a cluster, this deletes the Kubernetes objects of the
    run. Runs that have not finished are not deleted. The checkpoint_dir and other files that the training code has
    written are not deleted.

    Args:
        backend: `local` or `kubernetes`. Default: `local`.
        older_than: a number of seconds, or a duration such as `7d`. Runs that finished longer ago are deleted, even if
            their ttl has not expired. Default: only runs whose ttl has expired are deleted.
        failed: whether to delete only runs that did not succeed. Default: False.
        dry_run: whether to return the runs without deleting them. Default: False.
        cluster: the cluster and the namespace, for the backend `kubernetes`. Default: the current context of the
            kubeconfig.

    Returns:
        The deleted runs, the newest first.

    Raises:
        BadInputError: the backend is unknown.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
    """
    rule = PruneRule(argument_seconds("older_than", older_than), failed)
    return RunList(backend_of(backend, cluster).prune(rule, dry_run=dry_run))


def explain(job: JobSource, **fields: Any) -> list[ExplainRow]:
    """Returns every environment variable of every pod of a job, and the reason for its value.

    Terminals and notebooks show the list as a table. The function needs no cluster and does not read the script of the
    job.

    Args:
        job, fields: the same arguments as those of `run`.

    Raises:
        BadInputError: the job is not valid.
    """
    loaded = job_of(job, fields)
    plan = explained_plan(loaded, make_plan(loaded))
    return ExplainRows(explain_plan(plan, PodNames(plan, loaded.name, loaded.network.subdomain or loaded.name)))


def render(
    job: JobSource,
    target: str = "jobset",
    *,
    run_name: str | None = None,
    namespace: str | None = None,
    base_dir: str | Path | None = None,
    **fields: Any,
) -> list[dict[str, Any]]:
    """Returns the Kubernetes manifests of a job. Needs no cluster.

    The notes that a run on a cluster would have are logged as warnings, for example if `checkpoint_dir` is not on a
    volume.

    Args:
        job, base_dir, fields: the same arguments as those of `run`.
        target: the kind of workload: jobset, trainjob, statefulset, job or volcano. Default: jobset.
        run_name: the name of the run. Default: the name of the job.
        namespace: the namespace in the manifests. Default: the manifests contain no namespace.

    Returns:
        The manifests as dicts, in the order in which they must be applied. Two calls with the same job return equal
        manifests.

    Raises:
        BadInputError: the job is not valid, a file is missing, or a cluster would reject the manifests.
    """
    from stepset.rendering import make_request
    from stepset.rendering import render as render_request
    from stepset.targets.notes import cluster_notes

    request = request_of(job, run_name, base_dir, fields)
    rendered = make_request(request.job, request.sources, run=run_name, namespace=namespace)
    objects = render_request(rendered, target)
    for note in (*request.notes, *rendered.plan.notes, *request.sources.notes, *cluster_notes(request.job)):
        _log.warning("stepset: %s", note)
    return objects
