"""Several recorded runs in one namespace: each stream under a name and uids of its own, then mixed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache

from stepset.watch.cluster.change import Change
from tests.watch.cluster.streams import stream

_NAME = re.compile(r'(?<=["/ ])run(?=["\-.: ])')
_UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")


@cache
def renamed(scenario: str, run: str) -> tuple[Change, ...]:
    """The changes of a recorded scenario as they would be of a run of another name."""
    uid = f"{sum(map(ord, run)) * 7919 % 0xFFFFFFFF:08x}"

    def other(change: Change) -> Change:
        words = _NAME.sub(run, json.dumps(change.object))
        # Keys of labels end like the name: they are put back.
        words = words.replace(f'stepset.dev/{run}"', 'stepset.dev/run"')
        return Change(change.verb, json.loads(_UID.sub(rf"{uid}\1", words)), change.witnessed)

    return tuple(map(other, stream(scenario)))


def by_kind(changes: Iterable[Change]) -> list[list[Change]]:
    """The changes as the watches of the kinds bring them, each in its order."""
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(str(change.object["kind"]), []).append(change)
    return list(found.values())
