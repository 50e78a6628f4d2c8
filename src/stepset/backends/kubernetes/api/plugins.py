"""Limits the credential plugins that the `kubernetes` package starts.

The package waits for a plugin without a deadline, reads the plugin's output without a limit, and logs the plugin's
errors unchanged. The package has no options for these limits. Therefore this module replaces the class that starts
plugins (kubernetes 24 to 36, config/kube_config.py, ExecProvider).
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE = 60.0
"""The number of seconds in which a plugin must end."""
_INTERACTIVE_DEADLINE = 600.0
"""The number of seconds in which a plugin must end if the plugin may ask the user to log in."""
_PROGRAM = Path(__file__).with_name("plugin_program.py")


def limit_plugins() -> None:
    """Makes the `kubernetes` package start plugins through `plugin_program.py`."""
    from kubernetes.config import kube_config

    if not getattr(kube_config.ExecProvider, "limited", False):
        kube_config.ExecProvider = _limited(kube_config.ExecProvider)


def _limited(provider: Any) -> Any:
    class LimitedProvider(provider):  # type: ignore[misc]  # the package has no types
        limited = True
        args: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            seconds = _INTERACTIVE_DEADLINE if sys.stdout is not None and sys.stdout.isatty() else DEADLINE
            self.args = [sys.executable, "-I", "-S", str(_PROGRAM), str(seconds), *map(str, self.args)]

    return LimitedProvider


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Collects the errors that the `kubernetes` package logs in this thread about plugins, instead of logging them."""
    found: list[str] = []
    thread = threading.get_ident()

    def keep(record: logging.LogRecord) -> bool:
        if record.thread != thread or record.module != "kube_config":
            return True
        found.append(record.getMessage())
        return False

    logger = logging.getLogger()
    logger.addFilter(keep)
    try:
        yield found
    finally:
        logger.removeFilter(keep)
