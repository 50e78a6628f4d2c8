"""Ignore files of a code directory: the rules of gitignore, compared with git itself on generated trees."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.sources.code_files import find_code_files

NAMES = ("a", "b", "ab", "abab", "ba]b", "a.py", "b.bin", "[a]", "a b", "é")
STARS = ("*a*b*", "*a*ab", "a**b**b", "*b*[]x]*b", "*?*?*?b", "*[!b]*[!a]*b*", "*a*b/*b*b")
SEGMENTS = st.sampled_from(
    [*NAMES, *STARS, "*", "?", "**", "*.py", "a*", "[ab]", "[!a]*", r"\*", r"\[a\]", "a\\ b", "a/b"]
)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    body = "/".join(draw(st.lists(SEGMENTS, min_size=1, max_size=3)))
    start = draw(st.sampled_from(["", "", "/", "!", "!", "!/"]))
    end = draw(st.sampled_from(["", "", "/", " ", "\r", "/*", "/**"]))
    return start + body + end


IGNORE_FILES = st.lists(patterns() | st.sampled_from(["", "# a", r"\#a", r"\!a", "!", "/", "*", "!*/"]), max_size=5)
PATHS = st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple), min_size=1, max_size=8)


def write_tree(root: Path, paths: set[tuple[str, ...]], rules: dict[str, list[str]]) -> None:
    for path in sorted(paths, key=len, reverse=True):  # a path that is a directory of another one is no file
        file = root.joinpath(*path)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("1")
    for folder, lines in rules.items():
        if (root / folder).is_dir():
            (root / folder / ".gitignore").write_text("\n".join(lines) + "\n", encoding="utf-8")


def kept_by_git(root: Path) -> set[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", str(root)], env=environ, check=True)
    command = ["git", "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, env=environ, check=True, capture_output=True).stdout
    shutil.rmtree(root / ".git")
    return {os.fsdecode(name) for name in listed.split(b"\0") if name and not name.endswith(b".gitignore")}


@settings(max_examples=60, deadline=None)
@example(paths={("a", "a.py"), ("b", "b.bin")}, top=["*", "!*/", "!*.py"], nested=[], folder="a")
@example(paths={("a", "b", "a.py")}, top=["*.py"], nested=["!b"], folder="a")
@example(paths={("a", "b")}, top=["a/*", "!a/b"], nested=[], folder="a")
@example(paths={("[a]", "b", "a.py"), ("a", "b", "a.py")}, top=[], nested=["/b/*.py"], folder="[a]")
@given(paths=PATHS, top=IGNORE_FILES, nested=IGNORE_FILES, folder=st.sampled_from(["a", "a/b", "[a]", "a b", "é/ab"]))
def test_the_same_files_are_kept_as_by_git(
    paths: set[tuple[str, ...]], top: list[str], nested: list[str], folder: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "code"
        root.mkdir()
        write_tree(root, paths, {"": top, folder: nested})
        try:
            kept = set(find_code_files(root).files)
        except BadInputError as error:
            assert "correct the pattern" in str(error)
            return
        assert kept == kept_by_git(root)


def kept(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return list(find_code_files(root).files)


def test_a_stepsetignore_replaces_gitignore_in_every_folder(tmp_path: Path) -> None:
    rules = {".stepsetignore": "*.bin\n", ".gitignore": "*.py\n", "a/.gitignore": "*\n", "b/.stepsetignore": "!x.bin\n"}
    files = {"a/x.py": "", "a/x.bin": "", "b/x.bin": "", "b/y.bin": ""}
    assert kept(tmp_path, {**rules, **files}) == ["a/x.py", "b/x.bin"]


def test_ignore_files_above_the_directory_are_not_read(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")
    assert kept(tmp_path / "code", {"train.py": ""}) == ["train.py"]


def test_no_rule_includes_what_is_never_code(tmp_path: Path) -> None:
    rules = {".gitignore": "!.git\n!__pycache__/\n!env/\n"}
    files = {
        "a/.git/config": "",
        "__pycache__/x.pyc": "",
        "local_outputs/stepset-code/0.tar.gz": "",
        "env/pyvenv.cfg": "",
        "env/bin/python": "",
        "a/.gitignore": "",
    }
    assert kept(tmp_path, {**rules, **files, "a/train.py": ""}) == ["a/train.py"]


def test_ignored_files_and_directories_are_counted(tmp_path: Path) -> None:
    files = {".gitignore": "data/\n*.bin\n", "data/a": "", "data/b": "", "x.bin": "", "train.py": "", ".venv/x": ""}
    assert kept(tmp_path, files) == ["train.py"]
    found = find_code_files(tmp_path)
    assert (found.ignore_file, found.ignored_files, found.ignored_directories) == (".gitignore", 1, 1)
