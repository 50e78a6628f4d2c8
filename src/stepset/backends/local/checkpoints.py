"""Finds the checkpoints in the `checkpoint_dir` of a local run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stepset.agent.launch import newest_checkpoint

FRESH = "STEPSET_FRESH"
"""The name of a variable that contains a time in nanoseconds since the epoch. Older checkpoints are ignored."""


def has_checkpoint(directory: str | os.PathLike[str], env: Mapping[str, Any]) -> bool:
    """Returns whether the first attempt of a local run finds a checkpoint. The agent of the run uses the same rules.

    Args:
        directory: the `checkpoint_dir` of the job.
        env: the `env` of the job, in the form of a job file (`TrainingJob.to_dict`).
    """
    found = {"STEPSET_CHECKPOINT_DIR": os.fspath(directory), FRESH: str(env.get(FRESH, ""))}
    return newest_checkpoint(found) is not None
