#!/usr/bin/env python3
"""stepset's agent: stands around the training command in every pod.

Targets and the local backend start it (`run`), launchers start it before each rank (`rank`), and in local runs mpirun
calls it instead of ssh (`rsh`). It waits for the other pods' names, starts the command, gives every line its rank,
stops what must be stopped, and says what went wrong first. The contract is docs/design/agent.md.

A file that stands alone: it is brought into images as it is. Standard library only, Python 3.8. Every rank pays for its
start, so what only some ways need is imported there, and plain classes stand where dataclasses would (importing those
costs more than the rest of a rank's start).
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, NoReturn
else:
    try:
        import _signal as signal  # `signal` wraps these in enums: 8 ms more at the start of every rank
    except ImportError:
        import signal

if __name__ == "__main__" and sys.argv[1:2] == ["run"]:
    # To process 1, which the agent is in a pod, the kernel gives no signal that it has no handler for yet. What is held
    # back comes when `Loop` has one.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))

EXIT_PEERS = 70
EXIT_WORLD = 71
EXIT_RESULT = 72
EXIT_SETUP = 73
_OWN_CODES = (EXIT_PEERS, EXIT_WORLD, EXIT_RESULT, EXIT_SETUP)

ATOMIC = 4096  # PIPE_BUF of Linux: a write up to this size is never torn by another writer's
LINE_LIMIT = 1 << 20
READ_SIZE = 1 << 16
TAIL_SIZE = 1 << 18
OUT_LIMIT = 1 << 20  # unwritten bytes above which ranks' pipes are left alone until the reader has caught up
MESSAGE_LIMIT = 4096  # what the kubelet keeps of a termination message

DRAIN = 0.2  # seconds a dead process's pipe may stay open, held by a grandchild
LINGER = 0.5  # seconds what a command leaves behind may take to end by itself
REST = 2.0  # seconds the other ranks may run on after one has failed
LIFELINE_GRACE = 2.0

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
# Stops ranks through mpirun. SIGTERM would make Open MPI kill them 2 s later, however long saving takes; this one it
# hands on and goes on waiting, as MPICH does (Open MPI 4.1.4, MPICH 4.0.2, executed).
_STOP_BY_MPIRUN = signal.SIGUSR1
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


class AgentError(Exception):
    """A failure of the agent's own; its code becomes the exit code.

    Args:
        code: one of the EXIT_ codes.
        kind: the failure's kind as in the state of a run.
        message: what is wrong, where, and what to do, one line.
    """

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind


class Ignoring:
    """For what is gone already, and for what the system may refuse; contextlib would cost every rank 3 ms."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, OSError)


IF_POSSIBLE = Ignoring()


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """The agent was told to stop before the command was started."""


def setup_error(message: str) -> AgentError:
    """Something around the command is not as it should be."""
    return AgentError(EXIT_SETUP, "Infrastructure", message)


# ---------------------------------------------------------------------------------------------------------------------
# Lines: bytes of a process in, whole lines with their source out


class Lines:
    """Gives each line of one stream its source, a block of lines at a time.

    A line longer than LINE_LIMIT comes in parts `[source+] ...`, so that memory stays bounded whatever is printed.

    Args:
        source: what stands in brackets before each line.
        limit: bytes without a line end to hold back.
    """

    def __init__(self, source: str, limit: int = LINE_LIMIT) -> None:
        self.head = b"[%s] " % source.encode()
        self.part_head = b"[%s+] " % source.encode()
        self._limit = limit
        self._rest = bytearray()
        self._open = False

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes."""
        end = data.rfind(b"\n")
        if end < 0:
            return self._hold(data)
        block = data[:end]
        if self._rest:
            block = bytes(self._rest) + block
            self._rest.clear()
        self._open = False
        return self.complete(block) + (self._hold(data[end + 1 :]) if end + 1 < len(data) else b"")

    def complete(self, block: bytes) -> bytes:
        """Whole lines of a block that lacks its last line end."""
        return self.head + block.replace(b"\n", b"\n" + self.head) + b"\n"

    def finish(self) -> bytes:
        """The last line, where the stream ended without a line end."""
        if not self._rest and not self._open:
            return b""
        last = self.complete(bytes(self._rest))
        self._rest.clear()
        self._open = False
        return last

    def _hold(self, data: bytes) -> bytes:
        self._rest += data
        if len(self._rest) <= self._limit:
            return b""
        part = b"%s%s\n" % (self.part_head, bytes(self._rest))
        self._rest.clear()
        self._open = True
        return part


def packed(lines: bytes) -> list[bytes]:
    """Whole lines cut into pieces that one write puts into a pipe untorn; longer lines become `+` parts."""
    pieces = []
    at, size = 0, len(lines)
    while size - at > ATOMIC:
        end = lines.rfind(b"\n", at, at + ATOMIC) + 1
        if end == 0:
            end = lines.index(b"\n", at) + 1
            pieces += _parts(lines[at : end - 1])
        else:
            pieces.append(lines[at:end])
        at = end
    if at < size:
        pieces.append(lines[at:])
    return pieces


def _parts(line: bytes) -> list[bytes]:
    mark, _, text = line.partition(b"] ")
    part_mark = mark if mark.endswith(b"+") else mark + b"+"
    room = ATOMIC - len(part_mark) - 3
    cut = [text[at : at + room] for at in range(0, len(text), room)]
    return [b"%s] %s\n" % (part_mark, piece) for piece in cut[:-1]] + [b"%s] %s\n" % (mark, cut[-1])]


class Joiner:
    """Takes in lines that ranks have written already, and joins what was cut only to fit one write.

    Args:
        on_event: called with the text of each `[stepset]` line; returns what to print of it.
    """

    def __init__(self, on_event: Callable[[bytes], bytes]) -> None:
        self._on_event = on_event
        self._rest = b""
        self._parts: dict[bytes, bytearray] = {}
        self._opened: set[bytes] = set()

    def feed(self, data: bytes) -> bytes:
        """What to print of a chunk that may end anywhere."""
        data = self._rest + data if self._rest else data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return self.lines(data[:end])

    def lines(self, block: bytes) -> bytes:
        """What to print of whole lines."""
        if not self._parts and b"+] " not in block and b"[stepset" not in block:
            return block
        out = []
        for line in block.split(b"\n")[:-1]:
            mark, _, text = line.partition(b"] ")
            if mark.endswith(b"+") and mark.startswith((b"[rank ", b"[stepset")):
                held = self._parts.setdefault(mark[:-1], bytearray())
                held += text
                if len(held) > LINE_LIMIT:
                    out.append(b"%s] %s\n" % (mark, bytes(held)))
                    held.clear()
                continue
            if mark in self._parts:
                text = bytes(self._parts.pop(mark)) + text
                line = b"%s] %s" % (mark, text)
            event = mark == b"[stepset" or mark.startswith(b"[stepset ")
            out.append(self._on_event(text) if event else line + b"\n")
        return b"".join(out)

    def finish(self, source: bytes | None = None) -> bytes:
        """Lines whose end never came, because their rank was killed; of one source, or of all."""
        marks = [b"[" + source] if source else [m for m in self._parts if not m.startswith(b"[stepset")]
        held = [(mark, self._parts.pop(mark)) for mark in marks if mark in self._parts]
        return b"".join(b"%s] %s\n" % (mark, bytes(text)) for mark, text in held)


class LauncherLines(Lines):
    """A launcher's output, in which lines of ranks that run in other pods come along.

    Args:
        source: for the launcher's own lines.
        joiner: for those of ranks.
    """

    def __init__(self, source: str, joiner: Joiner) -> None:
        super().__init__(source)
        self._joiner = joiner

    def complete(self, block: bytes) -> bytes:
        """Whole lines; a rank's as they are, also behind the tag that an option like --tag-output puts there."""
        if b"[rank " not in block and b"[stepset" not in block:
            return super().complete(block)
        out = []
        for line in block.split(b"\n"):
            at = _rank_line(line)
            out.append(super().complete(line) if at < 0 else self._joiner.lines(line[at:] + b"\n"))
        return b"".join(out)


def _rank_line(line: bytes) -> int:
    """Where a rank's line starts within a launcher's, or -1."""
    if line.startswith((b"[rank ", b"[stepset")):
        return 0
    import re

    tag = re.match(rb"(?:\[\d+,\d+\](?:<std(?:out|err)>)?: ?|\[\d+\] ?)(?=\[(?:rank \d|stepset))", line)
    return tag.end() if tag else -1


class Tail:
    """The end of what a process said, for the verdict.

    `traced` is when it last began a traceback: the rank that failed first may well be the last to be gone.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self.traced = 0.0

    def add(self, data: bytes) -> None:
        """Takes a chunk in."""
        self._data += data
        if len(self._data) > 2 * TAIL_SIZE:
            del self._data[:-TAIL_SIZE]
        if b"Traceback (most recent call last)" in data:
            self.traced = time.time()

    def text(self) -> str:
        """The end of it, up to TAIL_SIZE."""
        return bytes(self._data[-TAIL_SIZE:]).decode("utf-8", "replace")

    def failed_at(self) -> float:
        """When the failure that ends the process now happened: at its traceback, if that was just before."""
        now = time.time()
        return self.traced if now - self.traced < 10 else now


# ---------------------------------------------------------------------------------------------------------------------
# What went wrong


def last_lines(text: str, count: int = 20, width: int = 400) -> list[str]:
    """The last lines of an output; of a progress bar that overwrites itself only what is left to be seen."""
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in text[-count * 4000 :].split("\n")]
    return [line[:width] for line in lines if line][-count:]


def last_traceback(text: str, only_tagged: str = "") -> str:
    """The exception line of the last Python traceback, or "".

    Args:
        text: an output, or its end.
        only_tagged: a tag that torch.distributed puts before each line, such as `[rank1]: `; "" for any.
    """
    import re

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
                # torchrun's own: it only says that a rank has failed.
                if re.match(r"[A-Za-z_][\w.]*", inner) and not inner.startswith(_NANNY):
                    found = inner.rstrip()
                break
    return found


_NANNY = ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "ChildFailedError")


def launcher_report(text: str) -> dict[str, Any]:
    """What a launcher says of the first rank that failed: rank, exit_code or signal, as far as it says so.

    Reads torchrun's root cause (torch 2.15), Open MPI 4 and 5, MPICH 4.
    """
    import re

    report: dict[str, Any] = {}
    causes = re.findall(r"Root Cause \(first observed failure\):\s*\n(.*?)(?:\n[=-]{5,}|\Z)", text, re.DOTALL)
    if causes:
        rank = re.search(r"^\s*rank\s*: (\d+)", causes[-1], re.MULTILINE)
        code = re.search(r"^\s*exitcode\s*: (-?\d+)", causes[-1], re.MULTILINE)
        if rank:
            report["rank"] = int(rank.group(1))
        if code:
            report.update(_code_or_signal(int(code.group(1))))
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
            return {key: int(value) for key, value in zip(keys, found.groups())}  # noqa: B905 - Python 3.8 knows no strict=
    return report


def _code_or_signal(code: int) -> dict[str, Any]:
    return {"signal": -code} if code < 0 else {"exit_code": code}


def find_error(text: str, error_file: str = "", rank: int | None = None) -> str:
    """The first real error behind a failed command, one line, or "" where the output shows none.

    In this order: the file torch's `record` leaves, the failed rank's traceback, the last traceback, what a launcher
    says between lines of dashes, the last line that looks like an error.
    """
    return (
        _recorded_error(error_file)
        or (last_traceback(text, f"[rank{rank}]: ") if rank is not None else "")
        or last_traceback(text)
        or _boxed_message(text)
        or _error_line(text)
    )[:1000]


def _recorded_error(path: str) -> str:
    """What torch's error handler wrote (torch/distributed/elastic/multiprocessing/errors/error_handler.py)."""
    import json

    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            message = json.load(file)["message"]
        text = message if isinstance(message, str) else message["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(text).strip().split("\n")[0]


def _boxed_message(text: str) -> str:
    """Open MPI's help texts, which stand between lines of dashes."""
    import re

    boxes = re.findall(r"^-{70,}\n(.*?)^-{70,}$", text, re.DOTALL | re.MULTILINE)
    return " ".join(boxes[-1].split())[:300] if boxes else ""


def _error_line(text: str) -> str:
    import re

    signs = re.compile(
        r"\berror\b|Fatal Python error|terminate called|what\(\):|not found|[Nn]o such|[Dd]enied|cannot|can't"
        r"|[Ff]ailed|[Ff]ailure\b|Segmentation fault|[A-Z]\w+(Error|Exception)\b"
    )
    # What torchrun says of itself when a rank has failed.
    noise = re.compile(r"torch[./]distributed[./]elastic|ChildFailedError|exitcode|first observed failure|^Failures:")
    lines = reversed(last_lines(text, 100))
    return next((line.strip() for line in lines if signs.search(line) and not noise.search(line)), "")


def fitted(data: dict[str, Any], limit: int, form: str = "%s") -> bytes:
    """A failure as JSON in at most `limit` bytes: earlier lines are left out first, then the error is cut.

    Args:
        form: what stands around the JSON, `%s` in its place.
    """
    import json

    while True:
        message = (form % json.dumps(data, ensure_ascii=False)).encode("utf-8", "replace")
        if len(message) <= limit:
            return message
        if data.get("tail"):
            data = {**data, "tail": data["tail"][1:]}
        else:
            data = {**data, "tail": [], "error": data["error"][: len(data["error"]) // 2]}


def failure_of(status: int, tail: Tail, env: Mapping[str, str], oom_kills_before: int) -> dict[str, Any]:
    """What is known of a process that failed.

    Args:
        status: as `waitpid` gives it.
        tail: the end of its output.
        env: its environment, which may name an error file.
        oom_kills_before: `oom_kills()` before it was started.
    """
    text = tail.text()
    failure: dict[str, Any] = dict(outcome(status))
    if failure.get("signal") == signal.SIGKILL and oom_kills() > oom_kills_before:
        failure["kind"] = "OutOfMemory"
    failure["error"] = find_error(text, env.get(_ERROR_FILE, ""))
    failure["tail"] = last_lines(text)
    failure["at"] = round(tail.failed_at(), 3)
    return failure


def failure_of_agent(error: AgentError) -> dict[str, Any]:
    """What is known of a failure of the agent's own."""
    return {"kind": error.kind, "exit_code": error.code, "error": str(error), "at": now()}


def oom_kills() -> int:
    """How often the kernel has killed in this container (cgroup) for want of memory; 0 where nobody counts."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2)[1:] for line in file]
    except OSError:
        return 0
    count = 0
    for controllers, path in groups:
        if controllers == "memory":  # version 1; in a container only the root of the tree is there to be read
            places = (f"/sys/fs/cgroup/memory{path}/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control")
        elif not controllers:
            places = (f"/sys/fs/cgroup{path}/memory.events", "/sys/fs/cgroup/memory.events")
        else:
            continue
        for place in places:
            with IF_POSSIBLE, open(place, encoding="utf-8") as file:
                count += next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
                break
    return count


# ---------------------------------------------------------------------------------------------------------------------
# Processes


def outcome(status: int) -> dict[str, int]:
    """A wait status as `{"exit_code": n}` or `{"signal": n}`."""
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"exit_code": os.WEXITSTATUS(status)}


def exit_code(end: Mapping[str, Any]) -> int:
    """A shell's exit code for an outcome: 128 + n for signal n."""
    return 128 + int(end["signal"]) if "signal" in end else int(end.get("exit_code", 1))


def now() -> float:
    """Seconds since the epoch, as events give them."""
    return round(time.time(), 3)


def which(program: str, env: Mapping[str, str]) -> str | None:
    """The file that a program's name stands for, or None."""
    if "/" in program:
        return program
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


_libc: Any = None


def prctl(option: int, value: int) -> None:
    """Linux's prctl(2); does nothing where there is none."""
    global _libc
    if not sys.platform.startswith("linux"):
        return
    if _libc is None:
        try:
            import ctypes

            _libc = ctypes.CDLL(None)
        except (ImportError, OSError):  # a Python without libffi: the walk through /proc must do
            _libc = False
    if _libc:
        _libc.prctl(option, value, 0, 0, 0)


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    stdio: tuple[int, int, int],
    *,
    dies_by: int = signal.SIGKILL,
    work_dir: str = "",
) -> int:
    """Starts a program in a process group of its own; returns its pid.

    It ends with this process, whatever ends that (on Linux). Where it cannot be started, it says so on its own standard
    error and exits as in a shell: 127 not found, 126 not executable.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        stdio: file descriptors that become its 0, 1 and 2.
        dies_by: the signal it gets when this process dies.
    """
    pid = fork(dies_by)
    if pid:
        return pid
    try:
        for number, fd in enumerate(stdio):
            os.dup2(fd, number)
        _execute(argv, env, work_dir)
    finally:
        os._exit(126)


def fork(dies_by: int) -> int:
    """os.fork; the child leads a process group, has no signal handler, and ends with this process (on Linux).

    Args:
        dies_by: the signal it gets when this process dies.
    """
    prctl(0, 0)  # loads libc before there are two of us
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPS, *_PASSED_ON, signal.SIGCHLD})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with IF_POSSIBLE:
            os.setpgid(pid, pid)  # here as well as there: whoever comes first
        return pid
    os.setpgid(0, 0)
    _leave_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    prctl(_PR_SET_PDEATHSIG, dies_by)
    if os.getppid() != parent:
        os._exit(127)
    return 0


def _leave_signals() -> None:
    """Undoes in a child what this process has set; Python itself ignores two signals that programs count on."""
    signal.set_wakeup_fd(-1)
    for number in (*_STOPS, *_PASSED_ON, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _execute(argv: Sequence[str], env: Mapping[str, str], work_dir: str) -> None:
    path = argv[0]
    try:
        if work_dir:
            os.chdir(work_dir)
        found = which(argv[0], env)
        if found is None:
            os.write(2, f"stepset: cannot start {argv[0]}: not found on PATH\n".encode())
            os._exit(127)
        path = found
        os.execve(path, list(argv), dict(env))
    except OSError as error:
        os.write(2, f"stepset: cannot start {path}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def pass_on(pid: int, number: int) -> bool:
    """Sends a signal to a command; to its whole process group where it is a shell, which would not hand it on.

    Others decide themselves what becomes of their children: a signal to a training script's data loaders would
    make it fail while it writes its checkpoint.

    Returns:
        whether the whole group got it.
    """
    try:
        shell = os.path.basename(os.readlink(f"/proc/{pid}/exe")) in _SHELLS
    except OSError:
        shell = not sys.platform.startswith("linux")
    with IF_POSSIBLE:
        if shell:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    return shell


_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox")


def kill_group(pid: int, number: int) -> None:
    """A signal for a whole process group, if it is still there."""
    with IF_POSSIBLE:
        os.killpg(pid, number)


def group_lives(pid: int) -> bool:
    """Whether there is anybody left in a process group."""
    try:
        os.killpg(pid, 0)
    except OSError:
        return False
    return True


def kill(pids: Iterable[int]) -> None:
    """SIGKILL for each that is still there."""
    for pid in pids:
        with IF_POSSIBLE:
            os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """All living processes below `root`, found by walking /proc; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b") ")[2].split()[:2]
        except (OSError, ValueError):  # it has just ended
            continue
        if state not in (b"Z", b"X"):
            children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def end_as(end: Mapping[str, int], hydra: bool = False) -> NoReturn:
    """Ends this process as another ended.

    Args:
        end: an `outcome`.
        hydra: MPICH's and Intel MPI's launcher started this rank. Over several nodes it does not notice a rank that
            exits with a code and lets the others wait for ever, but does notice a signal (MPICH 4.0.2, executed).
    """
    number = end.get("signal", 0)
    if hydra and end.get("exit_code"):
        number = signal.SIGKILL
    if number:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(1)
    os._exit(exit_code(end))


# ---------------------------------------------------------------------------------------------------------------------
# Waiting, reading and writing


class Loop:
    """Waits for bytes and signals, and calls whom they concern."""

    def __init__(self, signals: Iterable[int]) -> None:
        self._poll = select.poll()
        self._calls: dict[int, Callable[[], object]] = {}
        self._signals: list[int] = []
        inner, outer = os.pipe()
        os.set_blocking(inner, False)
        os.set_blocking(outer, False)
        signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
        handled = tuple(signals)
        for number in handled:
            signal.signal(number, _noticed)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        self._wake = inner
        self.watch(inner, self._read_signals)

    def watch(self, fd: int, call: Callable[[], object], mask: int = select.POLLIN) -> None:
        """Calls `call` whenever `fd` is ready (or broken)."""
        self._poll.register(fd, mask)
        self._calls[fd] = call

    def forget(self, fd: int) -> None:
        """No longer."""
        if self._calls.pop(fd, None):
            self._poll.unregister(fd)

    def turn(self, timeout: float) -> list[int]:
        """Waits until something happens, at most `timeout` seconds; returns the signals that came."""
        for fd, _ in self._poll.poll(max(0, int(timeout * 1000) + 1)):
            call = self._calls.get(fd)
            if call:
                call()
        signals, self._signals = self._signals, []
        return signals

    def _read_signals(self) -> None:
        with IF_POSSIBLE:
            self._signals += os.read(self._wake, 512)


def _noticed(*_: object) -> None:
    """A signal's handler: the wake-up pipe has its number already."""


class Out:
    """Writes lines without ever waiting for a slow reader.

    Args:
        fd: where to.
        atomic: each piece goes out in one write (`packed`), because others write there too.
        spaced: the next piece is written only when the reader has taken the one before. mpirun hands on what it reads
            at once, so it hands on whole lines.
    """

    def __init__(self, fd: int, *, atomic: bool = False, spaced: bool = False) -> None:
        self.fd, self._careful = _without_blocking(fd)
        self._atomic = atomic
        self._spaced = spaced and stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._queue: list[bytes | memoryview] = []
        self.pending = 0
        self.broken = False

    def put(self, lines: bytes) -> None:
        """Takes whole lines."""
        if not lines or self.broken:
            return
        pieces = packed(lines) if self._atomic else [lines]
        self.pending += sum(map(len, pieces))
        self._queue += pieces

    def flush(self) -> None:
        """Writes what can be written now."""
        done = 0
        try:
            while done < len(self._queue) and not (self._spaced and self.unread):
                piece = self._queue[done]
                if self._careful:
                    if not _writable(self.fd):
                        break
                    written = os.write(self.fd, piece[:ATOMIC])
                else:
                    written = os.write(self.fd, piece)
                self.pending -= written
                if written < len(piece):
                    self._queue[done] = memoryview(piece)[written:]
                else:
                    done += 1
        except BlockingIOError:
            pass
        except OSError:  # the reader is gone, or its disk is full
            self.broken = True
            self.pending = 0
            self._queue = []
            return
        del self._queue[:done]

    @property
    def waits_for_reader(self) -> bool:
        """Whether only time will tell when the next piece can go out."""
        return self._spaced and self.pending > 0

    @property
    def unread(self) -> bool:
        """Whether the reader has not taken all of it yet."""
        try:
            return any(fcntl.ioctl(self.fd, 0x541B, b"\0\0\0\0"))  # FIONREAD
        except OSError:
            return False


def _without_blocking(fd: int) -> tuple[int, bool]:
    """(a file descriptor to write to, whether a write to it could block).

    A pipe is opened anew, because O_NONBLOCK set on the old one would be set for everybody who has it.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd, False
    if stat.S_ISFIFO(mode):
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK), False
        except OSError:
            pass
    return fd, True


def _writable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))


def read_pipe(size: int) -> tuple[int, int]:
    """A pipe to start a program with: (end to read from, which never blocks; end to write to)."""
    inner, outer = os.pipe()
    os.set_blocking(inner, False)
    widen(inner, size)
    return inner, outer


def widen(fd: int, size: int) -> None:
    """Gives a pipe more room than 64 KiB, so that its two ends take turns less often; where the system lets us."""
    if sys.platform.startswith("linux"):
        with IF_POSSIBLE:
            fcntl.fcntl(fd, 1031, size)  # F_SETPIPE_SZ; Python knows the name from 3.10 on


def read_all(fd: int) -> tuple[list[bytes], bool]:
    """(what can be read now, whether that is the end)."""
    chunks: list[bytes] = []
    while True:
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return chunks, False
        except OSError:  # a terminal whose other side is gone
            data = b""
        if not data:
            return chunks, True
        chunks.append(data)


def short_event(name: str, **fields: object) -> bytes:
    """A `[stepset]` line of numbers and plain words; spares a rank the import of json."""
    values = ", ".join(f'"{key}": {value}' for key, value in fields.items())
    return f'[stepset] {{"event": "{name}", {values}}}\n'.encode()


def long_event(name: str, fields: Mapping[str, Any], mark: bytes = b"[stepset]") -> bytes:
    """A `[stepset]` line; `[stepset 3]` where it may be cut, so that others' events between its parts are no part."""
    import json

    return mark + b" " + json.dumps({"event": name, **fields}).encode() + b"\n"


# ---------------------------------------------------------------------------------------------------------------------
# rank: stands before one rank that a launcher starts

_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE")
_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK")


class RankOptions:
    """The command line of `rank`.

    Args:
        directory: the agent's directory, where its FIFO may be.
        world: ranks there must be; 0: any number.
        report: failures and the result go to standard output as well, through the launcher to another pod.
        program: what the rank runs.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.directory = ""
        self.world = 0
        self.report = False
        words = list(argv)
        while words and words[0] != "--":
            option = words.pop(0)
            if option == "--dir" and words:
                self.directory = words.pop(0)
            elif option == "--world" and words and words[0].isdigit():
                self.world = int(words.pop(0))
            elif option == "--report":
                self.report = True
            else:
                usage(f"rank: what is {option}?")
        self.program = words[1:]
        if not self.program:
            usage("rank: no program; put it after --")


def run_rank(argv: Sequence[str]) -> NoReturn:
    """Runs one rank: its lines go to the agent, and this process ends as the rank ends."""
    options = RankOptions(argv)
    env = dict(os.environ)
    directory = env.get("STEPSET_AGENT_DIR") or options.directory
    number = next((int(env[name]) for name in _RANK if env.get(name, "").isdigit()), 0)
    out = _to_agent(directory)
    report = _to_launcher() if options.report and out else None
    out = out or _to_launcher()
    rank = Rank(number, env, out, report, by_mpirun=options.report)
    if options.world:
        rank.check_world(options.world)
    rank_env(env, directory)
    rank.start(options.program)
    rank.watch()
    rank.finish()


def rank_env(env: dict[str, str], directory: str) -> None:
    """What the agent sets for every rank, unless it is set."""
    env.pop("STEPSET_AGENT_DIR", None)
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.setdefault("STEPSET_RESULT_FILE", os.path.join(directory, "result"))
    checkpoints = env.get("STEPSET_CHECKPOINT_DIR", "")
    again = any(env.get(name, "0") not in ("", "0") for name in ("STEPSET_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"))
    if again and checkpoints and _holds_something(checkpoints):
        env["STEPSET_RESUME_FROM"] = checkpoints


def _holds_something(directory: str) -> bool:
    try:
        return bool(os.listdir(directory))
    except OSError:
        return False


def _to_agent(directory: str) -> Out | None:
    """The FIFO of the agent in this pod, if there is one and somebody reads it."""
    try:
        fd = os.open(os.path.join(directory, "out"), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return Out(fd, atomic=True)


def _to_launcher() -> Out:
    """Standard output; standard error where that is a pipe and the other is not (Open MPI gives ranks a terminal)."""
    for fd in (1, 2):
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return Out(fd, atomic=True, spaced=True)
    return Out(1, atomic=True)


class Rank:
    """One rank, from its start to its end.

    Args:
        number: its rank in the world.
        env: its environment.
        out: where its lines go.
        report: where failures and the result go besides, for an agent in another pod.
        by_mpirun: an mpirun started it, whose agent waits for rank 0's result.
    """

    def __init__(self, number: int, env: dict[str, str], out: Out, report: Out | None, *, by_mpirun: bool) -> None:
        self._number = number
        self._env = env
        self._out = out
        self._report = report
        self._by_mpirun = by_mpirun
        self._hydra = "PMI_RANK" in env and "OMPI_COMM_WORLD_RANK" not in env
        self._lines = Lines(f"rank {number}", ATOMIC)
        self._tail = Tail()
        self._parent = os.getppid()
        self._loop = Loop((*_STOPS, *_PASSED_ON, signal.SIGCHLD))
        self._told_to_stop = False
        self._oom_kills = oom_kills()
        self._pid = 0
        self._pipe = -1
        self._status: int | None = None

    def check_world(self, expected: int) -> None:
        """Ends here, with code 71, where the launcher has started another number of ranks than asked."""
        found = next((self._env[name] for name in _SIZE if self._env.get(name)), None)
        if found == str(expected) or (found is None and expected == 1):
            return
        says = f"{found} ranks" if found else "no number of ranks"
        error = (
            f"the launcher started {says} instead of {expected}; check that it reads the hostfile"
            " and that every node can start its ranks"
        )
        self._failed({"kind": "Rendezvous", "exit_code": EXIT_WORLD, "error": error, "at": now()})
        self._flush()
        end_as({"exit_code": EXIT_WORLD}, self._hydra)

    def start(self, program: Sequence[str]) -> None:
        """Starts the program."""
        if self._by_mpirun and self._number == 0:
            path = self._env["STEPSET_RESULT_FILE"]
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            remove(path)  # an earlier attempt's
        self._pipe, writer = read_pipe(1 << 18)
        self._pid = spawn(program, self._env, (0, writer, writer))
        os.close(writer)
        local = next((int(self._env[n]) for n in _LOCAL_RANK if self._env.get(n, "").isdigit()), 0)
        event = short_event("started", rank=self._number, local_rank=local, pid=self._pid, wrapper=os.getpid())
        self._out.put(event)
        self._loop.watch(self._pipe, self._read)

    def watch(self) -> None:
        """Hands its lines on and passes signals on, until it has ended and its pipe is empty."""
        ended_at = 0.0
        while self._pipe >= 0 or not ended_at:
            self._turn(DRAIN if ended_at else 1.0)
            if not ended_at and self._ended():
                ended_at = time.monotonic()
            # Told to stop, a shell ends at once; what it ran may still be saving.
            if ended_at and time.monotonic() > ended_at + DRAIN and not self._told_to_stop:
                break
        # What it leaves behind goes with it. Its process group is still its own: nobody has waited for it yet.
        kill_group(self._pid, signal.SIGKILL)
        if self._status is None:
            self._status = os.waitpid(self._pid, 0)[1]
        if self._pipe >= 0:
            self._take(read_all(self._pipe)[0])

    def finish(self) -> NoReturn:
        """Reports its end and ends in the same way."""
        assert self._status is not None
        end = outcome(self._status)
        self._out.put(self._lines.finish())
        self._out.put(short_event("exited", rank=self._number, **end, at=now()))
        if exit_code(end) and not self._told_to_stop:
            self._failed(failure_of(self._status, self._tail, self._env, self._oom_kills))
        elif self._by_mpirun and self._number == 0 and not exit_code(end):
            (self._report or self._out).put(self._result())
        self._flush()
        end_as(end, self._hydra)

    def _result(self) -> bytes:
        """The result, for the agent in the launcher's pod to judge."""
        try:
            with open(self._env["STEPSET_RESULT_FILE"], "rb") as file:
                data = file.read(1 << 16)
                size = os.fstat(file.fileno()).st_size
        except OSError:
            return b""
        text = data.decode("utf-8", "surrogateescape") if size <= MESSAGE_LIMIT else ""
        return long_event("result", {"size": size, "text": text}, b"[stepset %d]" % self._number)

    def _failed(self, failure: Mapping[str, Any]) -> None:
        event = {"event": "failed", "rank": self._number, **failure}
        self._out.put(fitted(event, ATOMIC, "[stepset] %s\n"))
        if self._report:
            self._report.put(fitted({**event, "reported": True}, ATOMIC, "[stepset] %s\n"))

    def _turn(self, timeout: float) -> None:
        """Once around: bytes, signals, and whether those this rank belongs to are still there."""
        self._out.flush()
        if self._out.waits_for_reader:
            timeout = min(timeout, 0.001)
        waiting = select.POLLOUT if self._out.pending and not self._out.waits_for_reader else 0
        self._loop.watch(self._out.fd, self._out.flush, waiting)
        if self._pipe >= 0:
            # A reader that falls behind slows the rank down, not fills the memory.
            self._loop.watch(self._pipe, self._read)
            if self._out.pending > READ_SIZE * 4:
                self._loop.forget(self._pipe)
        for number in self._loop.turn(timeout):
            if number != signal.SIGCHLD:
                self._on_signal(number)
        if self._lost():
            self._give_up()

    def _on_signal(self, number: int) -> None:
        """Passes a signal on; of those that tell it to stop only the first, for it may come from two sides."""
        if self._by_mpirun and number == _STOP_BY_MPIRUN:
            number = signal.SIGTERM
        if number in _STOPS:
            if self._told_to_stop:
                return
            self._told_to_stop = True
        if self._pid and self._status is None:
            pass_on(self._pid, number)

    def _lost(self) -> bool:
        """Whether the launcher or the agent is gone."""
        if os.getppid() != self._parent or self._out.broken:
            return True
        poll = select.poll()
        poll.register(self._out.fd, 0)
        return bool(poll.poll(0))

    def _give_up(self) -> NoReturn:
        if self._pid and self._status is None:
            kill_group(self._pid, signal.SIGKILL)
        os._exit(128 + signal.SIGKILL)

    def _flush(self) -> None:
        self._out.flush()
        while self._out.pending:
            self._turn(0.05)
        deadline = time.monotonic() + 1
        while self._report and self._report.pending and not self._report.broken and time.monotonic() < deadline:
            self._report.flush()
            time.sleep(0.001)
        # A launcher that ends with its rank must have read the rank's last words.
        last = self._report or self._out
        while last.waits_for_reader or (last is not self._out and last.unread):
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, READ_SIZE)
        except BlockingIOError:
            return
        if data:
            self._take([data])
        else:
            self._loop.forget(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _take(self, chunks: Iterable[bytes]) -> None:
        for data in chunks:
            self._tail.add(data)
            self._out.put(self._lines.feed(data))

    def _ended(self) -> bool:
        """Whether it has ended; it stays a zombie, so that its process group is nobody else's yet."""
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        pid, status = os.waitpid(self._pid, os.WNOHANG)  # macOS
        if pid:
            self._status = status
        return bool(pid)


def remove(path: str) -> None:
    """Removes a file, if it is there."""
    with IF_POSSIBLE:
        os.unlink(path)


# ---------------------------------------------------------------------------------------------------------------------
# run: what a pod is given


class Config:
    """CONFIG.json, as docs/design/agent.md describes it.

    Args:
        data: the parsed file.

    Raises:
        AgentError: a key that is missing, unknown or of the wrong type.
    """

    def __init__(self, data: Any) -> None:
        if not isinstance(data, dict):
            raise setup_error("agent's config: must be a JSON object")
        if data.get("version") != 1:
            raise setup_error(f"agent's config: version is {data.get('version')!r}, not 1; take its own agent")
        self._data = {key: value for key, value in data.items() if key != "version" and value is not None}
        self.group: str = self._take("group", str)
        self.dir: str = os.path.abspath(self._take("dir", str))
        self.source: str = self._take("source", str, self.group + "-{node_rank}")
        self.in_world: bool = self._take("in_world", bool, True)
        self.peers: list[dict[str, Any]] = self._take("peers", list, [])
        self.peer_timeout: float = self._take("peer_timeout", (int, float), 600)
        self.attempt: int = self._take("attempt", int, 0)
        self.processes: int = self._take("processes", int, 0)
        self.process_env: dict[str, str] = self._take("process_env", dict, {})
        self.procs_per_node: int = self._take("procs_per_node", int, self.processes or 1)
        self.launcher: list[str] = self._take("launcher", list, [])
        self.program: list[str] = self._take("program", list, [])
        self.command_len: int = self._take("command_len", int, 0)
        self.mpi: bool = self._take("mpi", bool, False)
        self.world_size: int = self._take("world_size", int, 0)
        self.launcher_restarts: bool = self._take("launcher_restarts", bool, False)
        self.serve: str = self._take("serve", str, "")
        self.files: list[dict[str, str]] = self._take("files", list, [])
        self.code_archive: str = self._take("code_archive", str, "")
        self.code_dir: str = self._take("code_dir", str, "")
        self.work_dir: str = self._take("work_dir", str, "")
        self.termination_log: str = self._take("termination_log", str, "")
        self.grace: float = self._take("grace", (int, float), 30)
        self.result_limit: int = self._take("result_limit", int, MESSAGE_LIMIT)
        if self._data:
            raise setup_error(f"agent's config: {min(self._data)}: unknown key; take its own agent")

    def _take(self, key: str, kind: Any, default: Any = None) -> Any:
        value = self._data.pop(key, default)
        if value is None:
            raise setup_error(f"agent's config: {key} is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise setup_error(f"agent's config: {key}: {value!r} is of the wrong type")
        return value


def read_config(path: str) -> Config:
    """The config at `path`; AgentError where there is none that can be used."""
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return Config(json.load(file))
    except OSError as error:
        raise setup_error(f"agent's config {path}: {error.strerror}") from error
    except ValueError as error:
        raise setup_error(f"agent's config {path}: no JSON: {error}") from error


def node_rank(env: Mapping[str, str]) -> int:
    """The pod's index in its group; pods outside the world know it from their Indexed Job."""
    for name in ("STEPSET_NODE_RANK", "JOB_COMPLETION_INDEX"):
        if env.get(name, "").isdigit():
            return int(env[name])
    return 0


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` replaced as in a container's command: unknown names stay, `$$` is a `$`.

    Source: kubernetes/kubernetes third_party/forked/golang/expansion/expand.go.
    """
    import re

    return re.sub(r"\$(?:\$|\(([^)]*)\))", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)


def python_of(program: str, env: Mapping[str, str]) -> str | None:
    """The Python that a launcher written in Python runs with, by its first lines; None where it names none.

    A launcher's script and `python3` on PATH may belong to different environments; the ranks need the launcher's.
    """
    import re

    try:
        with open(which(program, env) or program, "rb") as file:
            start = file.read(1024)
    except OSError:
        return None
    # pip writes the second form where the first would be too long for the kernel.
    found = re.match(rb"#! ?(/\S*/python[0-9.]*)\s*\n", start) or re.match(
        rb"#!/bin/sh\n'''exec' \"?(/[^\"\n]*/python[0-9.]*)\"? ", start
    )
    return os.fsdecode(found[1]) if found else None


def wrapped(config: Config, command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The launcher's command line with this agent before every rank."""
    launcher = [expand(word, env) for word in config.launcher]
    program = [expand(word, env) for word in config.program]
    if program[:1] == ["python3"]:
        program[0] = python_of(launcher[0], env) or program[0]
    options = ["--dir", config.dir]
    if config.world_size:
        options += ["--world", str(config.world_size)]
    if config.mpi:
        options += ["--report"]
    this_file = os.path.abspath(__file__) if config.mpi else compiled(os.path.abspath(__file__), config.dir)
    agent = [sys.executable or "python3", "-I", "-S", this_file, "rank", *options, "--"]
    return [*launcher, *agent, *program, *command[config.command_len :]]


def compiled(source: str, directory: str) -> str:
    """This file as Python has compiled it, which spares each rank of this pod 20 ms; `source` where that fails.

    Args:
        source: this file.
        directory: where to put it if it can be neither found nor put where Python looks for it.
    """
    import importlib.util
    import py_compile

    if source.endswith(".pyc"):
        return source
    beside = importlib.util.cache_from_source(source)
    if _is_current(beside, source):
        return beside
    allowed = not os.environ.get("PYTHONDONTWRITEBYTECODE")
    for place in (*([beside] if allowed else []), os.path.join(directory, "agent.pyc")):
        try:
            py_compile.compile(source, place, doraise=True)
        except (OSError, py_compile.PyCompileError):
            continue
        return place
    return source


def _is_current(compiled_file: str, source: str) -> bool:
    """Whether this Python made it from the source as it is (format: importlib's, Python 3.7 and newer)."""
    import importlib.util

    try:
        about = os.stat(source)
        with open(compiled_file, "rb") as file:
            head = file.read(16)
    except OSError:
        return False
    numbers = (0, int(about.st_mtime), about.st_size)
    return head == importlib.util.MAGIC_NUMBER + b"".join((n & 0xFFFFFFFF).to_bytes(4, "little") for n in numbers)


def put_files(files: Iterable[Mapping[str, str]]) -> None:
    """Copies files to where their users want them, with the modes they insist on (ssh).

    Raises:
        AgentError: one cannot be copied.
    """
    for entry in files:
        try:
            source, path, mode = entry["source"], os.path.expanduser(entry["path"]), int(entry.get("mode", "0644"), 8)
        except (KeyError, TypeError, ValueError) as error:
            raise setup_error(f"agent's config: files: {entry!r} needs source, path and an octal mode") from error
        try:
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            with open(source, "rb") as file:
                data = file.read()
            remove(path)  # a read-only one from before a restart of the container
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
            os.chmod(path, mode)
        except OSError as error:
            raise setup_error(f"cannot put {source} to {path}: {error.strerror}") from error


def unpack(archive: str, directory: str) -> None:
    """Unpacks the code that travels with the job.

    Raises:
        AgentError: it cannot be read or written.
    """
    import tarfile
    import zlib

    try:
        os.makedirs(directory, exist_ok=True)
        with tarfile.open(archive, "r:gz") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(directory, filter="data")
            else:  # a Python older than the filter, as Debian 12's is
                for member in tar.getmembers():
                    if leads_outside(member):
                        raise tarfile.TarError(f"{member.name} leads outside")
                tar.extractall(directory)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise setup_error(f"cannot unpack {archive} to {directory}: {error}") from error


def leads_outside(member: Any) -> bool:
    """Whether a tarfile.TarInfo is outside the directory where it is unpacked, or links to what is."""
    places = [member.name]
    if member.issym():
        places.append(os.path.join(os.path.dirname(member.name), member.linkname))
    elif member.islnk():
        places.append(member.linkname)
    return any(os.path.normpath(place).split("/")[0] in ("", "..") for place in places)


# ---------------------------------------------------------------------------------------------------------------------
# run: waiting for the other pods' names


def peer_names(peers: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names to wait for; of a group above 64 pods only the first, or the cost would grow with the square of them.

    Raises:
        AgentError: an entry without pattern or count.
    """
    names = []
    for peer in peers:
        try:
            pattern, count = str(peer["pattern"]), int(peer["count"])
        except (KeyError, TypeError, ValueError) as error:
            raise setup_error(f"agent's config: peers: {peer!r} needs pattern and count") from error
        names += [pattern.replace("{index}", str(index)) for index in range(count if count <= 64 else 1)]
    return names


def is_address(name: str) -> bool:
    """Whether a peer is given as an IPv4 address, for which there is nothing to wait."""
    return name.replace(".", "").isdigit()


def look_up(names: Sequence[str]) -> tuple[int, int]:
    """Resolves names in a child, because nothing can interrupt a lookup.

    Returns:
        (its pid, a pipe that gives a line `index problem` for each name; an empty problem: it resolves).
    """
    import socket

    inner, outer = read_pipe(0)
    pid = fork(signal.SIGKILL)
    if pid:
        os.close(outer)
        return pid, inner
    try:
        for index, name in enumerate(names):
            problem = ""
            try:
                socket.getaddrinfo(name, None)
            except OSError as error:
                problem = error.strerror or str(error)
            except UnicodeError:
                problem = "not a host name"
            os.write(outer, f"{index} {problem}\n".encode())
    finally:
        os._exit(0)


# ---------------------------------------------------------------------------------------------------------------------
# run: a pod of a group


class Child:
    """A process the agent has started, and its output.

    Args:
        pid: its process.
        rank: its rank; None for a command that starts ranks, or that is none.
        pipe: where its output arrives.
        lines: gives it its source.
        env: its environment.
    """

    def __init__(self, pid: int, rank: int | None, pipe: int, lines: Lines, env: Mapping[str, str]) -> None:
        self.pid = pid
        self.rank = rank
        self.pipe = pipe
        self.lines = lines
        self.env = env
        self.tail = Tail()
        self.open = True
        self.status: int | None = None
        self.ended_at = 0.0
        self.done = False
        self.group_told = False


class Agent:
    """One pod: from the files it needs to the verdict on its command.

    Args:
        config: what this group's pods do.
        command: what runs in them; empty for one that serves.
        env: the pod's environment.
    """

    def __init__(self, config: Config, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._config = config
        self._command = command
        self._node_rank = node_rank(env)
        self._source = config.source.replace("{node_rank}", str(self._node_rank))
        self._env = self._pod_env(env)
        self._out = Out(1)
        self._loop = Loop((*_STOPS, *_PASSED_ON, signal.SIGCHLD))
        self._joiner = Joiner(self._on_event)
        self._oom_kills = oom_kills()
        self._children: list[Child] = []
        self._server: Server | None = None
        self._sources: dict[int, Callable[[], object]] = {}
        self._paused = False
        self._fifo = -1
        self._ranks: dict[int, int] = {}  # that launchers have started and that run -> process that stands before it
        self._ranks_seen: set[int] = set()
        self._attempt: set[int] = set()  # local ranks the launcher has started since it last started all
        self._failures: list[dict[str, Any]] = []
        self._reported_result: tuple[int, bytes] | None = None
        self._completed = False  # the command has ended by itself
        self._asked = 0  # the signal that asked us to stop
        self._held_back = 0  # one for the command, until its ranks have ended
        self._stopped_at = 0.0  # since the epoch
        self._rest_until = 0.0
        self._kill_at = 0.0
        if env.get("STEPSET_LIFELINE") == "1":
            self._loop.watch(0, self._on_lifeline)

    def _pod_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """The command's environment."""
        config, own = self._config, dict(env)
        own.pop("STEPSET_LIFELINE", None)
        own.pop("STEPSET_AGENT_DIR", None)  # that of a run around this one
        if config.attempt:
            counted = own.get("STEPSET_ATTEMPT", "")
            own["STEPSET_ATTEMPT"] = str(config.attempt + (int(counted) if counted.isdigit() else 0))
        if config.in_world:
            rank_env(own, config.dir)
        if config.serve:
            # Only here, where a launcher in another pod starts the ranks: Hydra puts its pod's variables over ours.
            own["STEPSET_AGENT_DIR"] = config.dir
        own.setdefault(_ERROR_FILE, os.path.join(config.dir, "error.json"))
        own.setdefault("PYTHONUNBUFFERED", "1")
        return own

    def main(self) -> int:
        """Everything; returns the exit code."""
        try:
            self._prepare()
            self._wait_for_peers()
            self._start()
            while not self._done():
                self._turn(self._patience())
                self._keep_deadlines()
            self._completed = not self._stopped_at
        except AgentError as error:
            self._fail(failure_of_agent(error))
        except Stopped:
            pass
        self._clear_away()
        code = self._verdict()
        self._write_out()
        return code

    # -- before the command

    def _prepare(self) -> None:
        """Everything around the command is put in its place.

        Raises:
            AgentError: something cannot be.
        """
        config = self._config
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        result_file = self._env.get("STEPSET_RESULT_FILE", "")
        try:
            os.makedirs(config.dir, exist_ok=True)
            fifo = os.path.join(config.dir, "out")
            remove(fifo)
            os.mkfifo(fifo, 0o600)
            # Open for writing too, or the end of one rank would look like the end of all.
            self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
            if result_file:
                os.makedirs(os.path.dirname(result_file) or ".", exist_ok=True)
        except OSError as error:
            raise setup_error(f"cannot use {error.filename or config.dir}: {error.strerror}") from error
        widen(self._fifo, 1 << 20)
        self._add_source(self._fifo, self._read_fifo)
        for path in (result_file, self._env[_ERROR_FILE]):
            if self._node_rank == 0 or os.path.dirname(path) == config.dir:
                remove(path)  # an earlier attempt's
        put_files(config.files)
        if config.code_archive:
            unpack(config.code_archive, config.code_dir)
        if config.work_dir and not os.path.isdir(config.work_dir):
            raise setup_error(f"{config.work_dir}, where the command is to start, is no directory")

    def _wait_for_peers(self) -> None:
        """Waits until every peer's name resolves.

        Raises:
            AgentError: some do not within the limit.
            Stopped: told to stop meanwhile.
        """
        missing = [name for name in peer_names(self._config.peers) if not is_address(name)]
        deadline = time.monotonic() + self._config.peer_timeout
        pause, told = 0.1, 0
        why = ""
        while missing:
            missing, now = self._look_up(missing, deadline)
            why = now or why  # the last look may have no time left to find out
            if missing and len(missing) != told:
                told = len(missing)
                self._out.put(long_event("waiting", {"missing": missing}))
            until = min(time.monotonic() + pause, deadline)
            while missing and time.monotonic() < until:
                self._turn_before_start(until)
            pause = min(pause * 2, 1.0)
            if missing and time.monotonic() >= deadline:
                names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
                raise AgentError(
                    EXIT_PEERS,
                    "Rendezvous",
                    f"{names} did not resolve within {self._config.peer_timeout:g} s ({why or 'no answer'});"
                    " check that these pods are there and that their headless Service is",
                )
        self._turn_before_start(0.0)  # a stop that came before anybody listened

    def _look_up(self, names: list[str], deadline: float) -> tuple[list[str], str]:
        """(names that do not resolve, why the first of them does not; empty: there was no time for an answer)."""
        pid, pipe = look_up(names)
        answers, ended = b"", False
        self._loop.watch(pipe, _nothing)
        try:
            while not ended and time.monotonic() < deadline:
                self._turn_before_start(deadline)
                chunks, ended = read_all(pipe)
                answers += b"".join(chunks)
        finally:
            self._loop.forget(pipe)
            os.close(pipe)
            if not ended:
                kill([pid])
        problems = dict(line.split(" ", 1) for line in answers.decode("utf-8", "replace").splitlines())
        found = {name: problems.get(str(index)) for index, name in enumerate(names)}
        missing = {name: problem for name, problem in found.items() if problem != ""}
        return list(missing), next(filter(None, missing.values()), "")

    def _turn_before_start(self, until: float) -> None:
        self._turn(until - time.monotonic())
        if self._stopped_at:
            raise Stopped

    # -- the command

    def _start(self) -> None:
        config = self._config
        if config.serve:
            self._server = Server(config.serve, self._env, config.work_dir, self._loop)
            self._out.put(b'[stepset] {"event": "ready"}\n')
        elif config.processes:
            for local in range(config.processes):
                self._start_rank(local)
        elif config.launcher:
            lines = LauncherLines(self._source, self._joiner) if config.mpi else Lines(self._source)
            env = self._process_env(0)
            self._add_child(wrapped(config, self._command, env), env, None, lines)
        else:
            # Killed, a command that starts ranks would leave them behind; told to end, it takes them along.
            self._add_child(self._command, self._process_env(0), None, Lines(self._source), signal.SIGTERM)

    def _process_env(self, local: int) -> dict[str, str]:
        """The environment of the pod's process number `local`; a command that starts ranks has that of the first."""
        config, env = self._config, dict(self._env)
        rank, first = self._node_rank * config.procs_per_node + local, int(self._node_rank == 0)
        places = {"{rank}": rank, "{local_rank}": local, "{node_rank}": self._node_rank, "{first}": first}
        for name, value in config.process_env.items():
            for place, number in places.items():
                value = value.replace(place, str(number))
            env[name] = value
        return env

    def _start_rank(self, local: int) -> None:
        config = self._config
        rank = self._node_rank * config.processes + local
        env = self._process_env(local)
        if local:
            env[_ERROR_FILE] += f".{local}"
            remove(env[_ERROR_FILE])
        if not config.in_world:
            self._add_child(self._command, env, None, Lines(self._source))
            return
        child = self._add_child(self._command, env, rank, Lines(f"rank {rank}"))
        self._ranks_seen.add(rank)
        self._out.put(short_event("started", rank=rank, local_rank=local, pid=child.pid))

    def _add_child(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        rank: int | None,
        lines: Lines,
        dies_by: int = signal.SIGKILL,
    ) -> Child:
        inner, outer = read_pipe(1 << 18)
        null = os.open(os.devnull, os.O_RDONLY)
        pid = spawn(argv, env, (null, outer, outer), dies_by=dies_by, work_dir=self._config.work_dir)
        os.close(null)
        os.close(outer)
        child = Child(pid, rank, inner, lines, env)
        self._children.append(child)
        self._add_source(inner, lambda: self._read_child(child))
        return child

    def _done(self) -> bool:
        if self._server:
            return bool(self._stopped_at) and not self._server.running
        return all(child.done for child in self._children)

    def _patience(self) -> float:
        """Seconds until something is due."""
        due = [at for at in (self._kill_at, self._rest_until, self._server.due if self._server else 0.0) if at]
        due += [child.ended_at + DRAIN for child in self._children if child.status is not None and not child.done]
        return min(due) - time.monotonic() if due else 3600.0

    def _keep_deadlines(self) -> None:
        at = time.monotonic()
        for child in self._children:
            if child.status is not None and not child.done and (not child.open or at >= child.ended_at + DRAIN):
                self._see_off(child)
        if self._rest_until and at >= self._rest_until:
            self._rest_until = 0.0
            self._stop(signal.SIGTERM, self._config.grace)
        if self._held_back and not self._ranks:
            number, self._held_back = self._held_back, 0
            self._tell_command(number)
        if self._kill_at and self._launcher_is_alone():
            # torchrun waits 300 s for other nodes' ranks, and does not heed a signal meanwhile (2.15, executed).
            self._kill_at = min(self._kill_at, at + REST)
        if self._kill_at and at >= self._kill_at:
            self._kill_at = 0.0
            self._held_back = 0
            self._kill_tree()
        if self._server:
            self._server.keep_deadlines(at)

    def _launcher_is_alone(self) -> bool:
        """Whether all ranks that a launcher started here have ended, so that there is nothing to save any more."""
        config = self._config
        return bool(config.launcher and not config.mpi and self._ranks_seen and not self._ranks)

    def _see_off(self, child: Child) -> None:
        """Reports the end of a child, now that all it has said is in."""
        assert child.status is not None
        # A reader that lags behind may have left more in the pipes than the drain had time for; one pipe's worth at
        # most, for what a grandchild goes on to write is not waited for.
        for _ in range(64):
            if not self._read_fifo() and not (child.open and self._read_child(child)):
                break
        child.done = True
        self._out.put(child.lines.finish())
        end = outcome(child.status)
        if child.rank is not None:
            self._out.put(short_event("exited", rank=child.rank, **end, at=now()))
        if exit_code(end) and not self._stopped_at and (child.rank is not None or not self._failures):
            self._fail(self._failure_of(child, child.status))

    def _failure_of(self, child: Child, status: int) -> dict[str, Any]:
        failure = failure_of(status, child.tail, child.env, self._oom_kills)
        if child.rank is not None:
            return {"rank": child.rank, **failure}
        report = launcher_report(child.tail.text())
        if "exit_code" in report or "signal" in report:
            failure = {key: value for key, value in failure.items() if key not in ("exit_code", "signal")}
        if "rank" in report:
            failure["error"] = find_error(child.tail.text(), child.env.get(_ERROR_FILE, ""), report["rank"])
        return {**report, **failure}

    def _fail(self, failure: dict[str, Any]) -> None:
        """A failure found here, not reported by a rank."""
        self._out.put(long_event("failed", {key: value for key, value in failure.items() if key != "tail"}))
        self._note(failure)

    def _note(self, failure: dict[str, Any]) -> None:
        """One failure more; the rest is stopped soon, unless the launcher goes on with it."""
        if self._stopped_at and failure["at"] > self._stopped_at:
            return  # that is what being stopped does to a rank
        self._failures.append(failure)
        if not self._config.launcher_restarts and not self._stopped_at and not self._rest_until:
            self._rest_until = time.monotonic() + REST

    # -- what comes in

    def _turn(self, timeout: float) -> None:
        """Once around: output, input, signals, ends of processes."""
        self._out.flush()
        if self._out.broken and not self._stopped_at:
            self._stop(signal.SIGTERM, LIFELINE_GRACE)
        if self._out.pending:
            self._loop.watch(self._out.fd, self._out.flush, select.POLLOUT)
        else:
            self._loop.forget(self._out.fd)
        if (self._out.pending > OUT_LIMIT) != self._paused:
            self._paused = not self._paused
            for fd, call in self._sources.items():
                if self._paused:
                    self._loop.forget(fd)
                else:
                    self._loop.watch(fd, call)
        for number in self._loop.turn(max(0.0, timeout)):
            if number in _STOPS:
                self._on_stop(number)
            elif number in _PASSED_ON:
                for child in self._running():
                    pass_on(child.pid, number)
        self._reap()

    def _add_source(self, fd: int, call: Callable[[], object]) -> None:
        self._sources[fd] = call
        if not self._paused:
            self._loop.watch(fd, call)

    def _read_child(self, child: Child) -> bool:
        """Takes in a chunk; False where there is none now."""
        try:
            data = os.read(child.pipe, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            del self._sources[child.pipe]
            self._loop.forget(child.pipe)
            os.close(child.pipe)
            child.open = False
            return False
        child.tail.add(data)
        self._out.put(child.lines.feed(data))
        return True

    def _read_fifo(self) -> bool:
        """Takes in a chunk of what ranks have written; False where there is none now."""
        try:
            data = os.read(self._fifo, READ_SIZE)
        except OSError:  # BlockingIOError, or no FIFO because the setup failed
            return False
        self._out.put(self._joiner.feed(data))
        return True

    def _on_event(self, text: bytes) -> bytes:
        """Takes note of what the `rank` mode reports; returns what to print of it."""
        import json

        try:
            event = json.loads(text)
            printed = self._note_event(event["event"], event)
        except (ValueError, KeyError, TypeError, AttributeError):
            printed = True  # not of our making; whoever reads it may know better
        return b"[stepset] %s\n" % text if printed else b""

    def _note_event(self, name: str, event: dict[str, Any]) -> bool:
        """Takes note; returns whether it is to be printed."""
        if name == "started":
            rank, local = event["rank"], event["local_rank"]
            self._out.put(self._joiner.finish(b"rank %d" % rank))
            self._ranks[rank] = event["wrapper"]
            self._ranks_seen.add(rank)
            if local in self._attempt and self._config.launcher_restarts:
                # It starts again. (The rank would not do: a node that comes back may get others.)
                self._attempt.clear()
                self._failures.clear()
            self._attempt.add(local)
        elif name == "exited":
            self._ranks.pop(event["rank"], None)
        elif name == "result":
            self._reported_result = event["size"], event["text"].encode("utf-8", "surrogateescape")
            return False
        elif name == "failed":
            failure = {key: value for key, value in event.items() if key not in ("event", "reported")}
            known = any((f.get("rank"), f["at"]) == (failure["rank"], failure["at"]) for f in self._failures)
            if self._config.launcher and not known:
                self._note(failure)
            return not event.get("reported")  # the agent in the rank's own pod prints it
        return True

    def _on_lifeline(self) -> None:
        data = b""
        with IF_POSSIBLE:
            data = os.read(0, READ_SIZE)
        if not data:
            self._loop.forget(0)
            self._asked = self._asked or signal.SIGTERM
            self._stop(signal.SIGTERM, LIFELINE_GRACE)

    def _on_stop(self, number: int) -> None:
        if self._asked:
            self._kill_at = time.monotonic()
        else:
            self._asked = number
            self._stop(number, self._config.grace)

    # -- ending

    def _running(self) -> list[Child]:
        return [child for child in self._children if child.status is None]

    def _stop(self, number: int, grace: float) -> None:
        """Asks everything to end, and sees to it that it has after `grace` seconds."""
        at = time.monotonic() + grace
        self._kill_at = min(self._kill_at, at) if self._kill_at else at
        if self._stopped_at:
            return
        self._stopped_at = time.time()
        if self._config.launcher or not self._ranks:
            self._tell_command(_STOP_BY_MPIRUN if self._config.launcher and self._config.mpi else number)
        else:
            # A node of an MPI run: sshd, orted and the like would not leave the ranks time to save.
            for wrapper in self._ranks.values():
                pass_on(wrapper, number)
            self._held_back = number

    def _tell_command(self, number: int) -> None:
        for child in self._running():
            child.group_told = pass_on(child.pid, number)
        if self._server:
            self._server.stop(number)

    def _reap(self) -> bool:
        """Notes which processes have ended; returns whether there are any left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            for child in self._running():
                if child.pid == pid:
                    child.status, child.ended_at = status, time.monotonic()
            if self._server:
                self._server.ended(pid, status)

    def _kill_tree(self) -> None:
        """Kills everything this agent has started, down to what has detached itself."""
        deadline = time.monotonic() + 5
        while self._reap():
            left = descendants(os.getpid())
            kill(left)
            for child in self._running():
                kill_group(child.pid, signal.SIGKILL)
            if not left and not self._running():
                return
            if time.monotonic() > deadline:  # it waits for a disk or a device
                os.write(2, f"stepset: processes {left} cannot be killed\n".encode())
                return
            time.sleep(0.005)

    def _clear_away(self) -> None:
        """Leaves nothing running and nothing unsaid."""
        until = time.monotonic() + LINGER
        while self._reap() and not (self._kill_at and time.monotonic() >= self._kill_at):
            # A shell ends at once when it is told to; what it ran may still be saving.
            saving = any(child.group_told and group_lives(child.pid) for child in self._children)
            if not saving and (time.monotonic() >= until or not descendants(os.getpid())):
                break
            self._turn(0.02)
        self._kill_tree()
        for child in self._children:
            while child.open and self._read_child(child):
                pass
            if not child.done:
                child.done = True
                self._out.put(child.lines.finish())
        while self._read_fifo():
            pass
        self._out.put(self._joiner.finish())
        for rank in sorted(self._ranks):  # their `rank` processes would have said so, had they not been killed
            self._out.put(short_event("exited", rank=rank, signal=int(signal.SIGKILL), at=now()))

    def _verdict(self) -> int:
        """Says how it went: by an event, the termination log, and the exit code it returns."""
        code = next((exit_code(outcome(child.status)) for child in self._children if child.status), 0)
        stopped = 0 if self._completed else self._asked or signal.SIGPIPE
        if not code and self._config.launcher_restarts:
            self._failures.clear()
        if not self._failures and not code and not stopped:
            self._bring_result()
        if self._failures:
            first = min(self._failures, key=lambda failure: float(failure["at"]))
            self._write_log(fitted(first, MESSAGE_LIMIT, '{"stepset": {"failed": %s}}'))
            if first.get("kind") and first.get("exit_code") in _OWN_CODES:
                return int(first["exit_code"])
            launcher_says = code if not self._config.processes and not self._stopped_at else 0
            return launcher_says or exit_code(first)
        if stopped:
            # Not zero even where the command said so: a rank that saves and leaves when told to has not finished.
            return 0 if self._server else 128 + stopped
        return code

    def _bring_result(self) -> None:
        try:
            result = self._result()
        except AgentError as error:
            self._fail({"rank": 0, **failure_of_agent(error)})
            return
        if result is not None:
            self._out.put(b'[stepset] {"event": "result", "result": %s}\n' % result.replace(b"\n", b" "))
            self._write_log(result)

    def _result(self) -> bytes | None:
        """Rank 0's result, if rank 0 was here and left one.

        Raises:
            AgentError: it is too large, or no JSON.
        """
        import json

        path, limit = self._env.get("STEPSET_RESULT_FILE", ""), self._config.result_limit
        if self._reported_result:
            size, data = self._reported_result
        elif os.path.isfile(path) and (0 in self._ranks_seen or not self._ranks_seen):
            with open(path, "rb") as file:
                data = file.read(limit)
                size = os.fstat(file.fileno()).st_size
        else:
            return None
        if size > limit:
            advice = "save it to storage and return its URI"
            raise AgentError(EXIT_RESULT, "Rejected", f"the result is {size} bytes, the limit is {limit}; {advice}")
        try:
            json.loads(data.decode())
        except (ValueError, RecursionError) as error:
            advice = "write it with json.dump to the file that STEPSET_RESULT_FILE names"
            raise AgentError(EXIT_RESULT, "Rejected", f"the result is no JSON ({error}); {advice}") from error
        return data

    def _write_log(self, message: bytes) -> None:
        """Writes the termination log, where there is one."""
        path = self._config.termination_log or "/dev/termination-log"
        if not self._config.termination_log and not os.path.exists(path):
            return
        try:
            with open(path, "wb") as file:
                file.write(message)
        except OSError as error:
            os.write(2, f"stepset: cannot write {path}: {error.strerror}\n".encode())

    def _write_out(self) -> None:
        """The last lines; a reader that is slow is waited for until somebody tells us to stop."""
        asked, deadline = self._asked, time.monotonic() + (1.0 if self._asked else 1e9)
        self._out.flush()
        while self._out.pending and time.monotonic() < deadline:
            self._turn(0.05)
            if self._asked != asked:
                asked, deadline = self._asked, time.monotonic() + 1.0


def _nothing() -> None:
    """For a descriptor whose bytes somebody else reads."""


# ---------------------------------------------------------------------------------------------------------------------
# serve and rsh: what sshd and ssh would be, between agents on one machine


class Served:
    """A command that runs for an `rsh`.

    Args:
        connection: to that rsh; closed when it is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.request = b""
        self.fds: list[int] = []
        self.pid = 0
        self.kill_at = 0.0


class Server:
    """Runs commands for `rsh`, with this pod's environment and the caller's standard input and outputs.

    Args:
        path: of the socket to listen at.
        env: the commands' environment.
        work_dir: where they start.
        loop: calls back.

    Raises:
        AgentError: it cannot listen there.
    """

    def __init__(self, path: str, env: Mapping[str, str], work_dir: str, loop: Loop) -> None:
        import socket

        self._env = env
        self._work_dir = work_dir
        self._loop = loop
        self._stopping = False
        self.running: dict[int, Served] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            remove(path)
            with UnixPath(path) as address:
                self._listener.bind(address)
            self._listener.listen(64)
        except OSError as error:
            raise setup_error(f"cannot listen at {path}: {error.strerror or error}") from error
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), self._accept)

    @property
    def due(self) -> float:
        """When a command is to be killed; 0: none is."""
        return min((served.kill_at for served in self.running.values() if served.kill_at), default=0.0)

    def keep_deadlines(self, at: float) -> None:
        """Kills what should have ended by now."""
        for served in self.running.values():
            if served.kill_at and at >= served.kill_at:
                served.kill_at = 0.0
                kill([*descendants(served.pid), served.pid])

    def stop(self, number: int) -> None:
        """Takes no more, and passes a signal on to what runs."""
        self._stopping = True
        self._loop.forget(self._listener.fileno())
        self._listener.close()
        for pid in self.running:
            kill_group(pid, number)

    def ended(self, pid: int, status: int) -> None:
        """A process has ended; if it is a command of ours, whoever asked for it gets its exit code."""
        served = self.running.pop(pid, None)
        if served is None:
            return
        self._loop.forget(served.connection.fileno())
        with IF_POSSIBLE:
            served.connection.sendall(b"%d\n" % exit_code(outcome(status)))
        served.connection.close()

    def _accept(self) -> None:
        with IF_POSSIBLE:
            connection = self._listener.accept()[0]
            connection.setblocking(False)
            served = Served(connection)
            self._loop.watch(connection.fileno(), lambda: self._receive(served))

    def _receive(self, served: Served) -> None:
        """More of a request, or the end of the rsh that made it."""
        import socket
        import struct

        data = b""
        try:
            data, extra, _, _ = served.connection.recvmsg(READ_SIZE, socket.CMSG_SPACE(3 * 4))
        except BlockingIOError:
            return
        except OSError:
            extra = []
        for _, _, fds in extra:
            served.fds += struct.unpack(f"{len(fds) // 4}i", fds)
        served.request += data
        if not data:
            self._hang_up(served)
        elif not served.pid and served.request.endswith(b"\0") and len(served.fds) == 3 and not self._stopping:
            first, second, third = served.fds
            argv = ["/bin/sh", "-c", os.fsdecode(served.request[:-1])]
            served.pid = spawn(argv, self._env, (first, second, third), work_dir=self._work_dir)
            self.running[served.pid] = served
            for fd in served.fds:
                os.close(fd)

    def _hang_up(self, served: Served) -> None:
        self._loop.forget(served.connection.fileno())
        if served.pid in self.running:
            kill_group(served.pid, signal.SIGTERM)
            served.kill_at = time.monotonic() + LIFELINE_GRACE
        else:
            served.connection.close()


class UnixPath:
    """The address of a unix socket whose path may be longer than such an address, which holds about 100 bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) < 100:
            return self._path
        directory, name = os.path.split(self._path)
        self._fd = os.open(directory, os.O_RDONLY)
        return f"/proc/self/fd/{self._fd}/{name}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def run_rsh(argv: Sequence[str]) -> NoReturn:
    """Runs a command in the pod that serves as HOST; ends with its exit code, or with 255 as ssh does."""
    import socket
    import struct

    words = list(argv)
    directory = words.pop(0) if words else ""
    while words and words[0].startswith("-"):
        if words.pop(0) in ("-o", "-p", "-l", "-i", "-F") and words:
            words.pop(0)
    if len(words) < 2:
        usage("rsh: give a directory, a host and a command")
    path = os.path.join(directory, words[0])
    connection = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + 10
    while True:
        try:
            with UnixPath(path) as address:
                connection.connect(address)
            break
        except OSError as error:
            if time.monotonic() > deadline or not os.path.isdir(directory):
                os.write(2, f"stepset: no node {words[0]} at {path}: {error.strerror}\n".encode())
                os._exit(255)
            time.sleep(0.05)
    # As with ssh the words are one line for a shell.
    request = os.fsencode(" ".join(words[1:])) + b"\0"
    answer = b""
    with IF_POSSIBLE:
        sent = connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("3i", 0, 1, 2))])
        if sent < len(request):
            connection.sendall(request[sent:])
        answer = connection.recv(16)
    os._exit(int(answer) if answer else 255)


# ---------------------------------------------------------------------------------------------------------------------
# The command line


def run_pod(argv: Sequence[str]) -> int:
    """Runs a pod; returns its exit code."""
    if not argv or (len(argv) > 1 and argv[1] != "--"):
        usage("run: give a config, then -- and the command")
    for fd in range(3):  # whatever was closed before us must not be taken by a pipe of ours
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    command = list(argv[2:])
    try:
        config = read_config(argv[0])
        if not command and not config.serve:
            raise setup_error("no command to run; put it after --, or let the image have one")
        if command and config.serve:
            raise setup_error("agent's config: serve takes no command")
    except AgentError as error:
        os.write(1, long_event("failed", failure_of_agent(error)))
        return error.code
    return Agent(config, command, os.environ).main()


def usage(problem: str) -> NoReturn:
    """Says how this file is called; exit code 2."""
    lines = (
        f"stepset agent: {problem}",
        "usage: agent.py run CONFIG.json [-- COMMAND [ARG...]]",
        "       agent.py rank --dir DIR [--world N] [--report] -- PROGRAM [ARG...]",
        "       agent.py rsh DIR [SSH-OPTION...] HOST COMMAND...",
    )
    os.write(2, ("\n".join(lines) + "\n").encode())
    os._exit(2)


def main(argv: Sequence[str]) -> int:
    """Does what the first word says."""
    mode = argv[0] if argv else ""
    if mode == "rank":
        run_rank(argv[1:])
    if mode == "rsh":
        run_rsh(argv[1:])
    if mode == "run":
        return run_pod(argv[1:])
    usage(f"unknown mode {mode!r}" if mode else "no mode")


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
