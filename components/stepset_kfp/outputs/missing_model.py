"""Detects that a training has not written the model that its result names."""

from __future__ import annotations

import os
import stat
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
    if not path.is_absolute() or not (problem := _problem(path)):
        return
    # A link may lead to a directory that only the training pods have.
    real, volumes = path.resolve(), filter(os.path.ismount, directories or ())
    if directories is None or any(real.is_relative_to(each.resolve()) for each in volumes):
        raise MissingModelError(
            f"run {run} succeeded, but its result names the model {named!r}, which {problem}; write the model to this"
            " path before rank 0 writes the result, or name no model in the result"
        )


def _problem(path: Path) -> str:
    """Returns "" if the path exists and is not an empty directory, or if the path cannot be read."""
    try:
        empty = stat.S_ISDIR(path.lstat().st_mode) and not any(path.iterdir())
        return "is an empty directory" if empty else ""
    except (FileNotFoundError, NotADirectoryError):
        return f"does not exist; {_instead_of(path)}"
    except (OSError, ValueError):  # ValueError: the path contains NUL
        return ""


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
