"""The place of the job's program inside the code that is shipped."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob

FUNCTION_FILE = "stepset_main.py"
"""The file a job's `function` becomes."""


def script_in_code(job: TrainingJob) -> str:
    """The script's path within the job's code.

    With `code` it is a path inside that directory (a leading `code/` is dropped); without, the script is shipped alone
    under its file name.
    """
    script = posixpath.normpath((job.script or "").replace("\\", "/"))
    if job.code is None:
        return posixpath.basename(script)
    code = posixpath.normpath(job.code.replace("\\", "/"))
    return script.removeprefix(f"{code}/")
