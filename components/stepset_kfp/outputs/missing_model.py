"""Detects that a training has not written the model that its result names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stepset.errors import StepsetError
from stepset.exit_code import ExitCode
from stepset.regular_files import similar_file

_MOST_NAMES = 5
"""The maximum number of file names in the message."""


class MissingModelError(StepsetError):
    """A run has succeeded, but the model that its result names does not exist."""

    exit_code = ExitCode.TRAINING_FAILED


def check_exists(named: str, run: str, directories: Sequence[Path] | None) -> None:
    """Raises MissingModelError if the training has certainly not written a model.

    Args:
        named: the path in the result. A relative path is not checked, because it may be the name of a model, such as
            `resnet50`.
        run: the name of the run.
        directories: the directories that the job of a run on a cluster declares. Only the volumes of the step among
            these directories are checked. KFP mounts these volumes in the step and, at the same paths, in the training
            pods. None for a local run, whose ranks write to the file system of the step.
    """
    path = Path(named)
    try:
        path.lstat()
        return
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError):  # a directory cannot be read, or the path contains NUL
        return
    # A link may lead to a directory that only the training pods have.
    real, volumes = path.resolve(), filter(os.path.ismount, directories or ())
    if path.is_absolute() and (directories is None or any(real.is_relative_to(each.resolve()) for each in volumes)):
        raise MissingModelError(
            f"run {run} succeeded, but its result names the model {named!r}, which does not exist; {_instead_of(path)};"
            " write the model to this path before rank 0 writes the result, or name no model in the result"
        )


def _instead_of(missing: Path) -> str:
    """Returns a question with a similar path, or states what the directory of a missing file contains."""
    if similar := similar_file(missing):
        return similar
    directory = str(missing.parent)
    try:
        names = sorted(each.name for each in missing.parent.iterdir())
    except OSError:
        return f"its directory {directory!r} does not exist"
    if not names:
        return f"its directory {directory!r} is empty"
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return f"its directory {directory!r} contains {', '.join(map(repr, names[:_MOST_NAMES]))}{more}"
