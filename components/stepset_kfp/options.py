"""Checks the inputs that are not fields of the job file, such as `backend` and `on_interrupt`.

The inputs are checked when a pipeline is compiled, and again in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stepset.backends.orphan_policy import ON_ORPHAN, check_on_orphan
from stepset.errors import BadInputError
from stepset.targets.request import check_target
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.backend import AUTO, backend_name

ON_INTERRUPT = ("suspend", "delete", "leave")
_TIMEOUTS = ("admission_timeout", "startup_timeout")


def check_options(given: Mapping[str, Any]) -> None:
    """Raises BadInputError if options have unknown values, or if a timeout is negative."""
    checks: tuple[tuple[Callable[[Any], object], Any], ...] = (
        (lambda name: backend_name(name, {}), given.get("backend", AUTO)),
        (check_target, given.get("target") or "jobset"),
        (ranks_to_log, given.get("log_ranks", "0")),
        (_check_on_interrupt, given.get("on_interrupt", ON_INTERRUPT[0])),
        (check_on_orphan, given.get("on_orphan") or ON_ORPHAN[0]),
        *((partial(_check_timeout, name), given.get(name, 0)) for name in _TIMEOUTS),
    )
    if problems := [problem for check, value in checks for problem in problems_of(check, value)]:
        raise BadInputError(*problems)


def problems_of(check: Callable[[Any], object], value: Any) -> tuple[str, ...]:
    """Returns the problems of the BadInputError that a check of a value raises. Returns () if it raises none."""
    try:
        check(value)
    except BadInputError as error:
        return error.problems
    return ()


def _check_on_interrupt(how: Any) -> None:
    if how not in ON_INTERRUPT:
        raise BadInputError(f"on_interrupt: {how!r} is not known; use one of {', '.join(ON_INTERRUPT)}")


def _check_timeout(name: str, seconds: Any) -> None:
    if not isinstance(seconds, (int, float)):
        raise BadInputError(f"{name}: {seconds!r} is not a number; give seconds, or 0 for no limit")
    if seconds < 0:
        raise BadInputError(f"{name}: {seconds} is negative; give seconds, or 0 for no limit")
