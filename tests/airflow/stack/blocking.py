"""A trigger of somebody else's that does not wait as triggers should: nobody else in its event loop has a turn.

Airflow imports it: DAG files of the tests name `BlockOperator`.
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
    """Blocks the triggerer that has it first, until a file `go on` is there; others only wait for that.

    Args:
        directory: where that file is, and `blocked`, which tells that it blocks.
    """

    def __init__(self, directory: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.directory = directory

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.BlockingTrigger", {"directory": self.directory}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        blocked, go_on = (Path(self.directory, name) for name in ("blocked", "go on"))
        first = not blocked.exists()
        blocked.touch()
        while not go_on.exists():
            if first:
                time.sleep(0.1)  # what it is for
            else:
                await asyncio.sleep(0.1)
        yield TriggerEvent(True)  # type: ignore[no-untyped-call]  # Airflow's


class BlockOperator(BaseOperator):
    """Waits with a BlockingTrigger.

    Args:
        directory: the trigger's.
    """

    def __init__(self, *, directory: str, **named: Any) -> None:
        super().__init__(**named)
        self.directory = directory

    def execute(self, context: Any) -> None:
        self.defer(trigger=BlockingTrigger(self.directory), method_name="done")

    def done(self, context: Any, event: Any) -> None:
        """The trigger's event."""
