"""Escapes control characters in the warnings that the backends log.

If no handler is configured, Python's last-resort handler prints these warnings to stderr. The warnings may contain
strings from servers, and these strings may contain control characters.
"""

from __future__ import annotations

import logging

from stepset.printable import printable_text


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable_text(super().format(record))


def make_log_printable() -> None:
    """Escapes control characters in messages and tracebacks if no handler is configured."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Formatter())
