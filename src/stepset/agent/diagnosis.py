"""Diagnosis: finds the first real error of a failed process in its output and in the files it left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stepset.agent.errors import ERROR_FILE
from stepset.agent.events import ERROR_LIMIT, parse_json
from stepset.agent.lines import NO_SECRETS, Tail
from stepset.agent.loop import read_regular
from stepset.agent.process import oom_kills, outcome
from stepset.agent.redact import Redactor
from stepset.agent.signals import signal

_LARGEST_ERROR_FILE = 1 << 20  # bytes; the error file of torch contains a traceback

# Every repetition in these patterns is short, so that a search takes linear time in any output.
_NUMBER = r"\d{1,9}"
_LAUNCHERS = (
    (r"process rank NUMBER with PID \d{1,9} on node \S{1,255} exited on\s{1,9}signal NUMBER", ("rank", "signal")),
    (r"MPI_ABORT was invoked on rank NUMBER in communicator .{0,300}?with errorcode NUMBER", ("rank", "exit_code")),
    (
        r"Process name: \[(?:\[\d{1,9},\d{1,9}\]|[^\]]{0,255}@\d{1,9}),NUMBER\]\s{0,9}Exit code:\s{0,9}NUMBER",
        ("rank", "exit_code"),
    ),
    (r"Abort\(NUMBER\) on node \d{1,9} \(rank NUMBER in comm 0\)", ("exit_code", "rank")),
    (r"terminated with the exit string: .{0,300}?\(signal NUMBER\)", ("signal",)),
    (r"BAD TERMINATION.{0,1000}?EXIT CODE: NUMBER", ("exit_code",)),
)


def left_alone(text: str, node: int) -> bool:
    """Returns whether a torchrun that ended with 0 reports that another node of its last rendezvous round failed.

    torchrun waits at its exit barrier until the ranks of every node have ended with 0. After 300 s it logs an error and
    ends with 0 (torch 1.9 to 2.15, torch/distributed/elastic/agent/server/api.py, _exit_barrier).

    Args:
        node: the index of the node. On other nodes than 0 a timeout proves nothing: node 0, which hosts the barrier and
            decides about the run, may be slower. Any other error means that node 0 is lost.
    """
    _, found, error = text.rpartition("Error waiting on exit barrier")
    return bool(found) and (not node or not re.search(r"(?:wait|Socket) [Tt]imeout", error))


def failure_of(status: int, tail: Tail, env: Mapping[str, str], oom_kills_before: int) -> dict[str, Any]:
    """Returns the failure of a process: how it ended, the error, its last lines, and when.

    Args:
        status: as `waitpid` returns it.
        env: the environment of the process, which may name an error file.
        oom_kills_before: `oom_kills()` before the process started.
    """
    text = tail.text()
    failure: dict[str, Any] = dict(outcome(status))
    if failure.get("signal") == signal.SIGKILL and oom_kills() > oom_kills_before:
        failure["kind"] = "OutOfMemory"
    failure["error"] = find_error(text, env.get(ERROR_FILE, ""), redactor=tail.redactor)
    failure["tail"] = last_lines(text)
    failure["at"] = round(tail.failed_at(), 3)
    return failure


def find_error(text: str, error_file: str = "", rank: int | None = None, redactor: Redactor = NO_SECRETS) -> str:
    """Returns the first real error behind a failed command as one line, or "" if there is none.

    The sources, in this order: the file that torch's `record` writes, the traceback of the failed rank, the last
    traceback, a launcher's message between lines of dashes, the last line that looks like an error. `text` is redacted
    already, the content of the file is redacted by `redactor`.
    """
    return (
        _recorded_error(error_file, redactor)
        or (last_traceback(text, f"[rank{rank}]: ") if rank is not None else "")
        or last_traceback(text)
        or _boxed_message(text)
        or _error_line(text)
    )[:ERROR_LIMIT]


def last_lines(text: str, count: int = 20, width: int = 400) -> list[str]:
    """Returns the last lines of an output; of a progress bar that overwrites itself, its final state."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in text[-count * 4000 :].split("\n")]
    return [line[:width] for line in lines if line][-count:]


def last_traceback(text: str, tag: str = "") -> str:
    """Returns the exception line of the last Python traceback, or "".

    `tag` is the text that torch.distributed puts before each line of a rank, such as `[rank1]: `; "": any rank.
    """
    found = ""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        head, mark, _ = line.partition("Traceback (most recent call last):")
        if not mark or (tag and not head.endswith(tag)):
            continue
        head = head.replace("+ Exception Group ", "| ")
        for below in range(at + 1, len(lines)):  # a copy of the list for each traceback would take quadratic time
            row = lines[below]
            inner = row[len(head) :] if row.startswith(head) else row if not head.strip() else ""
            if not inner.strip():
                break
            if not inner[0].isspace():
                # An exception of torchrun itself only states that a rank failed.
                if re.match(r"[A-Za-z_][\w.]*", inner) and not inner.startswith(_TORCHRUN_ERRORS):
                    found = inner.rstrip()
                break
    return found


_TORCHRUN_ERRORS = ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "ChildFailedError")


def launcher_report(text: str) -> dict[str, Any]:
    """Returns what a launcher reports about the first rank that failed: rank, exit_code or signal, where given.

    Reads torchrun's root cause (torch 2.15) and the messages of Open MPI 4 and 5 and MPICH 4.
    """
    report: dict[str, Any] = {}
    _, cause, below = text.rpartition("Root Cause (first observed failure):")
    if cause:
        below = re.split(r"\n[=-]{5}", below, maxsplit=1)[0]
        rank = re.search(rf"^ {{0,9}}rank {{0,9}}: ({_NUMBER})", below, re.MULTILINE)
        code = re.search(rf"^ {{0,9}}exitcode {{0,9}}: (-?{_NUMBER})", below, re.MULTILINE)
        if rank:
            report["rank"] = int(rank.group(1))
        if code:
            number = int(code.group(1))
            report["signal" if number < 0 else "exit_code"] = abs(number)
        return report
    for pattern, keys in _LAUNCHERS:
        found = re.search(pattern.replace("NUMBER", f"({_NUMBER})"), text, re.DOTALL | re.IGNORECASE)
        if found:
            return {key: int(value) for key, value in zip(keys, found.groups())}  # noqa: B905 - no strict= in Python 3.8
    return report


def failed_by_itself(text: str, failure: Mapping[str, Any], *, wrapped: bool) -> bool:
    """Returns whether an mpirun that reports no failed rank has failed itself.

    Args:
        text: the output of the launcher.
        failure: its failure, as `failure_of` returns it.
        wrapped: whether the agent started every rank; if not, only a message of Open MPI shows that mpirun has failed.
    """
    if "kind" in failure or "signal" in failure:
        return False
    return wrapped or bool(_boxed_message(text) and not last_traceback(text))


def _recorded_error(path: str, redactor: Redactor) -> str:
    """Reads what torch's error handler wrote (torch/distributed/elastic/multiprocessing/errors/error_handler.py)."""
    try:
        message = parse_json(read_regular(path, _LARGEST_ERROR_FILE)[1])["message"]
        text = message if isinstance(message, str) else message["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return redactor.text(text).strip().split("\n")[0] if isinstance(text, str) else ""


def _boxed_message(text: str) -> str:
    """Returns the last message that Open MPI printed between lines of dashes."""
    boxes = re.findall(r"^-{70,}\n(.*?)^-{70,}$", text, re.DOTALL | re.MULTILINE)
    return " ".join(boxes[-1].split())[:300] if boxes else ""


def _error_line(text: str) -> str:
    signs = re.compile(
        r"\berror\b|Fatal Python error|terminate called|what\(\):|not found|[Nn]o such|[Dd]enied|cannot|can't"
        r"|[Ff]ailed|[Ff]ailure\b|Segmentation fault|[A-Z]\w+(Error|Exception)\b"
    )
    # Messages of torchrun itself when a rank has failed, and the last line of Open MPI's stack of a crashed process.
    noise = re.compile(
        r"torch[./]distributed[./]elastic|ChildFailedError|exitcode|first observed failure|^Failures:"
        r"|End of error message"
    )
    lines = reversed(last_lines(text, 100))
    return next((line.strip() for line in lines if signs.search(line) and not noise.search(line)), "")
