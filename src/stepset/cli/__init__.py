"""The command-line program `stepset`.

`stepset --help` and completion must be fast. Therefore only small modules are imported at the top of a file. Large
packages, such as pydantic, YAML, rich and the backends, are imported in functions.
"""

from __future__ import annotations

import gc
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    `argv` contains the arguments of the command; default: the command-line arguments of this process.
    """
    handler = signal.getsignal(signal.SIGINT)
    # During the imports, use the system's default action for Ctrl-C, which terminates the process without a traceback.
    loading = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if loading:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from stepset.cli.app import build, call

        command = build()
    finally:
        if loading:
            signal.signal(signal.SIGINT, handler)
    try:
        return call(command, argv)
    finally:
        if argv is None:  # skip the last garbage collection, because the process exits soon
            gc.freeze()
