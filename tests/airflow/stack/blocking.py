"""A foreign trigger that blocks its event loop, so that no other trigger of the triggerer runs.

Airflow imports this module: DAG files of the tests use `BlockOperator`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent


class BlockingTrigger(BaseTrigger):
    """Blocks the first triggerer that runs it until the file `continue` exists; others await the file.

    Args:
        directory: the directory of this file and of `blocked`, which the trigger creates when it blocks.
    """

    def __init__(self, directory: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.directory = directory

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.BlockingTrigger", {"directory": self.directory}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        blocked, resume = (Path(self.directory, name) for name in ("blocked", "continue"))
        first = not blocked.exists()
        blocked.touch()
        while not resume.exists():
            if first:
                time.sleep(0.1)  # blocks on purpose
            else:
                await asyncio.sleep(0.1)
        yield TriggerEvent(True)  # type: ignore[no-untyped-call]  # Airflow's


class BlockOperator(BaseOperator):
    """Waits with a BlockingTrigger.

    Args:
        directory: the trigger's argument.
    """

    def __init__(self, *, directory: str, **named: Any) -> None:
        super().__init__(**named)
        self.directory = directory

    def execute(self, context: Any) -> None:
        self.defer(trigger=BlockingTrigger(self.directory), method_name="done")

    def done(self, context: Any, event: Any) -> None:
        """Succeeds at the trigger's event."""
