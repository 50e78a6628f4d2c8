"""The preparation of a pod before its command starts."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stepset.agent.config import Config
from stepset.agent.errors import AgentError
from stepset.agent.setup import copy_files, create_fifo, leads_outside, put_in_place, remove, unpack


def test_the_fifo_is_new_and_never_at_its_end(config: Callable[..., Config], tmp_path: Path) -> None:
    made = config(dir=str(tmp_path / "agent"))
    env = {"STEPSET_RESULT_FILE": str(tmp_path / "results" / "result")}
    for _ in range(2):
        fifo = create_fifo(made, env)
        with pytest.raises(BlockingIOError):
            os.read(fifo, 1)
        os.close(fifo)
    assert stat.S_ISFIFO((tmp_path / "agent" / "out").stat().st_mode)
    assert (tmp_path / "results").is_dir()


def test_files_of_an_earlier_attempt_are_removed(config: Callable[..., Config], tmp_path: Path) -> None:
    made = config(dir=str(tmp_path / "agent"))
    result, error = tmp_path / "result", tmp_path / "agent" / "error.json"
    (tmp_path / "agent").mkdir()
    env = {"STEPSET_RESULT_FILE": str(result), "TORCHELASTIC_ERROR_FILE": str(error)}
    result.touch()
    error.touch()
    put_in_place(made, env, first=False)
    assert (result.exists(), error.exists()) == (True, False)
    put_in_place(made, env, first=True)
    assert not result.exists()


def test_a_file_replaces_a_read_only_one_with_its_mode(tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "ssh" / "key"
    for content in ("one", "two"):
        source.write_text(content)
        copy_files([{"source": str(source), "path": str(path), "mode": "0400"}])
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (content, 0o400)


def test_removing_a_missing_file_is_not_an_error(tmp_path: Path) -> None:
    remove(str(tmp_path / "none"))


def archive(path: Path, *members: tuple[str, str]) -> str:
    """Creates a tar.gz with files (target "") and symbolic links."""
    with tarfile.open(path, "w:gz") as tar:
        for name, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = (tarfile.SYMTYPE, target) if target else (tarfile.REGTYPE, "")
            tar.addfile(member, io.BytesIO())
    return str(path)


def test_code_is_unpacked(tmp_path: Path) -> None:
    unpack(archive(tmp_path / "code.tgz", ("a/b.py", ""), ("a/c.py", "b.py")), str(tmp_path / "code"))
    assert sorted(path.name for path in (tmp_path / "code" / "a").iterdir()) == ["b.py", "c.py"]


@pytest.mark.parametrize("member", [("../b.py", ""), ("a", "../b"), ("a/b", "../../c")])
def test_code_that_leads_outside_is_rejected(tmp_path: Path, member: tuple[str, str]) -> None:
    with pytest.raises(AgentError, match="cannot unpack"):
        unpack(archive(tmp_path / "code.tgz", member), str(tmp_path / "code"))


@pytest.mark.parametrize("member", [("a/b.py", ""), ("a/b", "../c")])
def test_paths_that_an_older_python_does_not_check(member: tuple[str, str]) -> None:
    info = tarfile.TarInfo(member[0])
    info.type, info.linkname = (tarfile.SYMTYPE, member[1]) if member[1] else (tarfile.REGTYPE, "")
    assert not leads_outside(info)
    info.name = "../" + info.name
    assert leads_outside(info)
