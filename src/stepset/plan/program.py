"""Formats the program of a job as one line of text."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from stepset.functions.program import call_text

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.spec.job import TrainingJob

PROGRAM_LIMIT = 256
"""The maximum length of the line. On a cluster, the line is stored in an annotation of the run."""


def program_text(job: TrainingJob) -> str:
    """Returns the script, module, command or Python function of a job with its arguments.

    Returns "" if the job executes a built-in recipe, or a program text that stepset has not created from a function.

    >>> from stepset.spec import TrainingJob
    >>> program_text(TrainingJob(script="train.py", args=["--epochs", "3"]))
    'train.py --epochs 3'
    """
    if job.command is not None:
        words = [*job.command, *job.args]
    elif job.module is not None:
        words = ["-m", job.module, *job.args]
    elif job.script is not None:
        words = [job.script, *job.args]
    else:
        words = []
    text = shlex.join(words) if words else call_text(job.function or "")
    return text if len(text) <= PROGRAM_LIMIT else f"{text[: PROGRAM_LIMIT - 1]}…"
