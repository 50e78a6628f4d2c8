"""Processes without Python in the mode `stacks`: what they wait for, their open files, and their stack."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepset.agent.hangs.native import MOST_FILES, add_native, gdb_threads, pyspy_threads, why_no_ptrace
from tests.agent.pods import Pod
from tests.agent.test_hook import processes, start
from tests.security import other_users
from tests.waiting import until

READS = """
#include <stdlib.h>
#include <unistd.h>
static void wait_for_peer(int fd) { char c; write(1, "sleeps\\n", 7); if (read(fd, &c, 1) < 0) exit(1); }
int main(int argc, char **argv) { wait_for_peer(atoi(argv[1])); return 0; }
"""


def program(name: str) -> str:
    """The path of a program; the test is skipped without it, unless everything is required."""
    found = shutil.which(name)
    if found is None and os.environ.get("STEPSET_REQUIRE_ALL"):
        pytest.fail(f"{name} is not installed")
    return found or pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A C program that reads from the descriptor in its argument."""
    directory = tmp_path_factory.mktemp("reads")
    (directory / "reads.c").write_text(READS)
    subprocess.run([program("gcc"), "-g", "-O0", "reads.c", "-o", "reads"], cwd=directory, check=True)
    return str(directory / "reads")


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, str]]:
    """One end of a TCP connection, and the address of its peer."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            yield here, "{}:{}".format(*here.getpeername())


def described(*command: str, files: tuple[int, ...] = ()) -> dict[str, Any]:
    """What is added to a process that sleeps in the kernel."""
    with subprocess.Popen(command, pass_fds=files, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            assert until(lambda: Path(f"/proc/{process.pid}/syscall").read_text()[:1].isdigit(), 30)
            found = {"pid": process.pid, "kind": "launcher", "state": "S", "threads": [], "why": ""}
            assert until(lambda: add_native([{"processes": [found]}]) or found["waits"], 30), found
        finally:
            process.kill()
    return found


def test_a_program_in_c_is_shown_with_its_stack_and_continues(pod: Pod, reads: str, tmp_path: Path) -> None:
    program("gdb")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with start(pod, "/bin/sh", "-c", f"exec {reads} 7 7<>{pipe}") as running:
        (process,) = processes(pod)
        for _ in range(20):  # gdb may be too slow on a busy machine
            if not process["threads"]:
                (process,) = processes(pod)
        assert Path(f"/proc/{process['pid']}/stat").read_text().split()[2] == "S"
        assert running.process.poll() is None
    assert process["waits"] == f"reading from {pipe}"
    assert f"7 {pipe}" in process["files"]
    assert [frame[0] for frame in process["threads"][0]["frames"]][-2:] == ["wait_for_peer", "main"]
    assert process["threads"][0]["frames"][-1][1].endswith("reads.c")
    assert process["why"] == "reads is not Python"


def test_a_socket_is_named_by_its_peer(reads: str, connection: tuple[socket.socket, str]) -> None:
    end, peer = connection
    found = described(reads, str(end.fileno()), files=(end.fileno(),))
    assert found["waits"] == f"reading from socket {peer}"
    assert f"{end.fileno()} socket {peer}" in found["files"]


def test_names_of_files_do_not_contain_secrets(pod: Pod, tmp_path: Path) -> None:
    path = tmp_path / "token=a_secret_value.log"
    path.write_text("sleeps\n")
    with start(pod, "tail", "-f", str(path), env={"TOKEN": "a_secret_value"}, secrets=["TOKEN"]):
        (process,) = processes(pod)
    assert any(name.endswith("token=***.log") for name in process["files"])
    assert "a_secret_value" not in json.dumps(process)


EPOLL = "import os, select; e = select.epoll(); e.register(0); e.poll()"
POLL = "import select; p = select.poll(); p.register(0); p.poll()"
LOCK = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX)"


@pytest.mark.parametrize("script", [EPOLL, POLL])
def test_the_files_that_a_process_polls_are_named(script: str) -> None:
    assert described(sys.executable, "-S", "-c", script)["waits"] == "waiting for pipe"


def test_the_file_whose_lock_a_process_waits_for_is_named(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "lock"
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert described(sys.executable, "-S", "-c", LOCK, str(path))["waits"] == f"waiting for a lock on {path}"


def test_the_child_that_a_process_waits_for_is_named() -> None:
    waits = described("/bin/sh", "-c", "sleep 1000; true")["waits"]
    assert waits.startswith("waiting for ")


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    script = "import sys; kept = [open('/dev/null') for _ in range(100)]; sys.stdin.read()"
    found = described(sys.executable, "-S", "-c", script)
    assert len(found["files"]) == MOST_FILES
    assert found["waits"] == "reading from pipe"


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a program as another user")
def test_a_debugger_is_not_started_without_permission() -> None:
    code = f"from stepset.agent.hangs.native import why_no_ptrace as why; print(why({os.getpid()}))"
    done = subprocess.run(other_users.program(code), user=65534, capture_output=True, text=True)
    assert done.stdout.startswith("ptrace is not permitted: Permission denied"), done.stderr
    assert why_no_ptrace(os.getpid()) == ""


class TestOutputOfDebuggers:
    def test_gdb(self) -> None:
        text = (
            'Thread 2 (Thread 0x7f (LWP 2) "a"):\n#0  0x00007f5d in futex_wait () from /lib/libc.so.6\n'
            'Thread 1 (Thread 0x7f (LWP 1) "a"):\n#0  __GI___libc_read (fd=..., nbytes=...) at ../read.c:26\n'
            "#1  0x0000 in ?? ()\n#2  main (argc=..., argv=...) at hang.c:14\n[Inferior 1 (process 1) detached]\n"
        )
        frames = [["__GI___libc_read", "../read.c", 26], ["main", "hang.c", 14]]
        other = {"name": "", "frames": [["futex_wait", "/lib/libc.so.6", 0]]}
        assert gdb_threads(text) == [{"name": "main", "frames": frames}, other]

    def test_pyspy(self) -> None:
        def thread(name: str, line: object) -> dict[str, Any]:
            return {"thread_name": name, "frames": [{"name": "load", "filename": "/app/data.py", "line": line}]}

        found = pyspy_threads(json.dumps([thread("loader", 3), thread("MainThread", True)]))
        assert [(each["name"], each["frames"]) for each in found] == [
            ("main", [["load", "/app/data.py", 0]]),
            ("loader", [["load", "/app/data.py", 3]]),
        ]

    @pytest.mark.parametrize("text", ["", "{", "[1]", '[{"frames": 3}]', '[{"frames": [1]}]', "[" * 9999, "{}"])
    def test_anything_else_is_ignored(self, text: str) -> None:
        assert pyspy_threads(text) == gdb_threads(text) == []
        assert gdb_threads("#0 main () at a.c:1\nThread 1 (a):\n#0\n#1 " + "(" * 99_999) == []
