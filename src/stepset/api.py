"""The Python API: runs, explains or renders a job in one call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepset.backends import backend_of
from stepset.backends.base import ClusterOptions, RunListener, RunRequest
from stepset.errors import ExitCode, StepsetError
from stepset.frameworks import make_plan
from stepset.plan.explain import ExplainRow, explain_plan
from stepset.signals import interrupts_deferred
from stepset.sources import read_sources
from stepset.spec import TrainingJob, load_job
from stepset.targets.names import PodNames
from stepset.watch.present.sentences import end_sentence
from stepset.watch.state import Failure, Phase, RunStatus

JobSource = TrainingJob | Mapping[str, Any] | str | Path


class TrainingFailedError(StepsetError):
    """The run is over and did not succeed.

    Args:
        status: its final status; `status.failure` states the reason.
    """

    def __init__(self, status: RunStatus) -> None:
        self.status = status
        self.failure: Failure | None = status.failure
        self.exit_code: ExitCode = status.exit_code
        super().__init__(f"{end_sentence(status)} {status.failure.advice if status.failure else ''}".rstrip())


def run(
    job: JobSource,
    backend: str = "local",
    *,
    name: str | None = None,
    base_dir: Path | None = None,
    listener: RunListener | None = None,
    cluster: ClusterOptions | None = None,
) -> RunStatus:
    """Runs a job to its end.

    Args:
        job: a TrainingJob, a mapping, or the path of a job file.
        backend: where it runs: `local`, as processes on this machine, or `kubernetes`.
        name: the run's name; default: derived from the job's.
        base_dir: what the job's paths are relative to; default: the job file's directory, else the current one.
        listener: is called with every line and every state.
        cluster: which cluster, for `kubernetes`; default: that of the kubeconfig's current context.

    Returns:
        The final status; `status.result` is what rank 0 wrote to STEPSET_RESULT_FILE.

    Raises:
        BadInputError: the job cannot be run as requested.
        TrainingFailedError: it ran and failed.
        InfrastructureError: the cluster cannot be reached, or denies access.
        KeyboardInterrupt: Ctrl-C stopped the run (a second one kills it); it has ended by then.
    """
    handle = backend_of(backend, cluster).start(request_of(job, name, base_dir), listener)
    try:
        with interrupts_deferred(handle.cancel):
            status = handle.wait()
    except BaseException:
        # Ctrl-C, or a listener that failed: the run must not outlive this call.
        handle.cancel()
        handle.wait()
        raise
    if status.phase is not Phase.SUCCEEDED:
        raise TrainingFailedError(status)
    return status


def request_of(job: JobSource, name: str | None, base_dir: Path | None) -> RunRequest:
    """Returns the request to run a job, with its files read; arguments and errors are those of `run`."""
    loaded = load_job(job)
    if base_dir is None and isinstance(job, (str, Path)):
        base_dir = Path(job).resolve().parent
    return RunRequest(loaded, read_sources(loaded, base_dir), name=name)


def explain(job: JobSource) -> list[ExplainRow]:
    """Returns every variable of every pod with its rule; needs no cluster and reads nothing but the job file.

    Args:
        job: a TrainingJob, a mapping, or the path of a job file.

    Raises:
        BadInputError: the job is not valid.
    """
    loaded = load_job(job)
    plan = make_plan(loaded)
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
        job: a TrainingJob, a mapping, or the path of a job file.
        target: jobset, trainjob, statefulset, job or volcano.
        name: the run's name; default: the job's.
        namespace: written into the manifests; default: none.
        base_dir: what the job's paths are relative to; default: the job file's directory, else the current one.

    Returns:
        Plain dicts, the same for the same job.

    Raises:
        BadInputError: the job is not valid, or a cluster would refuse it.
    """
    from stepset.rendering import make_request
    from stepset.targets.render import render as render_request

    asked = request_of(job, name, base_dir)
    return render_request(make_request(asked.job, asked.sources, run=name, namespace=namespace), target)
