"""A task that has begun and stands still before it executes, until it is let go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Held:
    """What holds a task of a DAG file.

    Args:
        folder: of this test alone; that the task has begun, and may go on, are files in it.
    """

    folder: Path

    @property
    def imports(self) -> str:
        """What the DAG file needs on top."""
        return f"""
import pathlib, time

def held(context):
    pathlib.Path({str(self.folder / "begun")!r}).touch()
    while not pathlib.Path({str(self.folder / "go")!r}).exists():
        time.sleep(0.05)
"""

    def task(self, text: str) -> str:
        """The text of a task, as that of one which is held."""
        return text.replace("(", "(pre_execute=held, ", 1)

    @property
    def begun(self) -> bool:
        """Whether the task stands still."""
        return (self.folder / "begun").exists()

    def let_go(self) -> None:
        """Lets it execute."""
        (self.folder / "go").touch()
