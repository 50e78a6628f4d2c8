"""The files of a job that a ConfigMap brings into the pods one by one, without an archive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepset.plan.code import FUNCTION_FILE, script_in_code

if TYPE_CHECKING:  # code that only reads runs must not import pydantic
    from stepset.sources import Sources
    from stepset.spec.job import TrainingJob

ARCHIVE_KEY = "code.tar.gz"
"""The key of the packed `code` directory in the ConfigMap."""

_KEY = re.compile(r"^[-._a-zA-Z0-9]{1,253}$")


@dataclass(frozen=True)
class ShippedFile:
    """A file of the job that is not part of an archive."""

    name: str  # in the pods
    content: bytes

    @property
    def key(self) -> str:
        """Its key in the ConfigMap, which allows fewer characters than a file system."""
        return self.name if _KEY.match(self.name) and self.name != ARCHIVE_KEY else "main.py"


def shipped_files(job: TrainingJob, sources: Sources) -> tuple[ShippedFile, ...]:
    """The script if there is no code directory, or the function."""
    if job.function is not None:
        return (ShippedFile(FUNCTION_FILE, job.function.encode()),)
    if sources.script is not None:
        return (ShippedFile(script_in_code(job), sources.script),)
    return ()
