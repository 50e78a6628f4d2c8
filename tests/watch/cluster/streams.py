"""The recorded streams, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepset.watch.cluster.change import Change

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))


def stream(name: str) -> list[Change]:
    """The changes of a scenario, in the order in which they came."""
    whole: dict[str, dict[str, Any]] = {}
    changes = []
    for verb, news in json.loads((RECORDED / f"{name}.json").read_text()):
        uid = news["uid"]
        whole[uid] = {**whole.get(uid, {}), **{key: part for key, part in news.items() if key != "uid"}}
        changes.append(Change(verb, whole[uid]))
    return changes
