"""Writes and reads the file with the states of a local run's incomplete lines.

This file is read by other processes that follow the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

from stepset.backends.local.logs.files import read_lines
from stepset.backends.local.private_files import read_regular
from stepset.backends.local.runs.run_dir import RunDir
from stepset.watch.bounded_json import parse_json
from stepset.watch.lines import Batch
from stepset.watch.live_lines import LiveLine, live_block, open_states


class OpenLinesFile:
    """Writes the states of incomplete lines. The caller determines how often `write` is called."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._states: dict[str, str] = {}
        self._written: dict[str, str] = {}

    def see(self, batch: Batch) -> None:
        """Updates the states from the output of a pod."""
        if batch.between or self._states:
            self._states = open_states(self._states, batch)

    def state(self, source: str) -> str:
        """Returns what the incomplete line of a source currently shows, or "" if there is no incomplete line."""
        return self._states.get(source, "")

    def clear(self) -> None:
        """Removes all states, because an attempt has ended."""
        self._states = {}

    def write(self) -> bool:
        """Replaces the file if a state has changed. Returns whether a state has changed.

        If the disk is full, the file is not replaced, but the result is the same.
        """
        if self._states == self._written:
            return False
        self._written = self._states
        with suppress(OSError):
            self._run.write_open_lines(json.dumps(self._written).encode())
        return True


def live_blocks(run: RunDir, sources: frozenset[str] | None) -> Iterator[list[LiveLine]]:
    """Yields the lines of a run and the changed states of incomplete lines until the run has finished."""
    states: dict[str, str] = {}
    for lines in read_lines(run, follow=True, sources=sources):
        before, states = states, _read(run)
        yield live_block(lines, before, states, sources)


def _read(run: RunDir) -> dict[str, str]:
    try:
        found = parse_json(read_regular(run.open_lines))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
