"""Diagnosis: finds the first real error of a failed process in its output and in the files it left."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from stepset.agent.errors import ERROR_FILE
from stepset.agent.lines import Tail
from stepset.agent.process import oom_kills, outcome
from stepset.agent.signals import signal


def failure_of(status: int, tail: Tail, env: Mapping[str, str], oom_kills_before: int) -> dict[str, Any]:
    """Returns the failure of a process: how it ended, the error, its last lines, and when.

    Args:
        status: as `waitpid` returns it.
        env: may name an error file.
        oom_kills_before: `oom_kills()` before the process started.
    """
    text = tail.text()
    failure: dict[str, Any] = dict(outcome(status))
    if failure.get("signal") == signal.SIGKILL and oom_kills() > oom_kills_before:
        failure["kind"] = "OutOfMemory"
    failure["error"] = find_error(text, env.get(ERROR_FILE, ""))
    failure["tail"] = last_lines(text)
    failure["at"] = round(tail.failed_at(), 3)
    return failure


def find_error(text: str, error_file: str = "", rank: int | None = None) -> str:
    """Returns the first real error behind a failed command as one line, or "" if there is none.

    The sources, in this order: the file that torch's `record` writes, the traceback of the failed rank, the last
    traceback, a launcher's message between lines of dashes, the last line that looks like an error.
    """
    return (
        _recorded_error(error_file)
        or (last_traceback(text, f"[rank{rank}]: ") if rank is not None else "")
        or last_traceback(text)
        or _boxed_message(text)
        or _error_line(text)
    )[:1000]


def last_lines(text: str, count: int = 20, width: int = 400) -> list[str]:
    """Returns the last lines of an output; of a progress bar that overwrites itself, its final state."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in text[-count * 4000 :].split("\n")]
    return [line[:width] for line in lines if line][-count:]


def last_traceback(text: str, only_tagged: str = "") -> str:
    """Returns the exception line of the last Python traceback, or "".

    `only_tagged` is the tag that torch.distributed puts before each line, such as `[rank1]: `; "": any.
    """
    found = ""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        head, mark, _ = line.partition("Traceback (most recent call last):")
        if not mark or (only_tagged and not head.endswith(only_tagged)):
            continue
        head = head.replace("+ Exception Group ", "| ")
        for row in lines[at + 1 :]:
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
    causes = re.findall(r"Root Cause \(first observed failure\):\s*\n(.*?)(?:\n[=-]{5,}|\Z)", text, re.DOTALL)
    if causes:
        rank = re.search(r"^\s*rank\s*: (\d+)", causes[-1], re.MULTILINE)
        code = re.search(r"^\s*exitcode\s*: (-?\d+)", causes[-1], re.MULTILINE)
        if rank:
            report["rank"] = int(rank.group(1))
        if code:
            number = int(code.group(1))
            report["signal" if number < 0 else "exit_code"] = abs(number)
        return report
    for pattern, keys in (
        (r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)", ("rank", "signal")),
        (r"MPI_ABORT was invoked on rank (\d+) in communicator .*?with errorcode (\d+)", ("rank", "exit_code")),
        (r"Process name: \[(?:\[\d+,\d+\]|[^\]]*@\d+),(\d+)\]\s*Exit code:\s*(\d+)", ("rank", "exit_code")),
        (r"Abort\((\d+)\) on node \d+ \(rank (\d+) in comm 0\)", ("exit_code", "rank")),
        (r"terminated with the exit string: .*?\(signal (\d+)\)", ("signal",)),
        (r"BAD TERMINATION.*?EXIT CODE: (\d+)", ("exit_code",)),
    ):
        found = re.search(pattern, text, re.DOTALL | re.IGNORECASE)
        if found:
            return {key: int(value) for key, value in zip(keys, found.groups())}  # noqa: B905 - no strict= in Python 3.8
    return report


def _recorded_error(path: str) -> str:
    """Reads what torch's error handler wrote (torch/distributed/elastic/multiprocessing/errors/error_handler.py)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            message = json.load(file)["message"]
        text = message if isinstance(message, str) else message["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(text).strip().split("\n")[0]


def _boxed_message(text: str) -> str:
    """Returns the last message that Open MPI printed between lines of dashes."""
    boxes = re.findall(r"^-{70,}\n(.*?)^-{70,}$", text, re.DOTALL | re.MULTILINE)
    return " ".join(boxes[-1].split())[:300] if boxes else ""


def _error_line(text: str) -> str:
    signs = re.compile(
        r"\berror\b|Fatal Python error|terminate called|what\(\):|not found|[Nn]o such|[Dd]enied|cannot|can't"
        r"|[Ff]ailed|[Ff]ailure\b|Segmentation fault|[A-Z]\w+(Error|Exception)\b"
    )
    # Messages of torchrun itself when a rank has failed.
    noise = re.compile(r"torch[./]distributed[./]elastic|ChildFailedError|exitcode|first observed failure|^Failures:")
    lines = reversed(last_lines(text, 100))
    return next((line.strip() for line in lines if signs.search(line) and not noise.search(line)), "")
