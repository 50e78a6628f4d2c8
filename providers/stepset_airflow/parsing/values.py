"""Checks parameters that are not fields of the job, when a DAG file is parsed and when a task runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stepset_airflow.logs.task_log import ranks_to_log
from stepset_airflow.parsing.given import Given
from stepset_airflow.run.exit_policy import check_policy

FINISH_ACTIONS = ("keep", "delete", "delete_succeeded")
KILL_ACTIONS = ("delete", "suspend", "keep")
TIMES = {"poll_interval": 10, "admission_timeout": 7200, "startup_timeout": 1800, "quiet_after": 3600}
"""Parameters in seconds, and examples of their values."""


def option_problems(given: Given) -> Iterator[str]:
    """Yields a problem for each parameter with an invalid value."""
    yield from given.misplaced_results()
    checks: tuple[tuple[str, Callable[[Any], object]], ...] = (
        ("log_ranks", lambda value: value is None or ranks_to_log(value)),
        ("exit_code_policy", check_policy),
        ("on_finish_action", lambda value: _check_choice("on_finish_action", value, FINISH_ACTIONS)),
        ("on_kill_action", lambda value: _check_choice("on_kill_action", value, KILL_ACTIONS)),
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
                yield str(error)
    # Without a DAG each text may be a template, but the text `local` is not.
    if given.values.get("backend") == "local" and given.value("wait_for_completion") is False:
        yield (
            "wait_for_completion: a local run ends with its worker, so its task must wait for it;"
            " leave wait_for_completion out"
        )


def sensor_problems(given: Given) -> Iterator[str]:
    """Yields a problem for each parameter of a sensor with an invalid value."""
    yield from option_problems(given)
    if given.is_known("run_name") and not (isinstance(name := given.values["run_name"], str) and name):
        yield f"run_name: {name!r} is not known; give the name of a run"
    backend = given.values.get("backend")
    if given.value("start_from_trigger") is not True or backend in (None, "kubernetes"):
        return
    if backend == "local":
        yield "start_from_trigger: a triggerer cannot read the runs of a worker's machine; leave it out"
    elif not given.is_known("backend"):
        yield "start_from_trigger: a triggerer does not render backend; give backend without a template"


def _check_backend(name: str | None) -> None:
    """Raises ValueError for an unknown backend."""
    if name is not None:
        from stepset.backends import BACKENDS

        _check_choice("backend", name, BACKENDS)


def _check_target(name: str | None) -> None:
    """Raises ValueError for an unknown target."""
    if name is not None:
        from stepset.targets.request import TARGET_NAMES

        _check_choice("target", name, TARGET_NAMES)


def _check_choice(parameter: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{parameter}: {value!r} is not known; use {', '.join(known)}")


def _check_seconds(parameter: str, value: object) -> None:
    if value is None and parameter != "poll_interval":
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        alternative = "" if parameter == "poll_interval" else ", or None for no limit"
        raise ValueError(
            f"{parameter}: {value!r} is not a number of seconds; give one such as {TIMES[parameter]}{alternative}"
        )


def _check_callbacks(value: object) -> None:
    paths = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
    for path in paths:
        if not isinstance(path, str):
            raise ValueError(
                f"callbacks: {path!r} is not a dotted path; give that of a function, such as my_package.hooks.on_change"
            )
