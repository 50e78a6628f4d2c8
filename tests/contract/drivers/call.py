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
from stepset.watch.state import LogLine, RunStatus

_SHOWN = 1000
"""Characters of a line that are reported."""


class Listener:
    """Reports what it is given.

    Args:
        pause: seconds that it takes for each line.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause

    def on_line(self, line: LogLine) -> None:
        """A rank printed a line."""
        report({"line": [line.source, line.text[:_SHOWN]]})
        if self._pause:
            time.sleep(self._pause)

    def on_status(self, status: RunStatus) -> None:
        """The run's state changed."""
        report({"status": status.to_dict()})


def report(what: dict[str, Any]) -> None:
    """Writes one object, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(path: str) -> int:
    """Runs the job of a request; the exit code that the command line would have."""
    asked = json.loads(Path(path).read_text())
    options = ClusterOptions(**asked["options"])
    try:
        status = stepset.run(
            asked["job"],
            "kubernetes",
            name=asked["name"],
            base_dir=Path(path).parent,
            listener=Listener(asked["pause"]),
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
