"""No file from outside is shipped, also if another program swaps folders and links while stepset reads the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepset.directory_trees import delete_tree
from stepset.errors import BadInputError
from stepset.sources import Sources, read_sources
from stepset.spec import parse_job
from tests.security.deep_trees import make_deep
from tests.security.test_shipped_code import packed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two paths in one step")

SWAP = """
import ctypes, sys

exchange = ctypes.CDLL(None, use_errno=True).renameat2
first, second = (word.encode() for word in sys.argv[1:])
print("ready", flush=True)
while exchange(-100, first, -100, second, 2) == 0:  # AT_FDCWD, RENAME_EXCHANGE
    pass
sys.exit(str(ctypes.get_errno()))
"""
RENDERS = 30
"""The number of renders that succeed. Without protection, at least every fifth of them ships a file from outside."""
FILES = 50
"""The number of files in a folder. The folder is swapped many times while they are read."""
INSIDE, OUTSIDE = b"# inside\n", b"# outside\n"


@contextmanager
def swapping(first: Path, second: Path) -> Iterator[None]:
    """Exchanges two paths all the time, in another process."""
    with subprocess.Popen([sys.executable, "-c", SWAP, first, second], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        try:
            yield
            assert process.poll() is None, "the attack has ended"
        finally:
            process.kill()


def renders(base: Path, **job: str) -> list[Sources]:
    """Reads a job many times. Returns the results of the renders that succeeded. Others are refused with one line."""
    found: list[Sources] = []
    while len(found) < RENDERS:
        try:
            found.append(read_sources(parse_job(job), base))
        except BadInputError as error:
            assert len(error.problems) == 1
    return found


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A code directory with a script and a package, beside a directory `outside` with the files of the package."""
    for package, text in ((tmp_path / "code/lib", INSIDE), (tmp_path / "outside", OUTSIDE)):
        for folder in (package, package / "sub"):
            folder.mkdir(parents=True)
            for name in ("__init__.py", "data.py", *(f"module{number}.py" for number in range(FILES))):
                (folder / name).write_bytes(text)
    (tmp_path / "code/train.py").write_bytes(b"import lib\n")
    yield tmp_path / "code"
    delete_tree(tmp_path / "code")  # pytest cannot delete deep folders


def link(code: Path, target: str) -> Path:
    """Returns a new link beside the code directory."""
    path = code.parent / "link"
    path.symlink_to(code.parent / target)
    return path


@pytest.mark.parametrize(("folder", "target"), [("lib", "outside"), ("lib/sub", "outside/sub")])
def test_a_folder_of_code_that_becomes_a_link(code: Path, folder: str, target: str) -> None:
    with swapping(code / folder, link(code, target)):
        for sources in renders(code, module="train", code="."):
            assert OUTSIDE not in packed(sources).values()


def test_a_folder_in_a_package_that_a_script_imports_becomes_a_link(code: Path) -> None:
    with swapping(code / "lib/sub", link(code, "outside/sub")):
        for sources in renders(code, script="train.py"):
            assert OUTSIDE not in packed(sources).values()


def test_a_linked_module_in_a_package_whose_folder_becomes_a_link(code: Path) -> None:
    (code / "lib/sub/linked.py").symlink_to("data.py")
    (code.parent / "outside/sub/linked.py").write_bytes(OUTSIDE)
    with swapping(code / "lib/sub", link(code, "outside/sub")):
        for sources in renders(code, script="train.py"):
            assert OUTSIDE not in packed(sources).values()


def test_the_folder_above_code_becomes_a_link_and_no_render_mixes_files_of_two_directories(code: Path) -> None:
    project, other = code.parent / "project", code.parent / "other"
    for directory, text in ((project, INSIDE), (other, OUTSIDE)):
        for number in range(50):
            path = directory / "code" / f"folder{number}" / "data.py"
            path.parent.mkdir(parents=True)
            path.write_bytes(text)
    with swapping(project, link(code, "other")):
        for sources in renders(code.parent, module="train", code="project/code"):
            assert len(set(packed(sources).values())) == 1


def test_the_requirements_of_a_script_are_not_those_of_a_file_outside(code: Path) -> None:
    (code / "lib/train.py").write_bytes(INSIDE)
    metadata = b'# /// script\n# dependencies = ["attack"]\n# ///\n'
    (code.parent / "outside/train.py").write_bytes(metadata)
    with swapping(code / "lib", link(code, "outside")):
        for sources in renders(code, script="lib/train.py", code="."):
            assert not sources.requirements


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder"])
def test_a_file_that_becomes_another_kind_of_file(code: Path, kind: str) -> None:
    other = code.parent / "swapped"
    make(other, kind, code.parent / "outside/data.py")
    with swapping(code / "lib/data.py", other):
        for sources in renders(code, module="train", code="."):
            assert packed(sources).get("lib/data.py") in (None, INSIDE)
            assert OUTSIDE not in packed(sources).values()


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
@pytest.mark.parametrize("folder", [".", "lib"])
def test_an_ignore_file_that_becomes_another_kind_of_file(code: Path, kind: str, folder: str) -> None:
    (code / ".stepsetignore").write_text("other\n", encoding="utf-8")
    (code / folder / ".stepsetignore").write_text("data.py\n", encoding="utf-8")
    (code.parent / "rules").write_text("nothing\n", encoding="utf-8")
    make(code.parent / "swapped", kind, code.parent / "rules")
    with swapping(code / folder / ".stepsetignore", code.parent / "swapped"):
        for sources in renders(code, module="train", code="."):
            assert "lib/data.py" not in packed(sources)


def test_the_ignore_file_of_a_folder_that_becomes_a_link(code: Path) -> None:
    (code / ".stepsetignore").write_text("other\n", encoding="utf-8")
    (code / "lib/.stepsetignore").write_text("data.py\n", encoding="utf-8")
    (code.parent / "outside/.stepsetignore").write_text("nothing\n", encoding="utf-8")
    (code / "many").mkdir()  # is read before `lib`
    for number in range(300):
        (code / "many" / str(number)).touch()
    with swapping(code / "lib", link(code, "outside")):
        for sources in renders(code, module="train", code="."):
            assert {"lib/data.py", "lib/sub/data.py"}.isdisjoint(packed(sources))


def make(path: Path, kind: str, target: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
        (path / "data.py").write_bytes(INSIDE)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else target)


class TestADeepFolderOfCode:
    """The job itself may create such folders in its code directory."""

    def test_with_paths_that_linux_can_open_does_not_prevent_a_render(self, code: Path) -> None:
        (code / "deep").mkdir()
        make_deep(code / "deep")
        assert "train.py" in packed(read_sources(parse_job({"module": "train", "code": "."}), code))

    def test_with_longer_paths_is_one_line_unless_it_is_ignored(self, code: Path) -> None:
        (code / "deep").mkdir()
        make_deep(code / "deep", 3000, "name")
        job = parse_job({"module": "train", "code": "."})
        with pytest.raises(BadInputError) as caught:
            read_sources(job, code)
        [line] = caught.value.problems
        assert re.fullmatch(
            r"code: deep/name/.*\.\.\. has a path of more than 4000 bytes, and .*; remove it, or .*", line
        )
        (code / ".stepsetignore").write_text("deep\n", encoding="utf-8")
        assert "train.py" in packed(read_sources(job, code))

    def test_in_a_package_that_a_script_imports_does_not_prevent_a_render(self, code: Path) -> None:
        make_deep(code / "lib", 3000, "name")
        assert "lib/data.py" in packed(read_sources(parse_job({"script": "train.py"}), code))
