"""Creates the Python calls that are suggested in the text and the HTML of a status. Contains only pure functions."""

from __future__ import annotations

from stepset.run_status import RunStatus
from stepset.safe_names import slug
from stepset.watch.present.failure_report import rank_to_read


def logs_call(status: RunStatus, *, of_failed_rank: bool = True) -> str:
    """Returns the Python call that reads the lines of a run.

    If a rank failed and `of_failed_rank` is True, the call reads only the lines that show the cause.

    >>> logs_call(RunStatus("digits-1", "digits", "kubernetes"))
    "stepset.logs('digits-1', 'kubernetes')"
    """
    rank = rank_to_read(status) if of_failed_rank else None
    ranks = "" if rank is None else f", ranks={rank}"
    return f"stepset.logs({_run(status.name, status.backend)}{ranks})"


def diagnose_call(status: RunStatus) -> str:
    """Returns the Python call that diagnoses a run.

    >>> diagnose_call(RunStatus("digits-1", "digits", "local"))
    "stepset.diagnose('digits-1')"
    """
    return f"stepset.diagnose({_run(status.name, status.backend)})"


def continues_sentence(name: str, backend: str) -> str:
    """Returns the message of an interruption that ends only the caller's wait for a run.

    >>> continues_sentence("digits-1", "local")
    "run digits-1 continues; stepset.cancel('digits-1') stops it"
    """
    return f"run {name} continues; stepset.cancel({_run(name, backend)}) stops it"


def may_run_sentence(name: str, backend: str) -> str:
    """Returns the message of an interruption that may not have stopped a run.

    >>> may_run_sentence("digits-1", "kubernetes")
    "run digits-1 may still run; cancel it with stepset.cancel('digits-1', 'kubernetes')"
    """
    return f"run {name} may still run; cancel it with stepset.cancel({_run(name, backend)})"


def _run(name: str, backend: str) -> str:
    """Returns the arguments of a Python call that select a run."""
    return repr(name) if backend == "local" else f"{name!r}, {backend!r}"


def resume_call(status: RunStatus) -> str:
    """Returns the Python call that continues a run, or "" if there is no checkpoint to continue from.

    If the run called a Python function, the text has two lines, because the call uses the stored function.

    >>> resume_call(RunStatus("digits-1", "digits", "local", resumable=True))
    "stepset.run('digits-1', resume=True)"
    >>> print(resume_call(RunStatus("digits-1", "digits", "local", resumable=True, function="fit")))
    stepset.run('digits-1', resume=True) calls the stored function fit
    stepset.run(fit, name='digits', resume=True, ...) calls the edited function fit
    """
    if not status.resumable:
        return ""
    call = f"stepset.run({status.name!r}, resume=True)"
    if not status.function:
        return call
    edited = function_call(status.function, status.job)
    return f"{call} calls the stored function {status.function}\n{edited} calls the edited function {status.function}"


def function_call(function: str, job: str, fields: str = "...") -> str:
    """Returns the Python call that continues the newest run of a job with a function of the caller.

    `fields` is the end of the argument list.

    >>> function_call("my_fit", "my-fit")
    'stepset.run(my_fit, resume=True, ...)'
    """
    name = "" if slug(function) == job else f"name={job!r}, "
    return f"stepset.run({function}, {name}resume=True, {fields})"
