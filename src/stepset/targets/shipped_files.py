"""The files of a job that are separate entries of a ConfigMap, and not parts of an archive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepset.plan.code import FUNCTION_FILE, script_in_code

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob

ARCHIVE_KEY = "code.tar.gz"
"""The key of the archive with the `code` directory in the ConfigMap."""

_KEY = re.compile(r"(?!\.\.|\.$)[-._a-zA-Z0-9]{1,253}")
"""The keys that Kubernetes accepts (v1.36 apimachinery pkg/util/validation/validation.go, IsConfigMapKey)."""


@dataclass(frozen=True)
class SingleFile:
    """A file of the job that is not part of an archive.

    Args:
        name: the name of the file in the pods.
    """

    name: str
    content: bytes

    @property
    def key(self) -> str:
        """The key of the file in the ConfigMap. If the file name is not allowed as a key, the key is `main.py`."""
        return self.name if _KEY.fullmatch(self.name) and self.name != ARCHIVE_KEY else "main.py"


def shipped_files(job: TrainingJob, sources: Sources) -> tuple[SingleFile, ...]:
    """Returns the file that contains the job's function or the job's script.

    Returns an empty tuple if the job has no function and no script, or if the script is part of a packed code
    directory.
    """
    if job.function is not None:
        return (SingleFile(FUNCTION_FILE, job.function.encode()),)
    if sources.script is not None:
        return (SingleFile(script_in_code(job), sources.script),)
    return ()
