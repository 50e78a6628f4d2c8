"""The check of words: an excluded word is reported with its place and a replacement, in prose and in identifiers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.check_words import PHRASES, WORDS, problems

pytestmark = pytest.mark.local

CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_words.py"
EXCLUDED = "to" + "ld"
"""In two parts, because the check reads this file, too."""


@pytest.mark.parametrize(
    "text", [f"is {EXCLUDED}.", f"was_{EXCLUDED} = 1", f"class {EXCLUDED.title()}Again: ...", EXCLUDED.upper()]
)
def test_a_word_is_found_in_prose_and_in_identifiers(text: str) -> None:
    assert list(problems("a.py", f"fine\n{text}")) == [f"a.py:2: {EXCLUDED!r}: write {WORDS[EXCLUDED]}"]


@pytest.mark.parametrize("text", ["recommended", "amendment", "stolders", "x is None", "the pod returns"])
def test_words_that_contain_one_are_allowed(text: str) -> None:
    assert list(problems("a.md", text)) == []


@pytest.mark.parametrize("phrase", sorted(PHRASES))
def test_a_phrase_is_found(phrase: str) -> None:
    assert list(problems("a.md", f"It {phrase} later.")) == [f"a.md:1: {phrase!r}: write {PHRASES[phrase]}"]


def test_a_planted_word_fails_the_check(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"The user is {EXCLUDED}.\n")
    done = subprocess.run([sys.executable, CHECK, page], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"{page}:1: {EXCLUDED!r}")
