"""The program that runs in each rank and starts the component's own command. Only rank 0 writes the step's outputs.

step/distributed.py puts the text of this file and a payload into the job. This file uses only the standard library,
because stepset is not installed in the component's image.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

# The variables that may contain the rank, in the order in which they are read. The agent also reads these variables,
# except STEPSET_NODE_RANK (stepset/agent/rank.py, _RANK). If a node has one process, STEPSET_NODE_RANK is the rank of
# the process.
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "STEPSET_NODE_RANK")
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_POLL_SECONDS = 1.0
"""The number of seconds between two checks whether the command has finished. The checks are needed if SIGCHLD is
blocked."""
_REST_OF_COMMAND = '"$0" "$@"'


def main(payload: dict[str, Any]) -> int:
    """Runs the component's command in this rank and returns the exit code of the command.

    The payload contains the keys `command` and `executor_input`. The item {"executor_input": true} of `command` is
    replaced by the executor input as JSON.
    """
    rank = next((os.environ[name] for name in _RANK if name in os.environ), "0")
    given = payload["executor_input"]
    scratch = None
    if rank != "0":
        scratch = tempfile.mkdtemp(prefix="stepset-rank-")
        given = redirect_outputs(given, scratch)
    command = [json.dumps(given) if isinstance(word, dict) else word for word in payload["command"]]
    try:
        return install(command) or run(command)
    finally:
        if scratch:
            with suppress(OSError):  # unlike shutil.rmtree before Python 3.13, rm can delete deep directories
                subprocess.run(["rm", "-rf", scratch], stderr=subprocess.DEVNULL)


def install(command: list[str]) -> int:
    """Installs the component's packages and returns pip's exit code.

    If the component has no packages to install, returns 0. The packages are installed once per machine and attempt. The
    other ranks of the machine wait, because concurrent pip installations conflict. KFP inserts the installation before
    the component's own command (kfp.dsl.component_factory, _get_packages_to_install_command).
    """
    if command[:2] != ["sh", "-c"] or not command[2].rstrip().endswith(_REST_OF_COMMAND):
        return 0
    key = (os.environ.get("STEPSET_RUN"), os.environ.get("STEPSET_ATTEMPT"), command[2])
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    with open_lock(Path(tempfile.gettempdir(), f"stepset-install-{os.geteuid()}-{digest}")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock.fileno()).st_size:
            return 0  # another rank has installed the packages
        code = run([*command[:3], "true"])
        lock.write("" if code else "done\n")
        return code


def open_lock(path: Path) -> TextIO:
    """Opens a file of this user in a directory that other users can also write to.

    The program exits with a message of one line if another user has created a file, a link or a pipe at this path, or
    can write to the file.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}; remove it, or set TMPDIR to a directory of your own")
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink > 1 or about.st_mode & 0o22:
        sys.exit(f"{path}: belongs to another user; remove it, or set TMPDIR to a directory of your own")
    return os.fdopen(fd, "a")


def run(command: list[str]) -> int:
    """Runs a command, forwards signals to the command, and returns its exit code.

    If a signal terminates the command, returns 128 plus the number of the signal.
    """
    # The interpreter writes the number of each signal to a pipe, and the loop below forwards the signals. A signal
    # handler that forwards signals could run inside `poll` after the command has terminated. If the kernel has reused
    # the process id of the command, the handler would send the signal to another process.
    inner, outer = os.pipe()
    for end in (inner, outer):
        os.set_blocking(end, False)
    wakeup = signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _ignore) for number in (*_FORWARDED, signal.SIGCHLD)}
    try:
        process = subprocess.Popen(command)
        while (code := process.poll()) is None:
            select.select([inner], [], [], _POLL_SECONDS)
            for number in _read(inner):
                if number in _FORWARDED:
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
    """Does nothing. The interpreter writes a signal to the wake-up descriptor only if the signal has a handler."""


def redirect_outputs(given: dict[str, Any], directory: str) -> dict[str, Any]:
    """Returns the executor input for a rank whose outputs are ignored. All outputs are in `directory`."""
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
    """Runs the program with a payload that is given as JSON, and exits with the command's exit code."""
    sys.exit(main(json.loads(payload_text)))
