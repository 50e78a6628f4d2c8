"""Merges more logs than there are connections: in groups, each of which is stored in a temporary file.

Each connection takes a file descriptor, of which a process has about a thousand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO

from stepset.backends.kubernetes.logs.merge import Block, merged
from stepset.errors import InfrastructureError

_BYTES = 1 << 16
"""Bytes of a file that are read at a time."""


def in_groups(logs: Sequence[Iterator[Block]], at_once: int) -> Iterator[Block]:
    """Yields what `merged` does, with at most `at_once` of the logs open at a time; more logs need temporary files.

    Raises InfrastructureError if the temporary files cannot be written.
    """
    if len(logs) <= at_once:
        yield from merged(logs)
        return
    try:
        yield from _through_files(logs, at_once)
    except OSError as error:
        raise InfrastructureError(
            f"{tempfile.tempdir or 'temporary directory'}: {error.strerror}; the logs of {len(logs)} pods are put in"
            " order in files there: name a directory with more room by TMPDIR, or ask for fewer ranks"
        ) from error


def _through_files(logs: Sequence[Iterator[Block]], at_once: int) -> Iterator[Block]:
    with ExitStack() as files:
        groups = []
        for first in range(0, len(logs), at_once):
            file = files.enter_context(tempfile.TemporaryFile())
            for times, rows in merged(logs[first : first + at_once]):
                file.writelines(b"%s %s\n" % each for each in zip(times, rows, strict=True))
            file.seek(0)
            groups.append(_read(file))
        yield from in_groups(groups, at_once)


def _read(file: IO[bytes]) -> Iterator[Block]:
    while lines := file.readlines(_BYTES):
        parted = [line[:-1].partition(b" ") for line in lines]
        yield [time for time, _, _ in parted], [row for _, _, row in parted]
