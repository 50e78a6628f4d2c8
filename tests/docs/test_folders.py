"""The size of packages and files: a reader finds a module by its folder, and reads it as a whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("src", "providers", "components")
MOST = 20
"""Python files directly in a folder."""
LINES = 400
"""Lines of a file; a longer one has a second responsibility."""


def python_files(root: Path) -> list[Path]:
    return [path for package in PACKAGES for path in (root / package).rglob("*.py")]


def crowded_folders(root: Path) -> dict[str, int]:
    """Folders with more than MOST Python files."""
    counts = Counter(path.parent.relative_to(root).as_posix() for path in python_files(root))
    return {folder: count for folder, count in counts.items() if count > MOST}


def long_files(root: Path) -> dict[str, int]:
    """Files with more than LINES lines; the agent's built file has no lines of its own."""
    lengths = {
        path.relative_to(root).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(root)
        if path.parent.name != "built"
    }
    return {file: length for file, length in lengths.items() if length > LINES}


def test_no_folder_contains_more_than_twenty_modules() -> None:
    assert len(python_files(ROOT)) > 300
    assert crowded_folders(ROOT) == {}


def test_no_file_has_more_than_four_hundred_lines() -> None:
    assert long_files(ROOT) == {}


def test_a_folder_with_one_file_more_and_a_file_with_one_line_more_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "package"
    folder.mkdir(parents=True)
    for number in range(MOST):
        (folder / f"module{number}.py").write_text("\n" * LINES)
    assert (crowded_folders(tmp_path), long_files(tmp_path)) == ({}, {})
    (folder / "more.py").write_text("\n" * (LINES + 1))
    assert crowded_folders(tmp_path) == {"src/package": MOST + 1}
    assert long_files(tmp_path) == {"src/package/more.py": LINES + 1}
