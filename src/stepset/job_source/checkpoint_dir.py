"""Handles relative paths in the field `checkpoint_dir`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepset.errors import BadInputError
from stepset.spec import TrainingJob, parse_job

_FIELD = "checkpoint_dir"
_RELATIVE = "; `stepset run --checkpoint-dir` and the argument of stepset.run accept a relative path"


def parse_job_in(base_dir: Path, data: Mapping[str, Any], where: str = "") -> TrainingJob:
    """Converts the content of a job file to a job. `parse_job` describes the arguments and errors.

    In addition, if checkpoint_dir is a relative path, the error message suggests an absolute path. A relative path is
    invalid in a job file, because the directory of the job file does not exist in pods.
    """
    try:
        return parse_job(data, where)
    except BadInputError as error:
        given = data.get(_FIELD)
        if not isinstance(given, str) or not given or given.startswith(("/", "~")):
            raise
        prefix, remedy = f"{_FIELD}: ", f", such as {absolute_in(base_dir, given)!r}{_RELATIVE}"
        problems = [problem + remedy if problem.startswith(prefix) else problem for problem in error.problems]
        raise BadInputError(*problems, where=error.where) from error


def absolute_in(base_dir: Path, path: str | os.PathLike[str]) -> str:
    """Returns the absolute form of a path that is relative to `base_dir`. Does not resolve symbolic links.

    Returns a path with a leading `~` unchanged. TrainingJob rejects the path, because pods do not have the home
    directory of this machine.
    """
    if (text := os.fspath(path)).startswith("~"):
        return text
    return os.path.abspath(base_dir / text)  # noqa: PTH100  # must not follow links
