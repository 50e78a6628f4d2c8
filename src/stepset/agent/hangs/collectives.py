"""The thread of the hook that reports torch's collectives. `hook` executes this module if a program imports torch.

The agent writes the source to DIR/hook/collectives.py. The rules for the module `hook` apply to this module, too.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepset.agent.hangs.hook import Hook

COLLECTIVES = "stepset-collectives-"
"""The name of the file with the collectives begins with this. The descriptor of the pipe for requests follows."""


def start(hook: Hook) -> None:
    """Starts the thread."""
    import _thread
    import posix

    inner, outer = posix.pipe()
    hook.open_files += [(fd, posix.fstat(fd).st_ino) for fd in (inner, outer)]
    file = hook.create(COLLECTIVES + "%d" % outer)
    _thread.start_new_thread(_answer, (hook, inner, file, hook.open_files[-1][1]))


def _answer(hook: Hook, pipe: int, file: int, inode: int) -> None:
    """Answers each byte in the pipe: a line, so that the agent knows that the GIL is free, dumps, and a NUL."""
    import posix

    try:
        while posix.read(pipe, 1) and hook.is_open(file, inode):
            posix.write(file, b"\n")
            for dump in _dumps():
                posix.write(file, dump + b"\n")
            posix.write(file, b"\0")
    except Exception:  # noqa: BLE001 - no error may reach the program
        pass


def _dumps() -> list[bytes]:
    """Returns the JSON dumps of torch's Flight Recorders, of gloo and of NCCL.

    torch 2.15 has `_dump_fr_trace_json` with a backend. Earlier versions have it without a backend, or only the
    functions of NCCL, which record nothing for gloo.
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    found = []
    for names in (("_dump_fr_trace_json",), ("_dump_nccl_trace_json", "_dump_nccl_trace")):
        function = next((getattr(module, name) for name in names if hasattr(module, name)), None)
        for arguments in ((True, False, "gloo"), (True, False), ()):
            try:
                found.append(_as_json(function(*arguments)))  # type: ignore[misc]
                break
            except TypeError:
                continue
            except Exception:  # noqa: BLE001 - no error may reach the program
                break
    return found


def _as_json(dump: Any) -> bytes:
    if isinstance(dump, bytes) and dump[:1] != b"{":  # before torch 2.4, the only form is pickled
        import json
        import pickle

        dump = json.dumps(pickle.loads(dump), default=str)
    return dump if isinstance(dump, bytes) else dump.encode()
