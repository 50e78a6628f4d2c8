"""The path of the job's script within the code that is copied to the pods."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepset.spec.job import TrainingJob

FUNCTION_FILE = "stepset_main.py"
"""The name of the file that contains the program of a job's `function`."""


def script_in_code(job: TrainingJob) -> str:
    """Returns the path of the script within the job's code.

    - If `code` is a local directory, the path is relative to the local directory.
    - If `code` is a volume, the path is relative to the volume's directory `path`.
    - If the job has no `code`, the path is the file name of the script.
    """
    script = posixpath.normpath((job.script or "").replace("\\", "/"))
    if job.code is None:
        return posixpath.basename(script)
    if job.code_directory is None:
        return script
    code = posixpath.normpath(job.code_directory.replace("\\", "/"))
    return script.removeprefix(f"{code}/")
