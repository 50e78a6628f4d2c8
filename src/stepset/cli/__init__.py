"""The command line: `stepset run|explain|validate|render|schema|rbac|status|logs|wait|cancel|list|prune|diagnose`.

Modules here import only typer at the top; each command imports pydantic, YAML, rich and the backends itself, so that
`stepset --help` and completion are fast.
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
    """Runs one command and returns its exit code; `argv` replaces the command-line arguments of this process."""
    handler = signal.getsignal(signal.SIGINT)
    # Ctrl-C during the imports ends the program without a traceback, as for any other program.
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
        if argv is None:  # the process ends: without this, the interpreter would search all modules for garbage first
            gc.freeze()
