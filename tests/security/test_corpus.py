"""No entry of the corpus ends a parser with an undeclared error, takes long, or exhausts the memory."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.security.corpus import entries
from tests.security.parsers import PARSERS

pytestmark = pytest.mark.exhaustive

MEMORY = 2 << 30
"""The limit of a process's data in bytes: the imported libraries need a tenth of it."""


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def test_the_corpus_is_parsed_with_declared_errors_only() -> None:
    """Runs in a process, because nothing interrupts a search. The last line names the parser that ran last."""
    words = [sys.executable, "-m", "tests.security.parsers"]
    done = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, timeout=1800)
    assert (done.returncode, done.stdout.splitlines()) == (0, list(PARSERS)), f"{done.stdout}\n{done.stderr}"


def test_the_corpus_has_small_and_large_entries() -> None:
    sizes = sorted(map(len, entries().values()))
    assert sizes[0] == 0 and sizes[-1] >= 1 << 20 and len(sizes) > 60
