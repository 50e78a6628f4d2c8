"""Calls the listener that a caller of the Python API passes. An exception of this listener does not end the run."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import TypeVar

from stepset.backends.base import OpenLineListener, RunListener
from stepset.errors import BadInputError
from stepset.run_status import LogLine, RunStatus
from stepset.watch.lines import OpenLine

T = TypeVar("T")

_log = logging.getLogger(__name__)


def user_listener(listener: RunListener | None) -> RunListener | None:
    """Returns a listener that calls the `listener` of a call of the Python API. Returns None if there is none.

    Raises:
        BadInputError: `listener` lacks a method of RunListener.
    """
    if listener is None:
        return None
    missing = [name for name in ("on_line", "on_status") if not callable(getattr(listener, name, None))]
    if missing:
        name = getattr(listener, "__name__", type(listener).__name__)
        raise BadInputError(
            f"listener: {name} has no method {' and no method '.join(missing)}; give an object with the methods"
            " on_line(line) and on_status(status), as in stepset.RunListener"
        )
    return UserListener(listener)


class UserListener:
    """Calls a listener whose exceptions do not end the run. Logs the first exception as a warning.

    The listener also receives the lines and states after an exception.
    """

    def __init__(self, listener: RunListener) -> None:
        self._listener = listener
        self._warned = False

    def on_line(self, line: LogLine) -> None:
        """Calls `on_line` of the listener."""
        self._call(self._listener.on_line, line)

    def on_status(self, status: RunStatus) -> None:
        """Calls `on_status` of the listener."""
        self._call(self._listener.on_status, status)

    def on_open_line(self, line: OpenLine) -> None:
        """Calls `on_open_line` of an OpenLineListener."""
        if isinstance(self._listener, OpenLineListener):
            self._call(self._listener.on_open_line, line)

    def _call(self, method: Callable[[T], object], argument: T) -> None:
        try:
            method(argument)
        except Exception as error:  # noqa: BLE001  # the listener is code of the user
            if not self._warned:
                self._warned = True
                _log.warning("stepset: %s", _sentence(getattr(method, "__qualname__", "the listener"), error))


def _sentence(method: str, error: Exception) -> str:
    """Returns the message about an exception, with the line of the method in which the exception occurred."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first frame is that of `_call`
    place = f", line {frames[0].lineno}: {frames[0].line}" if frames else ""
    return f"the run continues after an exception of its listener: {error!r} in {method}{place}"
