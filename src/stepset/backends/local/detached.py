"""Starts a local run in a separate process.

The run continues after the caller exits, or after the terminal of the caller is closed. The caller sends the request to
the new process. The new process starts the run, and replies with the name of the run or with the error. Then the new
process waits until the run has finished.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepset.backends.base import RunRequest
from stepset.backends.local.runs.store import RunStore
from stepset.errors import BadInputError, InfrastructureError, StepsetError

if TYPE_CHECKING:
    from stepset.signals import StopRequests

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def start_detached(store: RunStore, grace: float | None, request: RunRequest) -> str:
    """Starts a run in a new process, and returns the name of the run. Raises the same errors as `launch.start_run`."""
    # -P: a module in the current directory must not replace a module of Python's standard library.
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
    """Returns the name of the run in a reply. If the reply contains an error, raises this error."""
    if not reply:
        raise InfrastructureError("the run cannot be started: its process ended; run it in the foreground")
    answer: dict[str, Any] = json.loads(reply)
    if problems := answer.get("bad_input"):
        raise BadInputError(*problems, where=answer["where"])
    if problem := answer.get("problem"):
        raise InfrastructureError(problem)
    return str(answer["name"])


def main() -> None:
    """Runs in the new process. Reads a request from stdin, and writes the reply to stdout."""
    from stepset.signals import StopRequests, on_signals

    store, grace, request = pickle.load(sys.stdin.buffer)  # written by the caller, through a pipe
    # The run continues in the forked process. Only the process that exits here is a child of the caller.
    if os.fork():
        os._exit(0)
    requests = StopRequests()
    request = replace(request, stopping=lambda: requests.exist() or _caller_has_ended())

    def stop(number: int) -> None:
        requests.add()

    with on_signals(_STOP_SIGNALS, stop):
        _run(store, grace, request, requests)


def _run(store: RunStore, grace: float | None, request: RunRequest, requests: StopRequests) -> None:
    """Starts the run, sends the reply, and waits until the run has finished."""
    from stepset.backends.local.launch import start_run

    try:
        handle = start_run(store, grace, request, None, submitted=True)
    except BadInputError as error:
        _reply({"bad_input": error.problems, "where": error.where})
    except StepsetError as error:
        _reply({"problem": str(error)})
    except OSError as error:
        _reply({"problem": f"the run cannot be started: {error.strerror or error}"})
    else:
        requests.attach(handle.cancel)
        _reply({"name": handle.name})
        handle.wait()


def _caller_has_ended() -> bool:
    """Returns whether the caller has exited. If the caller has exited, the pipe for the reply has no reader."""
    poll = select.poll()
    poll.register(1, 0)  # POLLERR is reported even if no event is requested
    return bool(poll.poll(0))


def _reply(answer: dict[str, Any]) -> None:
    """Sends the answer to the caller, and closes the pipes to the caller."""
    os.write(1, json.dumps(answer).encode() + b"\n")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.close(nothing)


if __name__ == "__main__":
    main()
