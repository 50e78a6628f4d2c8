"""Checks the values of parameters that are not fields of the job.

The checks are made when a DAG file is parsed, and again when a task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from airflow.sdk import conf

from stepset_airflow.logs.task_log import ranks_to_log
from stepset_airflow.missing_run import name_problem
from stepset_airflow.parsing.given import Given
from stepset_airflow.run.exit_policy import check_policy

FINISH_ACTIONS = ("keep", "delete", "delete_succeeded")
KILL_ACTIONS = ("delete", "suspend", "keep")
ORPHAN_ACTIONS = ("keep", "stop")
TIMES = {"poll_interval": 10, "admission_timeout": 7200, "startup_timeout": 1800, "quiet_after": 3600}
"""The parameters whose values are durations. The mapping contains an example of each value, in seconds."""


def option_problems(given: Given) -> Iterator[str]:
    """Yields a problem for each parameter with an invalid value."""
    yield from given.misplaced_results()
    checks: tuple[tuple[str, Callable[[Any], object]], ...] = (
        ("log_ranks", lambda value: value is None or ranks_to_log(value)),
        ("exit_code_policy", check_policy),
        ("warm_start", _check_asset),
        ("on_finish_action", lambda value: _check_choice("on_finish_action", value, FINISH_ACTIONS)),
        ("on_kill_action", lambda value: _check_choice("on_kill_action", value, KILL_ACTIONS)),
        ("on_orphan", lambda value: _check_choice("on_orphan", value, ORPHAN_ACTIONS)),
        ("callbacks", _check_callbacks),
        ("backend", _check_backend),
        ("target", _check_target),
        *((name, lambda value, name=name: _check_seconds(name, value)) for name in TIMES),
    )
    for name, check in checks:
        if given.is_known(name) and name in given.values:
            try:
                check(given.values[name])
            except ValueError as error:
                yield from str(error).splitlines()
    if given.value("on_orphan") == "stop":
        yield from _shared_run(given)
    # `given.value("backend")` is not used here, because this call returns None if the task has no DAG.
    if given.values.get("backend") == "local" and given.value("wait_for_completion") is False:
        yield (
            "wait_for_completion: a local run ends with its worker, so its task must wait for it;"
            " leave wait_for_completion out"
        )


def _shared_run(given: Given) -> Iterator[str]:
    """Yields a problem if `on_orphan` is `stop` although a process other than the worker may continue the run.

    docs/design/orphans.md explains why.
    """
    wrong = [
        needed
        for name, unfit, needed in (
            ("durable", True, "durable=False"),
            ("deferrable", True, "deferrable=False"),
            ("wait_for_completion", False, "wait_for_completion=True"),
            ("on_kill_action", "keep", "on_kill_action delete or suspend"),
        )
        if given.value(name) == unfit
    ]
    if wrong:
        yield (
            f"on_orphan: stop requires {', '.join(wrong)}, because nothing in the Kubernetes API shows that no other"
            " process will continue the run; leave on_orphan out"
        )


def sensor_problems(given: Given) -> Iterator[str]:
    """Yields a problem for each invalid value of a sensor's parameters."""
    yield from option_problems(given)
    backend = given.values.get("backend")
    local = (backend or conf.get("stepset", "backend", fallback="kubernetes")) == "local"
    if given.is_known("run_name") and (problem := name_problem(given.values["run_name"], local=local)) is not None:
        yield problem
    if given.value("start_from_trigger") is not True or backend in (None, "kubernetes"):
        return
    if backend == "local":
        yield "start_from_trigger: a triggerer cannot read the runs of a worker's machine; leave it out"
    elif not given.is_known("backend"):
        yield "start_from_trigger: a triggerer does not render backend; give backend without a template"


def _check_asset(value: object) -> None:
    """Raises ValueError if `value`, which is given for `warm_start`, is not an asset."""
    from airflow.sdk import Asset

    if value is not None and not isinstance(value, Asset):
        asset = f"Asset({value!r})" if isinstance(value, str) else 'Asset("model")'
        raise ValueError(f"warm_start: {value!r} is not an asset; give one such as {asset}")


def _check_backend(name: str | None) -> None:
    """Raises ValueError if `name` is not a backend."""
    if name is not None:
        from stepset.backends import BACKENDS

        _check_choice("backend", name, BACKENDS)


def _check_target(name: str | None) -> None:
    """Raises ValueError if `name` is not a target."""
    if name is not None:
        from stepset.targets.request import TARGET_NAMES

        _check_choice("target", name, TARGET_NAMES)


def _check_choice(parameter: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        from difflib import get_close_matches

        close = get_close_matches(str(value), known, n=1)
        hint = f"did you mean {close[0]!r}? use" if close else "use"
        raise ValueError(f"{parameter}: {value!r} is not known; {hint} {', '.join(known)}")


def in_seconds(value: Any) -> Any:
    """Converts a timedelta or a string such as `5m` to a number of seconds. Other values are returned unchanged."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        from stepset.spec.quantity import parse_duration

        try:
            return parse_duration(value)
        except ValueError:
            return value  # `option_problems` reports it
    return value


def _check_seconds(parameter: str, value: object) -> None:
    if value is None and parameter != "poll_interval":
        return
    seconds = in_seconds(value)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        alternative = "" if parameter == "poll_interval" else ", or None for no limit"
        raise ValueError(
            f"{parameter}: {value!r} is not a positive duration; give a number of seconds such as {TIMES[parameter]},"
            f" text such as '5m', or a timedelta{alternative}"
        )


def _check_callbacks(value: object) -> None:
    paths = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
    for path in paths:
        if not isinstance(path, str):
            raise ValueError(
                f"callbacks: {path!r} is not a dotted path; give that of a function, such as my_package.hooks.on_change"
            )
