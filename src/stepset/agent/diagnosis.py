"""Finds the cause of a failed process in the output of the process and in the files that the process has written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepset.agent.errors import ERROR_FILE
from stepset.agent.events import ERROR_LIMIT
from stepset.agent.lines import NO_SECRETS, Tail
from stepset.agent.loop import read_regular
from stepset.agent.process import exit_code, oom_kills, outcome
from stepset.agent.redact import Redactor, parse_json
from stepset.agent.signals import signal

_LARGEST_ERROR_FILE = 1 << 20  # bytes; the error file of torch contains a traceback

# Every repetition in these patterns has a small limit. Therefore a search takes linear time in any output.
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
    """Returns whether the output of a torchrun process with exit code 0 reports the failure of another node.

    torchrun waits at its exit barrier until the ranks of every node have exited with 0. After 300 s, it logs an error
    and exits with 0 (torch 1.9 to 2.15, torch/distributed/elastic/agent/server/api.py, _exit_barrier).

    Args:
        node: the index of the node. Node 0 hosts the barrier and determines whether the run succeeds. On another node,
            a timeout does not prove a failure, because node 0 may be slow. Any other error means that node 0 is lost.
    """
    _, found, error = text.rpartition("Error waiting on exit barrier")
    return bool(found) and (not node or not re.search(r"(?:wait|Socket) [Tt]imeout", error))


def failure_of(
    status: int, tail: Tail, env: Mapping[str, str], oom_kills_before: int, *, launches: bool = False
) -> dict[str, Any]:
    """Returns the failure of a process. It contains the exit code or signal, the error, the last lines and the time.

    Args:
        status: the wait status of the process, as `waitpid` returns it.
        env: the environment of the process, which may contain the path of an error file.
        oom_kills_before: the value of `oom_kills()` before the process started.
        launches: whether the process is a launcher, whose output contains the output of ranks.
    """
    text = tail.text()
    failure: dict[str, Any] = dict(outcome(status))
    if failure.get("signal") == signal.SIGKILL and oom_kills() > oom_kills_before:
        failure["kind"] = "OutOfMemory"
    code = None if launches else exit_code(failure)
    failure["error"] = find_error(text, env.get(ERROR_FILE, ""), redactor=tail.redactor, code=code)
    failure["tail"] = last_lines(text)
    failure["at"] = round(tail.failed_at(), 3)
    return failure


def find_error(
    text: str,
    error_file: str = "",
    rank: int | None = None,
    redactor: Redactor = NO_SECRETS,
    code: int | None = None,
) -> str:
    """Returns one line with the first error that made a command fail, or "" if no error is found.

    These are the sources, in this order: the file that torch's `record` writes, the traceback of the failed rank, the
    last traceback, the error of a crash, a launcher's message between lines of dashes, the last line that looks like an
    error, and the text of `sys.exit`. `text` must be redacted. `redactor` redacts the content of the file.

    Args:
        code: the exit code of the program that printed the text, 128 + n for signal n. None if it is unknown.
    """
    recorded, text = _recorded_error(error_file, redactor), without_ignored(text)
    if not recorded and code is not None:
        text = _after_handled(text, code)
    return (
        recorded
        or (last_traceback(text, f"[rank{rank}]: ") if rank is not None else "")
        or last_traceback(text)
        or _crash(text)
        or _boxed_message(text)
        or _error_line(text)
        or (_exit_text(text) if code == 1 else "")
    )[:ERROR_LIMIT]


def without_ignored(text: str) -> str:
    """Returns an output without the exceptions that Python has ignored, for example in `__del__`.

    Python continues after such an exception. It prints `Exception ignored in: ...` and a traceback.
    Source: CPython 3.8 to 3.14, Python/errors.c, write_unraisable_exc_file.
    """
    return re.sub(rf"Exception ignored [^\n]{{0,999}}\n{_TRACEBACK}(?:{_CHAINED}{_TRACEBACK})*", "", text)


_TRACEBACK = r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)*[^\n]*(?:\n|\Z)"
_CHAINED = r"\n?(?:During handling of|The above exception was) [^\n]*\n\n?"


def last_lines(text: str, count: int = 20, width: int = 400) -> list[str]:
    """Returns the last lines of an output. If a progress bar overwrites itself, returns its final state."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in text[-count * 4000 :].split("\n")]
    return [line[:width] for line in lines if line][-count:]


def last_traceback(text: str, tag: str = "") -> str:
    """Returns the exception line of the last Python traceback, or "" if there is no traceback.

    `tag` is the text that torch.distributed puts before each line of a rank, such as `[rank1]: `. "" means any rank.
    """
    *_, (_, _, found) = (0, 0, ""), *_tracebacks(text.split("\n"), tag)
    return found


def _tracebacks(lines: Sequence[str], tag: str = "") -> Iterator[tuple[int, int, str]]:
    """Yields, for each traceback, the indexes of its first line and of its exception line, and the exception line.

    The message of an exception that torch raises again, for example for a worker of a DataLoader, contains the
    `Original Traceback` of the worker (torch 2.15, torch/_utils.py, ExceptionWrapper).
    """
    for at, line in enumerate(lines):
        head, mark, _ = line.replace("Original Traceback", "Traceback").partition("Traceback (most recent call last):")
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
                    yield at, below, inner.rstrip()
                break


_TORCHRUN_ERRORS = ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "ChildFailedError")


def launcher_report(text: str) -> dict[str, Any]:
    """Returns `rank`, `exit_code` and `signal` of the first failed rank, as far as a launcher reports them.

    The function reads torchrun's root cause (torch 2.15) and the messages of Open MPI 4 and 5 and of MPICH 4.
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
            return {key: int(value) for key, value in zip(keys, found.groups())}
    return report


def failed_by_itself(text: str, failure: Mapping[str, Any], *, wrapped: bool) -> bool:
    """Returns whether mpirun itself has failed. Call this only if mpirun does not report a failed rank.

    Args:
        text: the output of the launcher.
        failure: the failure of the launcher, as `failure_of` returns it.
        wrapped: whether the agent wraps the ranks. If not, only a message of Open MPI shows that mpirun has failed.
    """
    if "kind" in failure or "signal" in failure:
        return False
    return wrapped or bool(_boxed_message(text) and not last_traceback(text))


def _recorded_error(path: str, redactor: Redactor) -> str:
    """Returns the error in a file of torch's error handler (torch/distributed/elastic/multiprocessing/errors/)."""
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
        r"\b[Ee]rror\b(?![-.\w]|(?: rate)?[:= ]{1,3}\d{0,9}\.\d)|terminate called|what\(\):|not found"
        r"|[Nn]o such|[Dd]enied|cannot|can't"
        r"|[Ff]ailed|[Ff]ailure\b|Segmentation fault|[A-Z]\w+(Error|Exception)\b"
    )
    # Matches torchrun's messages about a failed rank, lines of stack traces that Open MPI or Python printed, and
    # warnings.
    noise = re.compile(
        r"torch[./]distributed[./]elastic|ChildFailedError|exitcode|first observed failure|^Failures:"
        r"|End of error message|^  File|\bWARN(?:ING)?\b|Warning: "
    )
    # The stacks of all threads follow the line "Fatal Python error: Aborted". The cause is printed before this line.
    lines = reversed(last_lines(text.split("Python error: A")[0], 100))
    return next((row.strip() for row in lines if signs.search(_PATH.sub("", row)) and not noise.search(row)), "")


_PATH = re.compile(r"[^\s:=/]{0,255}/[^\s:]{0,999}")
"""Matches a path up to a colon. The words of a path, such as `runs/error-analysis`, do not report an error."""
_LOGGED = re.compile(r"\b(?:ERROR|CRITICAL)\b")
_AT_EXIT = re.compile(
    r"\s|\[rank\d|\[[WEF]\d{3,4} |[-=*]{3}|terminate called|Fatal Python|(?:Current t|T)hread 0x|Extension modules"
    r"|Exception (?:ignored|raised)|MPI_ABORT|Abort|with errorcode|NOTE:|You may or may not|exactly when|wandb:|frame #"
    r"|CUDA |For debugging|Compile with|During handling|The above exception|Segmentation fault|Killed"
    r"|.{0,300}[Ww]arning:"
)
"""Matches lines that a process may print between an uncaught exception and its exit."""
_MANY, _FEW = 20, 3
_FRAME = re.compile(r'File "[^"]{0,999}", line \d{1,9},? in (\S{1,200})')
_OUTERMOST = ("<module>", "_run_module_as_main", "_bootstrap", "_bootstrap_inner")
"""The functions with which a traceback begins if the interpreter, a thread or a process of Python has printed it."""
_TRAINED = re.compile(r"(?!.{0,300}(?:\d%|it/s|s/it))\W{0,9}(?:epoch|step|iter|loss)", re.IGNORECASE)
"""Matches a line that reports progress. A progress bar may be drawn once more after an uncaught exception."""


def _after_handled(text: str, code: int) -> str:
    """Returns the output after the last traceback if the program has handled this exception, or else the whole output.

    Python exits with code 1 after an uncaught exception. A traceback before another exit code or a signal is the cause
    only if the process then printed no more than at an exit, and did not crash while the main program still ran. Before
    code 1, a traceback is the cause unless one of these conditions holds:

    - The program logged the traceback as an error and went on.
    - The program then reported progress.
    - The program then printed many lines. If the traceback does not begin in the module, the interpreter has not
      printed it, but code that has caught the exception. Then a few lines are many.
    """
    lines = text.split("\n")
    found = list(_tracebacks(lines))
    if not found:
        return text
    head, end, _ = found[-1]
    below = [line for line in lines[end + 1 :] if line.strip()]
    more = [line for line in below if not _AT_EXIT.match(line)]
    if code != 1:
        handled = bool(more) or _crashed_in_program(below)
    elif head > 0 and _LOGGED.search(lines[head - 1][:999]):
        handled = bool(more)
    else:
        first = next(filter(None, map(_FRAME.search, lines[head + 1 : end])), None)
        caught = first is not None and first[1] not in _OUTERMOST
        handled = any(map(_TRAINED.match, more)) or len(more) > (_FEW if caught else _MANY)
    return "\n".join(lines[end + 1 :]) if handled else text


def _crashed_in_program(lines: Sequence[str]) -> bool:
    """Returns whether faulthandler reports a crash at a time when the main program had not ended.

    faulthandler prints the outermost frame of each thread last. While Python exits, no thread runs the module.
    """
    start = next((at for at, line in enumerate(lines) if line.startswith("Fatal Python error: ")), len(lines))
    frames = (_FRAME.search(line) for line in lines[start:])
    return any(frame is not None and frame[1] == "<module>" for frame in frames)


def _crash(text: str) -> str:
    """Returns the line that faulthandler prints before the stacks, except `Aborted`, which has another cause."""
    return next(
        (row.strip() for row in reversed(last_lines(text, 200)) if re.match("Fatal Python error: (?!Aborted)", row)), ""
    )


def _exit_text(text: str) -> str:
    """Returns the last line if it may be the text of `sys.exit`, which Python prints before it exits with code 1."""
    lines = last_lines(text)
    if not lines or any(re.search(r"\b(?:ERROR|CRITICAL|FATAL)\b", line) for line in lines):
        return ""
    last = lines[-1].strip()
    other = (
        r"\W*$|.{0,300}\b(?:DEBUG|INFO|WARN(?:ING)?)\b|[{\[]|\W{0,9}(?:epoch|step|iter|loss)|.{0,300}(?:\d%|it/s|s/it)"
        r"|File \"|Extension modules: "
    )
    return "" if re.match(other, last, re.IGNORECASE) else last
