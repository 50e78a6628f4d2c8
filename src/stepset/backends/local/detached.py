"""Starts a local run in a process of its own, which continues when the caller ends, also when its terminal is closed.

The caller sends the request to the new process, which starts the run, replies with its name or the error, and waits
for the run's end.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from typing import Any

from stepset.backends.base import RunRequest
from stepset.backends.local.store import RunStore
from stepset.errors import BadInputError, InfrastructureError, StepsetError

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def start_detached(store: RunStore, grace: float, request: RunRequest) -> str:
    """Starts a run in a new process and returns its name; raises as `launch.start_run`."""
    # -P: a module in the current directory must not replace one of Python's own.
    words = [sys.executable, "-P", "-m", "stepset.backends.local.detached"]
    try:
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(pickle.dumps((store, grace, request)))
            process.stdin.close()
            reply = process.stdout.readline()
    except OSError as error:
        raise InfrastructureError(f"the run cannot be started: {error.strerror or error}") from error
    return _name_in(reply)


def _name_in(reply: bytes) -> str:
    """Returns the run's name in a reply; raises the error in it."""
    if not reply:
        raise InfrastructureError("the run cannot be started: its process ended; run it without --detach")
    answer: dict[str, Any] = json.loads(reply)
    if problems := answer.get("bad_input"):
        raise BadInputError(*problems, where=answer["where"])
    if problem := answer.get("problem"):
        raise InfrastructureError(problem)
    return str(answer["name"])


def main() -> None:
    """Runs in the new process: reads a request from stdin, and writes the reply to stdout."""
    from stepset.backends.local.launch import start_run
    from stepset.signals import on_signals

    store, grace, request = pickle.load(sys.stdin.buffer)  # written by the caller, through a pipe
    if os.fork():
        os._exit(0)  # the caller waits for this process; the run's process is then no child of the caller
    try:
        handle = start_run(store, grace, request, None)
    except BadInputError as error:
        _reply({"bad_input": error.problems, "where": error.where})
    except StepsetError as error:
        _reply({"problem": str(error)})
    except OSError as error:
        _reply({"problem": f"the run cannot be started: {error.strerror or error}"})
    else:
        with on_signals(_STOP_SIGNALS, lambda _: handle.cancel()):
            _reply({"name": handle.name})
            handle.wait()


def _reply(answer: dict[str, Any]) -> None:
    """Sends the answer; closes the pipes to the caller."""
    os.write(1, json.dumps(answer).encode() + b"\n")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.close(nothing)


if __name__ == "__main__":
    main()
