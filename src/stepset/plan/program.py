"""What a job executes, as one line of text. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.spec.job import TrainingJob

PROGRAM_LIMIT = 256
"""The maximum number of characters of a program's text, which is an annotation of every run on a cluster."""


def program_text(job: TrainingJob) -> str:
    """Returns the script, module or command of a job with its arguments; empty for a function or a built-in recipe.

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
        return ""
    text = shlex.join(words)
    return text if len(text) <= PROGRAM_LIMIT else f"{text[: PROGRAM_LIMIT - 1]}…"
