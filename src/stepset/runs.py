"""The Python API for existing runs: reads, follows, stops and deletes runs by name."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import stepset.html.status  # noqa: F401  # registers the text and the HTML of RunStatus
from stepset.backends import backend_of
from stepset.backends.base import Backend, ClusterOptions, LogSelection, request_stop, runs_of_job
from stepset.backends.durations import argument_seconds
from stepset.errors import BadInputError, StepsetError, explain_interrupt
from stepset.html.calls import continues_sentence
from stepset.html.card import card, cell
from stepset.html.escaped import escaped
from stepset.log_sources import check_sources, sources_of
from stepset.notebook.display import NotebookDisplay, display_of_kernel
from stepset.notebook.outcome import succeeded
from stepset.notebook.results import Diagnosis, LogLines, RunList, Stacks
from stepset.run_filter import RunFilter, phases_of, reasons_of, several
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import line_of

Ranks = int | str | Iterable[int | str]
SeveralRuns = list[Any] | tuple[Any, ...] | RunList
__tracebackhide__ = True
"""Makes pytest omit the frames of this module, so that a failed test shows the line of the test."""


def status(name: str | Run | RunStatus, backend: str = "local", *, cluster: ClusterOptions | None = None) -> RunStatus:
    """Returns the current status of a run.

    Args:
        name: the name of a run, or the name of a job. For a job, the newest run is used. `name` can also be a `Run` or
            a RunStatus. Then `backend` is ignored, and the default of `cluster` is the cluster of the `Run`.
        backend: `local` or `kubernetes`. Default: `local`.
        cluster: the cluster and the namespace, for the backend `kubernetes`. Default: the current context of the
            kubeconfig.

    Raises:
        BadInputError: the backend is unknown.
        RunNotFoundError: no run has this name.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
    """
    name, backend, cluster = located(name, backend, cluster)
    return backend_of(backend, cluster, read_only=True).status(name)


def logs(
    name: str | Run | RunStatus,
    backend: str = "local",
    *,
    follow: bool = False,
    ranks: Ranks | None = None,
    tail: int | None = None,
    since: float | str | None = None,
    previous: bool = False,
    cluster: ClusterOptions | None = None,
) -> LogLines:
    """Returns an iterator over the log lines of a run.

    If the iterator is the value of a notebook cell, the notebook shows the existing lines. `print` prints these lines.

    Args:
        name, backend, cluster: the same arguments as those of `status`.
        follow: whether to yield new lines until the run has finished. Default: False, only the existing lines.
        ranks: the ranks whose lines are yielded. The value can be a number, a string such as `0,2-3,launcher`, or a
            list of numbers and strings. Default: all ranks.
        tail: the number of existing lines to yield, counted from the end. Default: all lines.
        since: a number of seconds, or a duration such as `10m`. Only lines that were printed since then are yielded.
            Default: all lines.
        previous: whether to yield only the lines of the attempt before the last restart. Default: False.

    Raises:
        BadInputError: an argument is not valid, or there is no previous attempt.
        RunNotFoundError: no run has this name.
        InfrastructureError: some lines cannot be read. The iterator yields the other lines first.
    """
    name, backend, cluster = located(name, backend, cluster)
    seconds = argument_seconds("since", since)
    chosen = log_selection(follow=follow, ranks=ranks, tail=tail, since=seconds, previous=previous)
    opened = backend_of(backend, cluster, read_only=True)
    if chosen.sources is not None:
        check_sources(chosen.sources, opened.status(name), "ranks")
    existing = replace(chosen, follow=False)
    interrupted = continues_sentence(name, backend) if follow else ""

    def shown() -> tuple[str, Iterator[LogLine]]:
        return opened.status(name).name, _lines(opened, name, existing)

    return LogLines(name, _lines(opened, name, chosen), shown, interrupted)


def list_runs(
    backend: str = "local",
    *,
    job: str | Sequence[str] = (),
    phase: str | Sequence[str] = (),
    reason: str | Sequence[str] = (),
    selector: str | Mapping[str, str] = "",
    since: float | str | None = None,
    all_namespaces: bool = False,
    cluster: ClusterOptions | None = None,
) -> RunList:
    """Returns the runs of a backend, the newest first.

    Args:
        backend, cluster: the same arguments as those of `status`.
        job: the name of a job, or several names. Only runs of these jobs are returned. Default: all jobs.
        phase: a phase such as `failed`, or several phases. Only runs in these phases are returned. Default: all phases.
        reason: a reason such as `UserError`, `Cancelled` or `Queued`, or several reasons. Only runs with these reasons
            are returned. Default: all reasons.
        selector: a label selector such as `team=vision,!debug`, or a mapping of labels. Only runs with matching labels
            are returned. Default: all labels.
        since: a number of seconds, or a duration such as `1d`. Only runs that were created since then are returned.
            Default: all runs.
        all_namespaces: whether to return the runs of all namespaces of a cluster. Default: False, which returns the
            runs of one namespace.

    Raises:
        BadInputError: an argument is not valid.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
    """
    after = None if (seconds := argument_seconds("since", since)) is None else time.time() - seconds
    phases, reasons = phases_of(several(phase), "phase"), reasons_of(several(reason), "reason")
    wanted = RunFilter(phases, selector, after, frozenset(several(job)), reasons)
    found = backend_of(backend, cluster, read_only=True).list(all_namespaces=all_namespaces)
    return RunList(wanted.select(found, "selector"))


@overload
def cancel(
    name: str | Run | RunStatus, backend: str = "local", *, kill: bool = False, cluster: ClusterOptions | None = None
) -> RunStatus: ...


@overload
def cancel(
    name: SeveralRuns, backend: str = "local", *, kill: bool = False, cluster: ClusterOptions | None = None
) -> RunList: ...


def cancel(
    name: str | Run | RunStatus | SeveralRuns,
    backend: str = "local",
    *,
    kill: bool = False,
    cluster: ClusterOptions | None = None,
) -> RunStatus | RunList:
    """Stops a run, or each run of a list, and waits until the runs have finished.

    Args:
        name, backend, cluster: the same arguments as those of `status`. `name` can also be a list.
        kill: whether to kill the ranks at once. Default: False, which gives the ranks time to exit.

    Returns:
        The final status, or a list of these. The status of a run that had already finished is unchanged.

    Raises:
        RunNotFoundError: no run has this name.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
    """
    runs: Sequence[Any] = name if isinstance(name, (list, tuple, RunList)) else [name]
    stopping: list[tuple[Backend, RunStatus]] = []
    for run in runs:
        given, place, options = located(run, backend, cluster)
        opened = backend_of(place, options)
        stopping.append((opened, request_stop(opened, given, kill=kill)))
    over = RunList(before if before.phase.final else opened.wait(before.name) for opened, before in stopping)
    return over if runs is name else over[0]


def delete(
    names: str | Run | RunStatus | Sequence[str | Run | RunStatus] | None = None,
    backend: str = "local",
    *,
    job: str | None = None,
    dry_run: bool = False,
    cluster: ClusterOptions | None = None,
) -> RunList:
    """Deletes finished runs.

    For a local run, this deletes the directory of the run, which contains the logs. On a cluster, this deletes the
    Kubernetes objects of the run. The checkpoint_dir and other files that the training code has written are kept.

    Args:
        names: the name of a run, a `Run` or a RunStatus, or a list of these. Names of jobs are not accepted. An empty
            list deletes nothing.
        job: the name of a job. All runs of the job are deleted. Give either `names` or `job`.
        dry_run: whether to return the runs without deleting them. Default: False.
        backend, cluster: the same arguments as those of `status`.

    Returns:
        The deleted runs.

    Raises:
        BadInputError: a run has not finished, the runs have different backends, both `names` and `job` are given, or
            both are missing. No run is deleted.
        RunNotFoundError: no run has this name, or the job has no runs. No run is deleted.
        InfrastructureError: the cluster cannot be reached, or the cluster denies access.
    """
    if (names is None) is (job is None):
        raise BadInputError("names: give either the names of runs, or job, the name of a job")
    runs = [names] if isinstance(names, (str, RunStatus, Run)) else names or []
    if not runs and job is None:
        return RunList()
    places = [located(run, backend, cluster, "names") for run in runs]
    for _, backend, cluster in places[:1]:
        if other := [name for name, *place in places if place != [backend, cluster]]:
            raise BadInputError(f"names: {other[0]} has another backend or cluster than {places[0][0]}; use two calls")
    opened = backend_of(backend, cluster)
    given = [name for name, *_ in places] if job is None else [run.name for run in runs_of_job(opened, job)]
    return RunList(opened.delete(given, dry_run=dry_run))


def diagnose(
    name: str | Run | RunStatus, backend: str = "local", *, cluster: ClusterOptions | None = None
) -> Diagnosis:
    """Returns the text that `stepset diagnose` prints.

    The text states how a run finished and why it failed. If the run has not finished, the text states its current
    state. If the run failed, `status(name).failure` is a `Failure` object with these facts. The function has the
    arguments of `status`, and raises the same errors.
    """
    return Diagnosis(status(name, backend, cluster=cluster))


def stacks(
    name: str | Run | RunStatus,
    backend: str = "local",
    *,
    ranks: Ranks | None = None,
    cluster: ClusterOptions | None = None,
) -> Stacks:
    """Returns the stacks of the running ranks of a run: where each rank is in the code. The ranks continue.

    Args:
        name, backend, cluster: the same arguments as those of `status`.
        ranks: the ranks, as for `logs`. Default: all ranks.

    Returns:
        The stacks. `problems` has one line for each pod or rank whose stacks cannot be read.

    Raises:
        BadInputError: an argument is not valid, or no selected rank is running.
        RunNotFoundError: no run has this name.
        InfrastructureError: no stack can be read. On a cluster, the account needs the permission that
            `stepset rbac --with exec` grants.
    """
    name, backend, cluster = located(name, backend, cluster)
    sources, opened = selected_sources(ranks), backend_of(backend, cluster, read_only=True)
    if sources is not None:
        check_sources(sources, opened.status(name), "ranks")
    return Stacks.of(opened.stacks(name, sources))


@dataclass(frozen=True)
class Run:
    """A run that `submit` started. The run does not depend on the process that started it.

    Args:
        name: the name of the run.
        backend: local or kubernetes.
        cluster: the cluster and the namespace, for the backend kubernetes. Default: the current context of the
            kubeconfig.
    """

    name: str
    backend: str = "local"
    cluster: ClusterOptions | None = None

    def status(self) -> RunStatus:
        """Returns the current status of the run."""
        return status(self.name, self.backend, cluster=self.cluster)

    def logs(
        self,
        *,
        follow: bool = False,
        ranks: Ranks | None = None,
        tail: int | None = None,
        since: float | str | None = None,
        previous: bool = False,
    ) -> LogLines:
        """Returns an iterator over the log lines of the run. `stepset.logs` documents the arguments."""
        return logs(
            self.name,
            self.backend,
            follow=follow,
            ranks=ranks,
            tail=tail,
            since=since,
            previous=previous,
            cluster=self.cluster,
        )

    def stacks(self, *, ranks: Ranks | None = None) -> Stacks:
        """Returns the stacks of the running ranks. `stepset.stacks` documents the argument."""
        return stacks(self.name, self.backend, ranks=ranks, cluster=self.cluster)

    def wait(self, timeout: float | str | None = None) -> RunStatus:
        """Waits until the run has finished, or until `timeout` seconds have passed. Returns the current status.

        In a notebook, the cell shows a table of the ranks. Ctrl-C ends only the wait. The run continues.
        """
        return self._wait(argument_seconds("timeout", timeout), display_of_kernel())

    def _wait(self, timeout: float | None, display: NotebookDisplay | None) -> RunStatus:
        wait = partial(backend_of(self.backend, self.cluster, read_only=True).wait, self.name)
        try:
            return wait(timeout) if display is None else display.show_while_waiting(wait, timeout)
        except KeyboardInterrupt as error:
            explain_interrupt(error, continues_sentence(self.name, self.backend))
            raise

    def cancel(self, *, kill: bool = False) -> RunStatus:
        """Stops the run, and waits until the run has finished. If `kill` is True, the ranks are killed at once."""
        return cancel(self.name, self.backend, kill=kill, cluster=self.cluster)

    def result(self) -> Any:
        """Waits until the run has finished, and returns its result.

        Raises:
            TrainingFailedError: the run did not succeed.
        """
        display = display_of_kernel()
        found = self._wait(None, display)
        return succeeded(found, shown=display is not None and display.shows_table).result

    def _repr_html_(self) -> str:
        """Returns the current status as HTML for notebooks. If the status cannot be read, the HTML states why."""
        try:
            return self.status()._repr_html_()
        except StepsetError as error:
            return card((f"<p><strong>{cell(self.name)}</strong></p>", f'<p class="bad">{escaped(str(error))}</p>'))


def located(
    run: str | Run | RunStatus, backend: str, cluster: ClusterOptions | None, place: str = "name"
) -> tuple[str, str, ClusterOptions | None]:
    """Returns the name, the backend and the cluster of a run. `backend` and `cluster` are the user's arguments.

    Raises:
        BadInputError: `run` is neither a name nor a run. The message starts with `place`.
    """
    if isinstance(run, Run):
        return run.name, run.backend, cluster or run.cluster
    if isinstance(run, RunStatus):
        if run.namespace and (cluster is None or cluster.namespace is None):
            cluster = replace(cluster or ClusterOptions(), namespace=run.namespace)
        return run.name, run.backend, cluster
    if not isinstance(run, str):
        raise BadInputError(
            f"{place}: {type(run).__name__} {run!r} is not a run; give its name, its Run or its RunStatus"
        )
    return run, backend, cluster


def resumed(
    job: Run | RunStatus, backend: str, cluster: ClusterOptions | None, resume: bool
) -> tuple[str, str, ClusterOptions | None]:
    """Returns the result of `located` for a run that the user has given as `job`.

    Raises:
        BadInputError: `resume` is False.
    """
    if not resume:
        raise BadInputError(f"job: {job.name} is a run; to continue it, add resume=True")
    return located(job, backend, cluster, "job")


def log_selection(
    *, follow: bool, ranks: Ranks | None, tail: int | None, since: float | None, previous: bool
) -> LogSelection:
    """Returns the lines that the arguments of `logs` select. Raises BadInputError if an argument is not valid."""
    if follow and previous:
        raise BadInputError("previous: the previous attempt is over; leave out follow")
    if tail is not None and tail < 0:
        raise BadInputError(f"tail: {tail} is too small; give 0 or more")
    return LogSelection(selected_sources(ranks), None if since is None else time.time() - since, tail, previous, follow)


def selected_sources(ranks: Ranks | None) -> frozenset[str] | None:
    """Returns the sources of the given ranks, or None for all ranks. Raises BadInputError if `ranks` is not valid."""
    return None if ranks is None else sources_of(_words(ranks), "ranks")


def _words(ranks: Ranks) -> str:
    return str(ranks) if isinstance(ranks, (int, str)) else ",".join(map(str, ranks))


def _lines(backend: Backend, name: str, selection: LogSelection) -> Iterator[LogLine]:
    if selection.without_times:
        return backend.logs(name, follow=selection.follow, sources=selection.sources)
    blocks = backend.timed_rows(name, selection)
    return (line_of(row) for rows in blocks for _, row in rows)
