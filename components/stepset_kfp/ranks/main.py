"""What each rank of a distributed component runs: the component's own command; only rank 0 writes the step's outputs.

`entry.py` puts this file's text and a payload into the job's program. Standard library only: it runs in the component's
image, where stepset is not installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

# As in the agent (stepset/agent/rank.py, _RANK); the only process of a node has the node's rank.
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "STEPSET_NODE_RANK")
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_LOOK = 1.0
"""Seconds between two looks at the command where SIGCHLD is blocked."""
_AFTER_INSTALLING = '"$0" "$@"'


def main(payload: dict[str, Any]) -> int:
    """Runs the component's command in this rank; returns its exit code.

    The payload's `command` contains {"executor_input": true} in place of the `executor_input`, which is beside it.
    """
    rank = next((os.environ[name] for name in _RANK if name in os.environ), "0")
    given = payload["executor_input"]
    scratch = None
    if rank != "0":
        scratch = tempfile.mkdtemp(prefix="stepset-rank-")
        given = apart(given, scratch)
    command = [json.dumps(given) if isinstance(word, dict) else word for word in payload["command"]]
    try:
        return install(command) or run(command)
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def install(command: list[str]) -> int:
    """Installs the component's packages, in one rank of a machine at a time: concurrent pip installations conflict.

    The other ranks then find the packages installed. KFP puts the installation in front of the component's own command
    (kfp.dsl.component_factory, _get_packages_to_install_command). Returns pip's exit code, 0 if there are no packages.
    """
    if command[:2] != ["sh", "-c"] or not command[2].rstrip().endswith(_AFTER_INSTALLING):
        return 0
    said = (os.environ.get("STEPSET_RUN"), os.environ.get("STEPSET_ATTEMPT"), command[2])
    mark = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
    with Path(tempfile.gettempdir(), f"stepset-install-{os.getuid()}-{mark}").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if os.fstat(turn.fileno()).st_size:
            return 0  # another rank has installed them
        code = run([*command[:3], "true"])
        turn.write("" if code else "done\n")
        return code


def run(command: list[str]) -> int:
    """Runs a command to its end, and forwards signals to it."""
    # The interpreter writes each signal to a pipe: a handler would run while `process` is being waited for.
    inner, outer = os.pipe()
    for end in (inner, outer):
        os.set_blocking(end, False)
    wakeup = signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _ignore) for number in (*_PASSED_ON, signal.SIGCHLD)}
    try:
        process = subprocess.Popen(command)
        while (code := process.poll()) is None:
            select.select([inner], [], [], _LOOK)
            for number in _read(inner):
                if number in _PASSED_ON:
                    process.send_signal(number)
        return code if code >= 0 else 128 - code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(inner)
        os.close(outer)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 512)
    except BlockingIOError:
        return b""


def _ignore(number: int, _: FrameType | None) -> None:
    """The signal handler: the interpreter writes to the wakeup descriptor only if there is one."""


def apart(given: dict[str, Any], directory: str) -> dict[str, Any]:
    """An executor input whose outputs are below a directory: a rank's own, which is not read."""
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
