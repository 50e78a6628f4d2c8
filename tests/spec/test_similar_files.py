"""A path that does not exist: the error suggests a file of the same directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepset.errors import BadInputError
from stepset.regular_files import similar_file
from stepset.spec.load import read_job_file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("train.py", "digits.yaml", "evaluate.py", "p.yaml"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("missing", ["trian.py", "tain.py", "Train.py", "train.pyy"])
def test_a_similar_name_is_suggested(project: Path, missing: str) -> None:
    assert similar_file(project / missing) == f"did you mean {str(project / 'train.py')!r}?"


@pytest.mark.parametrize(
    "missing", ["nope.py", "nope.yaml", "a.yaml", "none/train.py", "train.py/train.py", "no\0/train.py"]
)
def test_nothing_is_suggested_if_no_name_is_similar_or_readable(project: Path, missing: str) -> None:
    assert similar_file(project / missing) == ""


def test_the_suggestion_keeps_the_form_of_the_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    with pytest.raises(BadInputError, match=r"^digit\.yaml: no such file; did you mean 'digits\.yaml'\?$"):
        read_job_file("digit.yaml")
