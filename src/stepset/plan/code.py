"""The path of the job's script within the code that is shipped."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob

FUNCTION_FILE = "stepset_main.py"
"""Name of the file with a job's `function`."""


def script_in_code(job: TrainingJob) -> str:
    """The script's path within the job's code.

    With `code` the path is relative to that directory (a leading `code/` is dropped). Without, only the script is
    shipped, under its file name.
    """
    script = posixpath.normpath((job.script or "").replace("\\", "/"))
    if job.code is None:
        return posixpath.basename(script)
    code = posixpath.normpath(job.code.replace("\\", "/"))
    return script.removeprefix(f"{code}/")
