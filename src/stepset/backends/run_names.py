"""Determines the name of a new run, and contains the errors about names that are not available."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from stepset.errors import BadInputError, InfrastructureError
from stepset.spec.names import check_dns_1035


def new_run_name(job: str, requested: str | None) -> str:
    """Returns the requested name of the run. If no name is requested, returns the job's name with a random suffix.

    Raises BadInputError if the requested name is not a DNS-1035 label.
    """
    if requested is None:
        return f"{job}-{secrets.token_hex(3)}"
    try:
        check_dns_1035(requested)
    except ValueError as error:
        raise BadInputError(f"the run's name: {error}") from error
    return requested


def name_taken(run: str) -> BadInputError:
    """Returns the error for a new run whose requested name belongs to an existing run."""
    return BadInputError(f"the run's name: run {run!r} exists already; choose another name, or delete that run first")


def being_deleted(run: str) -> InfrastructureError:
    """Returns the error for a new run whose requested name belongs to a run that is being deleted."""
    return InfrastructureError(f"run {run} is being deleted; try again when it is deleted")


def similar(name: str, names: Iterable[str]) -> str:
    """Returns a question that contains the name most similar to `name`, or "" if no name is similar.

    >>> similar("trian", ["train", "digits"])
    "did you mean 'train'? "
    """
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(set(names)), n=1)
    return f"did you mean {close[0]!r}? " if close else ""
