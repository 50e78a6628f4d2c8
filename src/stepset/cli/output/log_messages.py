"""Warnings that the backends log.

Python's last-resort handler prints them to stderr; they may contain text from servers, so it is escaped.
"""

from __future__ import annotations

import logging

from stepset.printable import printable_text


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable_text(super().format(record))


def make_log_printable() -> None:
    """Makes messages and tracebacks printable if no handler is configured for them."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Formatter())
