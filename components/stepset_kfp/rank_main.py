"""What each rank of a distributed component runs: the component's own command, outputs kept apart in all but rank 0.

`entry.py` puts this file's text and a payload into the job's program. Standard library only: it runs in the component's
image, where stepset is not installed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any


def main(payload: dict[str, Any]) -> int:
    """Runs the component's command in this rank.

    Args:
        payload: {"command": [...], "executor_input": {...}}; the command holds the executor input where it says
            {"executor_input": true}.

    Returns:
        The command's exit code.
    """
    rank = os.environ.get("RANK", os.environ.get("STEPSET_NODE_RANK", "0"))
    given = payload["executor_input"]
    scratch = None
    if rank != "0":
        scratch = tempfile.mkdtemp(prefix="stepset-rank-")
        given = apart(given, scratch)
    command = [json.dumps(given) if isinstance(word, dict) else word for word in payload["command"]]
    try:
        return run(command)
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def run(command: list[str]) -> int:
    """Runs a command to its end; what it is told by signals is told the command."""
    process = subprocess.Popen(command)

    def hand_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, hand_on)
    code = process.wait()
    return code if code >= 0 else 128 - code


def apart(given: dict[str, Any], directory: str) -> dict[str, Any]:
    """An executor input whose outputs are below a directory: a rank's own, which nobody reads."""
    changed: dict[str, Any] = json.loads(json.dumps(given))
    outputs = changed.get("outputs") or {}
    if "outputFile" in outputs:
        outputs["outputFile"] = str(Path(directory, "executor_output.json"))
    for name, parameter in (outputs.get("parameters") or {}).items():
        parameter["outputFile"] = str(Path(directory, name))
    for name, artifacts in (outputs.get("artifacts") or {}).items():
        for artifact in artifacts.get("artifacts") or ():
            artifact["uri"] = str(Path(directory, "artifacts", name))
            artifact.pop("custom_path", None)
            (artifact.get("metadata") or {}).pop("_kfp_workspace", None)
    return changed


def start(payload_text: str) -> None:
    """The program's entry."""
    sys.exit(main(json.loads(payload_text)))
