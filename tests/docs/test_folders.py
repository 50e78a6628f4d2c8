"""The size of packages: a reader finds a module by its folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 20
"""Python files directly in a folder."""


def test_no_folder_contains_more_than_twenty_modules() -> None:
    files = [path for top in ("src", "providers", "components") for path in (ROOT / top).rglob("*.py")]
    assert len(files) > 300
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in files)
    assert {folder: count for folder, count in counts.items() if count > MOST} == {}
