"""Checks the inputs that are not fields of the job, when a pipeline is compiled and in the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.errors import BadInputError
from stepset.targets.request import check_target
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.backend import AUTO, backend_name

ON_INTERRUPT = ("suspend", "delete", "leave")
_TIMEOUTS = ("admission_timeout", "startup_timeout")


def check_options(given: Mapping[str, Any]) -> None:
    """Raises BadInputError if an option has an unknown value, or a timeout is negative."""
    backend_name(given.get("backend", AUTO), {})
    check_target(given.get("target") or "jobset")
    ranks_to_log(given.get("log_ranks", "0"))
    how = given.get("on_interrupt", ON_INTERRUPT[0])
    if how not in ON_INTERRUPT:
        raise BadInputError(f"on_interrupt: {how!r} is not known; use one of {', '.join(ON_INTERRUPT)}")
    for name in _TIMEOUTS:
        if given.get(name, 0) < 0:
            raise BadInputError(f"{name}: {given[name]} is negative; give seconds, or 0 for no limit")
