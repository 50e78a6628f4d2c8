"""Runs the programs that hang, and stores what an agent would print about them: the stacks and the collectives.

    python -m tests.watch.hangs.record [NAME]...

The processes are forked from this process, because an import of torch takes seconds. Requires Linux and torch.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import socket
import sys
import sysconfig
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.watch.hangs.programs import PROGRAMS, source

HERE = Path(__file__).parent / "recorded"
_THREAD = re.compile(r"(?:Thread|Current thread) 0x\w+ (?:\[([^\]]*)\] )?\(most recent call first\):")
_FRAME = re.compile(r'  File "([^"]+)", line (\d+) in (.+)')
_PATHS = (
    (sysconfig.get_path("purelib"), "/venv/lib/python3/site-packages"),
    (sysconfig.get_path("stdlib"), "/usr/lib/python3.11"),
)
_WAIT = 6.0
_COLLECTIVES = 10


def main(names: list[str]) -> None:
    import torch.distributed  # imported before the fork
    import torch.nn.parallel
    import torch.utils.data  # noqa: F401

    for name in names or PROGRAMS:
        events = record(name)
        (HERE / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
        print(name, [event["rank"] for event in events])


def record(name: str) -> list[dict[str, Any]]:
    """Returns an event for each rank of a program that still runs."""
    size = PROGRAMS[name][0]
    with tempfile.TemporaryDirectory() as directory, socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        number = port.getsockname()[1]
        port.close()
        (Path(directory) / "train.py").write_text(source(name))
        pids = []
        for rank in range(size):
            pid = os.fork()
            if not pid:
                try:
                    _run(rank, size, number, Path(directory))
                finally:
                    os._exit(1)
            pids.append(pid)
        time.sleep(_WAIT)
        first = {pid: _usage(pid) for pid in pids}
        stacks = _ask(pids, directory)
        time.sleep(1.0)
        again = _ask(pids, directory)
        time.sleep(1.0)
        try:
            return [
                _event(rank, pid, directory, first, stacks, again) for rank, pid in enumerate(pids) if not _over(pid)
            ]
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _over(pid: int) -> bool:
    return not Path(f"/proc/{pid}/stat").exists() or _state(pid) == "Z"


def _run(rank: int, size: int, port: int, directory: Path) -> None:
    os.setpgid(0, 0)
    env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in env.items()})
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    _hook(directory)
    os.register_at_fork(after_in_child=lambda: _hook(directory))
    threading.Thread(target=_answer, args=(directory,), daemon=True).start()
    path = str(directory / "train.py")
    exec(compile(Path(path).read_text(), path, "exec"), {"__name__": "__main__"})  # a program of this test
    threading._shutdown()  # type: ignore[attr-defined]  # as at the end of Python
    os._exit(0)


def _hook(directory: Path) -> None:
    file = (directory / f"{os.getpid()}.stack").open("a")
    faulthandler.register(signal.SIGRTMIN + 7, file, all_threads=True)


def _answer(directory: Path) -> None:
    import torch._C._distributed_c10d as c10d

    while True:
        time.sleep(0.2)
        asked = directory / f"{os.getpid()}.ask"
        if asked.exists():
            asked.unlink()
            (directory / f"{os.getpid()}.trace").write_bytes(c10d._dump_fr_trace_json(True, False, "gloo"))


def _ask(pids: list[int], directory: str) -> dict[int, str]:
    found = {}
    for pid in pids:
        for each in (pid, *_children(pid)):
            stack = Path(directory, f"{each}.stack")
            if stack.exists():
                stack.write_text("")
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGRTMIN + 7)
        Path(directory, f"{pid}.ask").touch()
    time.sleep(1.0)
    for stack in Path(directory).glob("*.stack"):
        found[int(stack.stem)] = stack.read_text()
    return found


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        near = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [each for child in near for each in (child, *_children(child))]
    return []


def _event(
    rank: int, pid: int, directory: str, first: Any, stacks: dict[int, str], again: dict[int, str]
) -> dict[str, Any]:
    processes = []
    for each in (pid, *_children(pid)):
        threads = [] if each not in again else _threads(again[each], directory)
        changed = stacks.get(each) != again.get(each)
        cpu = round((_usage(pid) - first[pid]) / 3.0, 2) if each == pid else 0.0
        name = Path(f"/proc/{each}/comm").read_text().strip()
        kind = "rank" if each == pid else "worker" if threads else "child"
        processes.append(
            {
                "pid": each,
                "kind": kind,
                "name": name,
                "state": _state(each),
                "wchan": _read(f"/proc/{each}/wchan"),
                "syscall": _syscall(each),
                "busy": changed or cpu > 0.5,
                "changed": changed,
                "cpu": cpu,
                "gil": False,
                "threads": threads,
                "why": "" if threads else "no answer",
            }
        )
    trace = Path(directory, f"{pid}.trace")
    entries = json.loads(trace.read_text()) if trace.exists() else {}
    return {
        "event": "stalled",
        "rank": rank,
        "at": 1_000_000_310.2,
        "silent": 310.2,
        "longest": 12.0,
        "again": 0,
        "processes": processes,
        "collectives": _collectives(entries)[:_COLLECTIVES],
    }


def _collectives(trace: dict[str, Any]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for entry in trace.get("entries", ()):
        groups.setdefault((entry["process_group"][0], bool(entry.get("is_p2p"))), []).append(entry)
    found = []
    for (group, p2p), entries in groups.items():
        number = "p2p_seq_id" if p2p else "collective_seq_id"
        flying = [entry for entry in entries if not entry["retired"] and entry["state"] != "completed"]
        done = [entry for entry in entries if entry not in flying]
        last = flying[0] if flying else None
        backend, _, name = (last or entries[-1])["profiling_name"].partition(":")
        found.append(
            {
                "group": group,
                "desc": entries[-1]["process_group"][1],
                "backend": backend,
                "seq": last[number] if last else 0,
                "name": name if last else "",
                "sizes": last["input_sizes"] if last else [],
                "dtype": (last["input_dtypes"] or [""])[0].lower() if last else "",
                "state": last["state"] if last else "",
                "age": 300.1 if last else 0.0,
                "done": done[-1][number] if done else 0,
                "last": done[-1]["profiling_name"].partition(":")[2] if done else "",
                "p2p": p2p,
                **_members(trace, group),
            }
        )
    return found


def _members(trace: dict[str, Any], group: str) -> dict[str, Any]:
    known = trace.get("pg_config", {}).get(group, {}).get("ranks")
    return {"ranks": json.loads(known)} if known else {}


def _threads(text: str, directory: str) -> list[dict[str, Any]]:
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        if head := _THREAD.match(line):
            threads.append({"name": head[1] or "", "frames": []})
        elif (frame := _FRAME.match(line)) and threads:
            path = frame[1].replace(directory, "/app")
            for prefix, short in _PATHS:
                path = path.replace(prefix, short)
            threads[-1]["frames"].append([frame[3], path, int(frame[2])])
    own = str(Path(__file__).resolve())
    for thread in threads:
        thread["frames"] = [frame for frame in thread["frames"] if frame[1] != own and "runpy" not in frame[1]]
    kept = [thread for thread in threads if thread["frames"] and not _is_hook(thread)]
    return list(reversed(kept))  # faulthandler prints the main thread last


def _is_hook(thread: dict[str, Any]) -> bool:
    return all("/threading.py" in frame[1] for frame in thread["frames"]) and thread["frames"][0][0] == "run"


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip().strip("0")
    return ""


def _syscall(pid: int) -> int | None:
    word = (_read(f"/proc/{pid}/syscall").split() or [""])[0]
    return int(word) if word.isdecimal() else None


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def _usage(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


if __name__ == "__main__":
    main(sys.argv[1:])
