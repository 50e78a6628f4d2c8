"""docs/failures.md describes each kind of failure, as the code defines it, and quotes messages that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from stepset.run_status import Failure, FailureKind, Phase, RunStatus
from stepset.watch.advice import ADVICE
from stepset.watch.diagnose import Observation, kind_of
from stepset.watch.present.failure_report import failure_text

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
SECTIONS = {title: text for title, _, text in (part.partition("\n") for part in TEXT.split("\n## ")[1:])}
_MESSAGE = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
RETRIED = ast.literal_eval(
    re.findall(r"^RETRIED = (\(.*\))$", (ROOT / "providers/stepset_airflow/retry.py").read_text("utf-8"), re.MULTILINE)[
        0
    ]
)
SOMETIMES = {
    FailureKind.DEADLINE_EXCEEDED: "only if the run [hung because of the network or a disk](airflow.md#on-a-cluster)"
}
"""Kinds whose retry depends on the cause."""


def test_each_kind_has_a_section() -> None:
    assert list(SECTIONS) == [kind.value for kind in FailureKind]


@pytest.mark.parametrize("kind", FailureKind)
def test_a_section_begins_with_the_advice_of_the_diagnosis(kind: FailureKind) -> None:
    paragraph = SECTIONS[kind.value].strip().partition("\n\n")[0]
    assert " ".join(paragraph.split()) == ADVICE[kind]


@pytest.mark.parametrize("kind", FailureKind)
def test_the_table_has_its_exit_code_and_whether_airflow_retries_it(kind: FailureKind) -> None:
    retried = SOMETIMES.get(kind) or ("yes" if kind.value in RETRIED else "no")
    assert f"| [{kind.value}](#{kind.value.lower()}) | {kind.exit_code:d} | {retried} |" in TEXT


@pytest.mark.parametrize("kind", FailureKind)
def test_the_diagnosis_names_the_section(kind: FailureKind) -> None:
    status = RunStatus("r", "r", "local", Phase.FAILED, failure=Failure(kind, "it failed.", ADVICE[kind]))
    [name] = re.findall(r"^  see +stepset failures (\w+)$", failure_text(status), re.MULTILINE)
    assert name in SECTIONS


@cache
def _sources() -> str:
    """The text of stepset, in which messages are written, and of tests, which contain recorded messages of clusters."""
    patterns = ("src/**/*.py", "tests/**/*.py", "tests/**/recorded/*.json")
    files = [path for pattern in patterns for path in ROOT.glob(pattern) if path != Path(__file__)]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.parametrize("kind", FailureKind)
def test_each_quoted_message_is_one_of_stepset_or_an_error_of_that_kind(kind: FailureKind) -> None:
    quoted = [text for cell in _MESSAGE.findall(SECTIONS[kind.value]) for text in _CODE.findall(cell)]
    assert [text for text in quoted if not (_written(text) or _error_kind(text) is kind)] == []


def _written(quoted: str) -> bool:
    return all(part in _sources() for part in re.split(r' ?"?\.\.\."?', quoted))


def _error_kind(quoted: str) -> FailureKind:
    return kind_of(Observation("rank 0", 0.0, error=quoted, exit_code=1))
