"""Blocks a task between its start and its execution until the test releases it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Held:
    """Blocks a task of a DAG file in `pre_execute`.

    Args:
        folder: a directory of this test; the file `started` means that the task is blocked, `go` releases it.
    """

    folder: Path

    @property
    def imports(self) -> str:
        """Python code for the top of the DAG file."""
        return f"""
import pathlib, time

def held(context):
    pathlib.Path({str(self.folder / "started")!r}).touch()
    while not pathlib.Path({str(self.folder / "go")!r}).exists():
        time.sleep(0.05)
"""

    def task(self, text: str) -> str:
        """Adds the block to the source text of a task."""
        return text.replace("(", "(pre_execute=held, ", 1)

    @property
    def started(self) -> bool:
        """Whether the task has started and is blocked."""
        return (self.folder / "started").exists()

    def release(self) -> None:
        """Lets the task execute."""
        (self.folder / "go").touch()
