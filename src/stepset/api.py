"""The Python API: runs, explains or renders a job, or deletes ended runs, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepset.backends import backend_of
from stepset.backends.base import ClusterOptions, RunListener, RunRequest
from stepset.backends.prune import PruneRule
from stepset.errors import TrainingFailedError
from stepset.frameworks import make_plan
from stepset.plan.explain import ExplainRow, explain_plan
from stepset.run_status import Phase, RunStatus
from stepset.signals import interrupts_deferred
from stepset.sources import read_sources
from stepset.spec import TrainingJob, load_job
from stepset.targets.explained_groups import explained_plan
from stepset.targets.names import PodNames
from stepset.watch.present.sentences import end_sentence

JobSource = TrainingJob | Mapping[str, Any] | str | Path


def run(
    job: JobSource,
    backend: str = "local",
    *,
    name: str | None = None,
    base_dir: Path | None = None,
    listener: RunListener | None = None,
    cluster: ClusterOptions | None = None,
) -> RunStatus:
    """Runs a job and waits until the run is over.

    Args:
        job: a TrainingJob, a mapping with the keys of a job file, or the path of a job file.
        backend: `local`, processes on this machine, or `kubernetes`; default: `local`.
        name: the run's name; default: the job's name with a suffix.
        base_dir: the directory that the job's paths are relative to; default: the job file's directory; for a job that
            is not a file, the current directory.
        listener: an object whose methods stepset calls with each log line and each change of the run's state; default:
            none.
        cluster: the cluster, the namespace, and the timeouts in seconds, for the backend `kubernetes`; default: the
            current context of the kubeconfig.

    Returns:
        The final status; `status.result` is the JSON value that rank 0 wrote to STEPSET_RESULT_FILE, else None.

    Raises:
        BadInputError: the job is not valid, a file is missing, or the cluster rejects the job.
        TrainingFailedError: the run ended without success; `error.status` is its final status.
        InfrastructureError: the cluster cannot be reached, or denies access.
        KeyboardInterrupt: the user pressed Ctrl-C, and the run has ended; a second Ctrl-C kills the run.
    """
    handle = backend_of(backend, cluster).start(request_of(job, name, base_dir), listener)
    try:
        with interrupts_deferred(handle.cancel):
            status = handle.wait()
    except BaseException as error:
        # Ctrl-C ends the run. Any other exception ends a local run, whose processes belong to this process, and leaves
        # a cluster run alone.
        if backend == "local" or not isinstance(error, Exception):
            handle.cancel()
            handle.wait()
        raise
    if status.phase is not Phase.SUCCEEDED:
        raise training_failed(status)
    return status


def training_failed(status: RunStatus) -> TrainingFailedError:
    """Returns the error for a run that ended without success."""
    advice = status.failure.advice if status.failure else ""
    return TrainingFailedError(f"{end_sentence(status)} {advice}".rstrip(), status)


def request_of(job: JobSource, name: str | None, base_dir: Path | None) -> RunRequest:
    """Returns the request to run a job, with its files read; arguments and errors are those of `run`."""
    loaded = load_job(job)
    if base_dir is None and isinstance(job, (str, Path)):
        base_dir = Path(os.path.realpath(job)).parent
    return RunRequest(loaded, read_sources(loaded, base_dir), name=name)


def prune(
    backend: str = "local",
    *,
    older_than: float | None = None,
    failed: bool = False,
    dry_run: bool = False,
    cluster: ClusterOptions | None = None,
) -> list[RunStatus]:
    """Deletes ended runs whose `ttl` is over: their directories, or their objects on a cluster.

    Keeps a checkpoint_dir and other files of the training code, and runs that are not over.

    Args:
        backend: `local` or `kubernetes`; default: `local`.
        older_than: seconds; also deletes runs that ended longer ago than this; default: only those whose ttl is over.
        failed: whether to delete only runs that did not succeed; default: all ended runs.
        dry_run: whether to delete nothing, and only return the runs; default: False.
        cluster: the cluster and the namespace, for the backend `kubernetes`; default: the current context of the
            kubeconfig.

    Returns:
        The runs, the newest first.

    Raises:
        BadInputError: the backend is not known.
        InfrastructureError: the cluster cannot be reached, or denies access.
    """
    return list(backend_of(backend, cluster).prune(PruneRule(older_than, failed), dry_run=dry_run))


def explain(job: JobSource) -> list[ExplainRow]:
    """Returns every variable of every pod and why it is set; needs no cluster and reads only the job file.

    Args:
        job: a TrainingJob, a mapping with the keys of a job file, or the path of a job file.

    Raises:
        BadInputError: the job is not valid.
    """
    loaded = load_job(job)
    plan = explained_plan(loaded, make_plan(loaded))
    return explain_plan(plan, PodNames(plan, loaded.name, loaded.network.subdomain or loaded.name))


def render(
    job: JobSource,
    target: str = "jobset",
    *,
    name: str | None = None,
    namespace: str | None = None,
    base_dir: Path | None = None,
) -> list[dict[str, Any]]:
    """Returns the Kubernetes manifests of a job, in the order in which they must be applied; needs no cluster.

    Args:
        job: a TrainingJob, a mapping with the keys of a job file, or the path of a job file.
        target: jobset, trainjob, statefulset, job or volcano; default: jobset.
        name: the run's name; default: the job's name.
        namespace: the namespace in the manifests; default: none.
        base_dir: the directory that the job's paths are relative to; default: the job file's directory; for a job that
            is not a file, the current directory.

    Returns:
        Plain dicts; two calls with the same job return equal manifests.

    Raises:
        BadInputError: the job is not valid, a file is missing, or a cluster would reject the manifests.
    """
    from stepset.rendering import make_request
    from stepset.targets.render import render as render_request

    request = request_of(job, name, base_dir)
    return render_request(make_request(request.job, request.sources, run=name, namespace=namespace), target)
