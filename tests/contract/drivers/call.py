"""The synchronous call: `python -m tests.contract.drivers.call REQUEST.json` calls `stepset.run` with a listener.

Prints one JSON object per line: {"line": [source, text]}, {"status": {...}}, and at the end {"end": {...}} or
{"error": text, "code": number}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import stepset
from stepset.backends.base import ClusterOptions
from stepset.errors import StepsetError
from stepset.run_status import LogLine, RunStatus

_SHOWN = 1000
"""The number of characters that are reported of a line."""


class Listener:
    """Reports lines and statuses.

    Args:
        pause: seconds to sleep after each line.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause

    def on_line(self, line: LogLine) -> None:
        """Reports a line of a rank."""
        report({"line": [line.source, line.text[:_SHOWN]]})
        if self._pause:
            time.sleep(self._pause)

    def on_status(self, status: RunStatus) -> None:
        """Reports a status of the run."""
        report({"status": status.to_dict()})


def report(what: dict[str, Any]) -> None:
    """Writes one object, and flushes it."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(path: str) -> int:
    """Runs the job of a request; returns the exit code of the command line."""
    request = json.loads(Path(path).read_text())
    options = ClusterOptions(**request["options"])
    try:
        status = stepset.run(
            request["job"],
            "kubernetes",
            name=request["name"],
            base_dir=Path(path).parent,
            listener=Listener(request["pause"]),
            cluster=options,
        )
    except stepset.TrainingFailedError as error:
        status = error.status
    except StepsetError as error:
        report({"error": str(error), "code": int(error.exit_code)})
        return int(error.exit_code)
    report({"end": status.to_dict()})
    return int(status.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
