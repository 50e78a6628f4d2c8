"""Several recorded runs in one namespace: gives each stream its own name and uids."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache

from stepset.watch.list_watch import Change
from tests.watch.cluster.streams import stream

_NAME = re.compile(r'(?<=["/ ])run(?=["\-.: ])')
_UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")


@cache
def renamed(scenario: str, run: str) -> tuple[Change, ...]:
    """The changes of a recorded scenario for a run with another name."""
    uid = f"{sum(map(ord, run)) * 7919 % 0xFFFFFFFF:08x}"

    def other(change: Change) -> Change:
        words = _NAME.sub(run, json.dumps(change.object))
        # The name is also the end of a label's key, which must not change.
        words = words.replace(f'stepset.dev/{run}"', 'stepset.dev/run"')
        return Change(change.verb, json.loads(_UID.sub(rf"{uid}\1", words)), change.observed)

    return tuple(map(other, stream(scenario)))


def by_kind(changes: Iterable[Change]) -> list[list[Change]]:
    """The changes of each kind, in order, as separate watches would deliver them."""
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(str(change.object["kind"]), []).append(change)
    return list(found.values())
