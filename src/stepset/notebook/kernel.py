"""Detects the kernel of a notebook without importing IPython."""

from __future__ import annotations

import sys
import threading

from stepset.notebook.display import NotebookDisplay


def display_of_kernel() -> NotebookDisplay | None:
    """Returns a display if a kernel executes a cell in this thread. Returns None in plain programs and terminals.

    A kernel has loaded IPython before it executes a cell, so this function does not import IPython.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None or threading.current_thread() is not threading.main_thread():
        return None
    return NotebookDisplay()
