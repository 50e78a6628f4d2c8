"""Fails if a text of the repository contains a word that the rules for prose in CONTRIBUTING.md exclude.

A sentence with such a word does not state who acts or what happens. Identifiers that contain such a word are rejected.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

WORDS = {
    "whoever": "name the actor: the caller, the user, the worker",
    "whomever": "name the actor: the caller, the user, the worker",
    "nobody": "name the actor: no process, no user",
    "somebody": "name the actor: another user, another process",
    "anybody": "name the actor",
    "told": "reported, notified, requested",
    "tells": "reports, notifies, states",
    "heard": "received, reported",
    "hears": "receives",
    "asker": "caller",
    "askers": "callers",
    "befell": "happened to",
    "befalls": "happens to",
    "mend": "fix",
    "mended": "fixed",
    "mends": "fixes",
}
"""The excluded words in lower case. The values state what to write instead."""
PHRASES = {
    "comes back": "returns",
    "come back": "return",
    "came back": "returned",
    "goes on with": "continues",
}
"""The excluded sequences of words. The values state what to write instead."""
ALLOWED = {("tests/cluster/testbed/image.py", "nobody"): "an account in /etc/passwd"}
"""The excluded words that a file may contain. The values state the reason."""
SUFFIXES = (".py", ".md", ".yaml", ".yml", ".toml", ".html", ".js", ".css", ".sh", "")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PHRASE = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)


def problems(path: str, text: str) -> Iterator[str]:
    """Yields `path:line: word: what to write instead` for each excluded word or phrase of a text."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _WORD.finditer(line):
            word = match.group().lower()
            if word in WORDS and (path, word) not in ALLOWED:
                yield f"{path}:{number}: {word!r}: write {WORDS[word]}"
        for match in _PHRASE.finditer(line):
            phrase = match.group().lower()
            yield f"{path}:{number}: {phrase!r}: write {PHRASES[phrase]}"


def files(root: Path) -> Iterator[str]:
    """Yields the paths of the tracked texts, relative to the root, without generated files and lock files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for path in subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines():
        name = Path(path)
        if name.suffix in SUFFIXES and name.parts[0] != "locks" and "built" not in name.parts:
            yield path


def main(arguments: Iterable[str] | None = None) -> int:
    """Prints the problems of the given files, or of all tracked texts. Returns 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="default: every tracked text")
    root = Path(__file__).resolve().parents[1]
    given = parser.parse_args(None if arguments is None else list(arguments)).files
    found = 0
    for path in given or files(root):
        if Path(path).name == Path(__file__).name:
            continue
        try:
            text = (root / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for problem in problems(path, text):
            print(problem)
            found = 1
    return found


if __name__ == "__main__":
    sys.exit(main())
