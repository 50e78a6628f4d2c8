"""Reads the settings of local runs from environment variables: the directory of all runs, and the default ttl."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from stepset.errors import BadInputError

HOME_VARIABLE = "STEPSET_HOME"
_KEPT = 30 * 86_400
"""The default number of seconds for which the directory of a finished run is kept."""


def home_directory(environ: Mapping[str, str]) -> Path:
    """Returns the directory that contains all runs and other data of stepset.

    The directory is `$STEPSET_HOME`. If this variable is not set, the directory is `stepset` in the user's state
    directory (XDG Base Directory Specification 0.8).
    """
    if given := environ.get(HOME_VARIABLE):
        try:
            return Path(given).expanduser().absolute()
        except RuntimeError as error:
            raise BadInputError(f"STEPSET_HOME: {given}: the home directory does not exist; give a path") from error
    # The specification requires that relative paths in this variable are ignored.
    if (state := environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return Path(state) / "stepset"
    try:
        home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        raise BadInputError(
            f"STEPSET_HOME: not set, and user {os.getuid()} has no home directory; set it to a directory for runs"
        ) from error
    return Path(home) / ".local/state/stepset"


def default_ttl(environ: Mapping[str, str]) -> int | None:
    """Returns the number of seconds after which the directory of a finished run is deleted if the job has no ttl.

    The setting is `$STEPSET_KEEP_RUNS`. Its value is a duration or `never`. For `never`, the function returns None. The
    default is 30 days.

    Raises:
        BadInputError: the setting has another value.
    """
    from stepset.spec.quantity import parse_duration

    given = environ.get("STEPSET_KEEP_RUNS", "")
    if given == "never":
        return None
    try:
        return parse_duration(given) if given else _KEPT
    except ValueError as error:
        raise BadInputError(f"STEPSET_KEEP_RUNS: {error}, or never") from error
