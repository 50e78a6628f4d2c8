"""Checks the inputs that are not fields of the job file, such as `backend` and `on_interrupt`.

The inputs are checked when a pipeline is compiled, and again in the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepset.backends.orphan_policy import check_on_orphan
from stepset.errors import BadInputError
from stepset.targets.request import check_target
from stepset.watch.present.sources import ranks_to_log
from stepset_kfp.backend import AUTO, backend_name

ON_INTERRUPT = ("suspend", "delete", "leave")
_TIMEOUTS = ("admission_timeout", "startup_timeout")


def check_options(given: Mapping[str, Any]) -> None:
    """Raises BadInputError if an option has an unknown value, or if a timeout is negative."""
    backend_name(given.get("backend", AUTO), {})
    check_target(given.get("target") or "jobset")
    ranks_to_log(given.get("log_ranks", "0"))
    how = given.get("on_interrupt", ON_INTERRUPT[0])
    if how not in ON_INTERRUPT:
        raise BadInputError(f"on_interrupt: {how!r} is not known; use one of {', '.join(ON_INTERRUPT)}")
    if given.get("on_orphan"):
        check_on_orphan(given["on_orphan"])
    for name in _TIMEOUTS:
        if not isinstance(given.get(name, 0), (int, float)):
            raise BadInputError(f"{name}: {given[name]!r} is not a number; give seconds, or 0 for no limit")
        if given.get(name, 0) < 0:
            raise BadInputError(f"{name}: {given[name]} is negative; give seconds, or 0 for no limit")
