"""An archive of code is extracted inside its directory only, by this process and by the program of a function."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stepset.functions.extract import extract
from stepset.functions.module import module_program


def packed(name: str, text: str, target: str = "") -> bytes:
    """A tar.gz with one file, or with a symbolic link to `target`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(text), 0o6777
        if target:
            member.type, member.linkname = tarfile.SYMTYPE, target
        tar.addfile(member, io.BytesIO(text.encode()))
    return file.getvalue()


def run(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program whose temporary files are in `tmp_path`."""
    env = {"TMPDIR": str(tmp_path)}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)


def test_a_file_is_extracted_without_privileges(tmp_path: Path) -> None:
    extract(packed("a/b.py", "x = 1"), str(tmp_path))
    assert (tmp_path / "a/b.py").read_text() == "x = 1"
    assert (tmp_path / "a/b.py").stat().st_mode & 0o7777 == 0o755, "neither setuid nor writable for others"


@pytest.mark.parametrize(
    "archive",
    [packed("../outside.py", ""), packed("a/../../outside.py", ""), packed("/outside.py", ""), packed("a", "", "../b")],
    ids=["parent", "later-parent", "absolute", "link"],
)
def test_a_member_that_is_no_file_inside_the_directory_is_rejected(tmp_path: Path, archive: bytes) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(tarfile.TarError, match="is not a regular file inside the directory"):
        extract(archive, str(tmp_path / "in"))
    assert list(tmp_path.rglob("*")) == [tmp_path / "in"]


def test_a_program_imports_the_module_from_its_archive_and_removes_the_files(tmp_path: Path) -> None:
    code = packed("steps.py", "def extract(word):\n    print(word, __file__)\n")
    done = run(module_program("steps", "extract", code, ["hello"]), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"hello {tmp_path}/stepset-code-")
    assert list(tmp_path.iterdir()) == []


def test_a_traceback_shows_the_names_of_the_archive_and_no_frames_of_the_program(tmp_path: Path) -> None:
    text = "def fit():\n    try:\n        1 / 0\n    except ArithmeticError as e:\n        raise ValueError from e\n"
    shown = run(module_program("lib.steps", "fit", packed("lib/steps.py", text)), tmp_path).stderr
    assert re.findall(r'File ".*', shown) == [f'File "lib/steps.py", line {line}, in fit' for line in (3, 5)]
    assert "\n    raise ValueError from e\nValueError\n" in re.sub(r"\n *[~^]+(?=\n)", "", shown)
    broken = run(module_program("lib.steps", "fit", packed("lib/steps.py", "x = (\n")), tmp_path).stderr
    assert 'File "lib/steps.py", line 1\n' in broken


def test_a_program_rejects_a_file_that_leads_outside(tmp_path: Path) -> None:
    done = run(module_program("steps", "fit", packed("../outside.py", "")), tmp_path)
    assert done.returncode == 1
    assert "TarError: '../outside.py' is not a regular file inside the directory" in done.stderr
    assert list(tmp_path.iterdir()) == []
