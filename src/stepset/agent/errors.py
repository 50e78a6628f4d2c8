"""The agent's exit codes and exceptions, and names and limits that several modules share."""

from __future__ import annotations

EXIT_PEERS = 70
EXIT_WORLD = 71
EXIT_RESULT = 72
EXIT_SETUP = 73
EXIT_HANG = 74
EXIT_BLOCKED = 75
OWN_CODES = (EXIT_PEERS, EXIT_WORLD, EXIT_RESULT, EXIT_SETUP, EXIT_HANG, EXIT_BLOCKED)

MESSAGE_LIMIT = 4096  # the number of bytes that the kubelet keeps of a termination message
SAMPLED = "sampled"
"""The file in the pod's directory that the agent writes when a rank that waited too long for other ranks may exit. The
agent samples the other ranks before, because a launcher stops the other ranks when it detects the exit of a rank."""
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # names the file in which torch's error handler records an exception


class AgentError(Exception):
    """A failure of the agent itself.

    Args:
        code: the exit code of the agent, which is one of `OWN_CODES`.
        kind: the kind of failure that the status of the run reports.
        message: one line that states what is wrong, where, and how to fix it.
    """

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind


def is_timeout(error: str) -> bool:
    """Returns whether the error of a rank states that the rank has waited too long, for example for other ranks."""
    text = error.lower()
    return "timeout" in text or "timed out" in text


class StopRequested(Exception):  # noqa: N818 - not an error: a caller requested it
    """A stop was requested before the command started."""


def setup_error(message: str) -> AgentError:
    """Returns the error for a config, file, directory or socket that cannot be used."""
    return AgentError(EXIT_SETUP, "Infrastructure", message)


class IgnoreOSError:
    """Suppresses OSError like `contextlib.suppress`. In every rank, an import of contextlib would take 3 ms."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, OSError)


IF_POSSIBLE = IgnoreOSError()
"""Suppresses the errors of system calls whose object may no longer exist, or that the system may not permit."""
