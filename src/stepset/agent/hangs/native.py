"""Describes processes without a Python stack, only in the mode `stacks`: their system call, open files and stack.

The stack is that of py-spy or gdb, if the image contains one of them and the system permits ptrace. py-spy does not
stop the process. gdb stops the process for about half a second.

Sources: proc(5), ptrace(2); Linux arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from stepset.agent.errors import IF_POSSIBLE
from stepset.agent.hangs.answers import middle_cut
from stepset.agent.hangs.collectives import COLLECTIVES
from stepset.agent.hangs.hook import STACKS
from stepset.agent.hangs.processes import INTERPRETERS, read_process

SECONDS = 5.0  # for the debuggers of all processes together
MOST_FILES = 20  # of one process
_MOST_STACKS = 4  # processes whose stacks are read; each needs a debugger
_LIMITED = ("/bin/sh", "-c", 'ulimit -v 1048576; exec "$@"', "sh")  # 1 GiB, so that the pod is not killed for memory
_MOST_THREADS, _MOST_FRAMES, _WIDTH = 100, 64, 300
_OUTPUT_LIMIT, _PROC_LIMIT = 4 << 20, 1 << 20  # bytes
_GDB = [
    *("-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"),
    *("-ex", "set width 0", "-ex", "set print address off"),
    *("-ex", "set print frame-arguments none"),  # arguments may be secrets
    *("-ex", "thread apply all backtrace 64", "-p"),
]
_GDB_THREAD = re.compile(r"Thread (\d{1,9}) \(")
_GDB_FRAME = re.compile(
    r"#\d{1,4} +(?:0x[0-9a-f]+ in )?(.{1,500}?) \(.{0,2000}\)(?: at (.{1,1000}):(\d{1,9})| from (.+))?$"
)
_READ, _WRITE, _ACCEPT, _CONNECT = "reading from", "writing to", "accepting connections of", "connecting"
_FLOCK, _SYNC, _EPOLL, _POLL = "locking", "writing to the disk", "epoll", "poll"
_LOCK, _CHILD = "fcntl", "wait"
_CALLS = {
    "x86_64": {
        _READ: (0, 17, 19, 45, 47, 295, 299),
        _WRITE: (1, 18, 20, 44, 46, 296, 307),
        _ACCEPT: (43, 288),
        _CONNECT: (42,),
        _FLOCK: (73,),
        _SYNC: (74, 75),
        _EPOLL: (232, 281, 441),
        _POLL: (7, 271),
        _LOCK: (72,),
        _CHILD: (61,),
    },
    "aarch64": {
        _READ: (63, 65, 67, 69, 207, 212, 243),
        _WRITE: (64, 66, 68, 70, 206, 211, 269),
        _ACCEPT: (202, 242),
        _CONNECT: (203,),
        _FLOCK: (32,),
        _SYNC: (82, 83),
        _EPOLL: (22, 441),
        _POLL: (73,),
        _LOCK: (25,),
        _CHILD: (260,),
    },
}
_SET_LOCK_AND_WAIT = (7, 38)  # F_SETLKW, F_OFD_SETLKW
_LISTEN = "0A"


def add_native(ranks: Iterable[Mapping[str, Any]]) -> None:
    """Adds to each process without a Python stack what it waits for, its open files and, if possible, its stack.

    Args:
        ranks: what was sampled of each rank. The processes are changed.
    """
    found = [process for rank in ranks for process in rank["processes"] if not process["threads"]]
    sockets = Sockets()
    for process in found:
        files = _files(process["pid"], sockets)
        process["files"] = [f"{fd} {files[fd]}" for fd in sorted(files)[:MOST_FILES]]
        process["waits"] = _waits(process["pid"], files)
    # If a debugger attaches to a process in state D and gives up, the process stops when it leaves this state.
    _add_stacks([each for each in found if each["kind"] != "launcher" and each["state"] in "RS"][:_MOST_STACKS])


class Sockets:
    """The sockets of a network namespace: a text for each inode. They are read when the first one is needed."""

    def __init__(self) -> None:
        self._texts: dict[str, str] | None = None

    def text(self, pid: int, inode: str) -> str:
        """Returns the address of the peer of a socket of a process, such as `socket 10.0.0.3:41234`."""
        if self._texts is None:
            self._texts = {}
            for name in ("tcp", "tcp6", "udp", "udp6"):
                for words in _table(pid, name):
                    if len(words) > 9:
                        self._texts[words[9]] = _inet(words[1], words[2], words[3])
            for words in _table(pid, "unix"):
                if len(words) > 6:
                    self._texts[words[6]] = " ".join(["unix socket", *words[7:8]])
        return self._texts.get(inode, "socket")


def _table(pid: int, name: str) -> list[list[str]]:
    with IF_POSSIBLE:
        return [line.split() for line in _read(f"/proc/{pid}/net/{name}").split("\n")[1:]]
    return []


def _inet(local: str, peer: str, state: str) -> str:
    if state == _LISTEN:
        return f"listening socket {_address(local)}"
    return f"socket {_address(peer)}" if not peer.endswith(":0000") else f"socket {_address(local)} without a peer"


def _address(text: str) -> str:
    """Returns an address of /proc/net/tcp: words of 32 bits in the byte order of the machine, and the port.

    >>> _address("0300000A:A102")
    '10.0.0.3:41218'
    """
    import socket

    try:
        digits, _, port = text.partition(":")
        words = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
        family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
        name = socket.inet_ntop(family, b"".join(words))
        if name.startswith("::ffff:"):
            name, family = name[7:], socket.AF_INET
        return f"{name if family == socket.AF_INET else f'[{name}]'}:{int(port, 16)}"
    except (OSError, ValueError, OverflowError):
        return "?"


def _files(pid: int, sockets: Sockets) -> dict[int, str]:
    """Returns a text for each open file of a process, by its descriptor, without the files of the hook."""
    found: dict[int, str] = {}
    with IF_POSSIBLE:
        for fd in sorted(map(int, os.listdir(f"/proc/{pid}/fd")))[:4096]:
            with IF_POSSIBLE:
                path = os.readlink(f"/proc/{pid}/fd/{fd}").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                if path.startswith("socket:["):
                    found[fd] = sockets.text(pid, path[8:-1])
                elif STACKS not in path and COLLECTIVES not in path:
                    found[fd] = path.partition(":[")[0] if path.startswith(("pipe:[", "anon_inode:[")) else path
    return found


def _waits(pid: int, files: Mapping[int, str]) -> str:
    """Returns what the main thread of a process waits for, such as `reading from socket 10.0.0.3:41234`."""
    with IF_POSSIBLE:
        words = _read(f"/proc/{pid}/syscall").split()
        if words and words[0].isdigit():
            calls = _CALLS.get(os.uname().machine, {})
            call = next((call for call, numbers in calls.items() if int(words[0]) in numbers), "")
            return _call_words(pid, call, [int(word, 16) for word in words[1:7]], files) if call else ""
    return ""


def _call_words(pid: int, call: str, arguments: list[int], files: Mapping[int, str]) -> str:
    fd = arguments[0]
    if call == _CHILD:
        child = read_process(fd) if 0 < fd < 1 << 22 else None
        return f"waiting for process {fd} {child.name}" if child else "waiting for a child process"
    if call == _LOCK:
        wanted = arguments[1] in _SET_LOCK_AND_WAIT
        return f"waiting for a lock on {files.get(fd, f'file {fd}')}" if wanted else ""
    if call in (_EPOLL, _POLL):
        polled = _polled(pid, fd) if call == _EPOLL else _poll_list(pid, fd, arguments[1])
        names = [files.get(each, f"file {each}") for each in polled[:MOST_FILES]]
        return f"waiting for {', '.join(names)}" if names else ""
    return f"{call} {files.get(fd, f'file {fd}')}"


def _polled(pid: int, fd: int) -> list[int]:
    """Returns the descriptors that an epoll instance watches."""
    found = re.findall(r"^tfd: +(\d{1,9})", _read(f"/proc/{pid}/fdinfo/{fd}"), re.MULTILINE)
    return [int(each) for each in found[:MOST_FILES]]


def _poll_list(pid: int, address: int, count: int) -> list[int]:
    """Returns the descriptors in the argument of poll(2), which is in the memory of the process."""
    import struct

    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        data = memory.read(8 * min(count, MOST_FILES))
    found = [fd for fd, _, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8])]
    return [fd for fd in found if fd >= 0]


def _add_stacks(processes: list[dict[str, Any]]) -> None:
    started: list[tuple[dict[str, Any], str, _Output]] = []
    for process in processes:
        tool, command = _debugger(process["pid"])
        if not tool:
            continue
        if why := why_no_ptrace(process["pid"]):
            _add_why(process, f"{tool} cannot read its stack: {why}")
            continue
        with IF_POSSIBLE:
            started.append((process, tool, _Output([*_LIMITED, *command, str(process["pid"])])))
    until = time.monotonic() + SECONDS
    for process, tool, output in started:
        text = output.read(until)
        if text is None:
            _add_why(process, f"{tool} has not answered within {SECONDS:g} s")
            _continue(process["pid"])
        elif threads := (gdb_threads(text) if tool == "gdb" else pyspy_threads(text)):
            process["threads"] = threads
        else:
            _add_why(process, f"{tool} has not found its stack")


def _debugger(pid: int) -> tuple[str, list[str]]:
    """Returns the name of a debugger that the image contains, and its command without the pid; or empty values."""
    from shutil import which

    program = ""
    with IF_POSSIBLE:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    if program.startswith(INTERPRETERS):  # the C stack of an interpreter says little
        path = which("py-spy")
        return ("py-spy", [path, "dump", "--json", "--nonblocking", "--pid"]) if path else ("", [])
    path = which("gdb")
    return ("gdb", [path, *_GDB]) if path else ("", [])


def why_no_ptrace(pid: int) -> str:
    """Returns why this process may not trace another one, or "". The kernel permits both with the same rule."""
    try:
        with open(f"/proc/{pid}/mem", "rb"):
            pass
        tracer = re.search(r"^TracerPid:\s+([1-9]\d*)", _read(f"/proc/{pid}/status"), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        return "it has ended"
    except OSError as error:
        scope = ""
        with IF_POSSIBLE:
            scope = _read("/proc/sys/kernel/yama/ptrace_scope").strip()
        more = f" (kernel.yama.ptrace_scope is {scope})" if scope not in ("", "0") else ""
        return f"ptrace is not permitted: {error.strerror}{more}"
    return f"process {tracer[1]} traces it" if tracer else ""


def _add_why(process: dict[str, Any], why: str) -> None:
    process["why"] = "; ".join(filter(None, (process.get("why", ""), why)))


def _continue(pid: int) -> None:
    """Continues a process that a debugger has stopped and not released."""
    process = read_process(pid)
    if process is not None and process.state == "T":
        with IF_POSSIBLE:
            os.kill(pid, signal.SIGCONT)


class _Output:
    """The output of a program that runs."""

    def __init__(self, command: list[str]) -> None:
        import threading

        self._data = b""
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._data = self._process.stdout.read(_OUTPUT_LIMIT)

    def read(self, until: float) -> str | None:
        """Returns the output, or None if the program does not end until a time (`time.monotonic`)."""
        self._thread.join(max(0.0, until - time.monotonic()))
        ended = not self._thread.is_alive()
        self._process.terminate()  # gdb then releases the process
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._data.decode("utf-8", "replace") if ended else None


def gdb_threads(text: str) -> list[dict[str, Any]]:
    """Parses the stacks that gdb has printed. Ignores all lines of any other form."""
    threads: list[tuple[int, list[list[Any]]]] = []
    for line in text.split("\n"):
        if thread := _GDB_THREAD.match(line):
            threads.append((int(thread[1]), []))
        elif threads and (frame := _GDB_FRAME.match(line)):
            function, file, number, library = frame.groups()
            if function != "??" or library:  # a function without a symbol
                threads[-1][1].append([function[:_WIDTH], (file or library or "")[-_WIDTH:], int(number or 0)])
    known = sorted((number, frames) for number, frames in threads[-_MOST_THREADS:] if frames)
    return [
        {"name": "main" if number == 1 else "", "frames": middle_cut(frames, _MOST_FRAMES)} for number, frames in known
    ]


def pyspy_threads(text: str) -> list[dict[str, Any]]:
    """Parses the JSON that py-spy has printed. Ignores all values of any other form."""
    import json

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    found = []
    for thread in data[:_MOST_THREADS] if isinstance(data, list) else ():
        rows = thread.get("frames") if isinstance(thread, dict) else None
        frames = [
            [str(row.get("name"))[:_WIDTH], str(row.get("filename"))[-_WIDTH:], _line(row.get("line"))]
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, dict)
        ]
        if frames:
            name = "main" if thread.get("thread_name") == "MainThread" else str(thread.get("thread_name") or "")
            found.append({"name": name[:_WIDTH], "frames": middle_cut(frames, _MOST_FRAMES)})
    return sorted(found, key=lambda each: each["name"] != "main")


def _line(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(_PROC_LIMIT).decode("utf-8", "replace")
