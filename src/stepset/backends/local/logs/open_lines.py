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
from stepset.watch.live_lines import LiveLine, LiveLines, open_states


class OpenLinesFile:
    """Writes the states of incomplete lines. The caller determines how often `write` is called."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._pods: dict[str, dict[str, str]] = {}
        self._written: dict[str, str] = {}

    def see(self, pod: str, batch: Batch) -> None:
        """Updates the states from the output of a pod."""
        if batch.between or self._pods.get(pod):
            self._pods[pod] = open_states(self._pods.get(pod, {}), batch)

    def state(self, source: str) -> str:
        """Returns what the incomplete line of a source currently shows, or "" if there is no incomplete line."""
        return next((states[source] for states in self._pods.values() if source in states), "")

    def clear(self) -> None:
        """Removes all states, because an attempt has ended."""
        self._pods.clear()

    def write(self) -> bool:
        """Replaces the file if a state has changed. Returns whether a state has changed.

        If the disk is full, the file is not replaced, but the result is the same.
        """
        states = {source: text for each in self._pods.values() for source, text in each.items()}
        if states == self._written:
            return False
        self._written = states
        with suppress(OSError):
            self._run.write_open_lines(json.dumps(states).encode())
        return True


def live_blocks(run: RunDir, sources: frozenset[str] | None) -> Iterator[list[LiveLine]]:
    """Yields the lines of a run and the changed states of incomplete lines until the run has finished."""
    live = LiveLines(sources)
    for lines in read_lines(run, follow=True, sources=sources):
        yield live.block(lines, _read(run))


def _read(run: RunDir) -> dict[str, str]:
    try:
        found = parse_json(read_regular(run.open_lines))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
