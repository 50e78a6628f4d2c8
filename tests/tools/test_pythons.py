"""CPython releases are found on PATH, in pyenv and in /usr/bin; other executables are ignored."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tools.pythons import FOR_THE_CORE, NEWEST, Interpreter, interpreters

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tools/pythons.py"
BASE = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
"""The base interpreter of the tests' environment."""
FAKE_INTERPRETER = """#!/bin/sh
exec {base} -c 'import sys; sys.executable = "{path}"; {claims}; exec(sys.argv[-1])' "$@"
"""


def installed(path: Path, version: str, release: str = "final", implementation: str = "cpython") -> Path:
    """Creates an executable that behaves like an interpreter of another version; returns its path."""
    major, minor, patch = version.split(".")
    claims = f'sys.version_info = ({major}, {minor}, {patch}, "{release}", 0)'
    claims += f'; sys.implementation.name = "{implementation}"'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FAKE_INTERPRETER.format(base=BASE, path=path, claims=claims))
    path.chmod(0o755)
    return path


def found_below(directory: Path, minimum: tuple[int, int] = FOR_THE_CORE, **environment: str) -> list[str]:
    """Returns names and versions of the interpreters found in a directory; /usr/bin may have others."""
    found = [each for each in interpreters(minimum, environment) if each.path.is_relative_to(directory)]
    return [f"{each.path.relative_to(directory)} {'.'.join(map(str, each.version))}" for each in found]


def test_interpreters_on_path_are_ordered_by_version_not_by_name(tmp_path: Path) -> None:
    installed(tmp_path / "a/python3.12", "3.12.10")
    installed(tmp_path / "a/python3.11", "3.11.9")
    installed(tmp_path / "b/python3.12", "3.12.9")
    found = found_below(tmp_path, PATH=f"{tmp_path}/a:{tmp_path}/missing::{tmp_path}/b")
    assert found == ["a/python3.11 3.11.9", "b/python3.12 3.12.9", "a/python3.12 3.12.10"]


@pytest.mark.parametrize("variable", ["PYENV_ROOT", "HOME"])
def test_interpreters_in_pyenv_are_found_without_path(tmp_path: Path, variable: str) -> None:
    root = tmp_path if variable == "PYENV_ROOT" else tmp_path / ".pyenv"
    path = installed(root / "versions/3.8.18/bin/python3.8", "3.8.18")
    assert found_below(tmp_path, (3, 8), **{variable: str(tmp_path)}) == [f"{path.relative_to(tmp_path)} 3.8.18"]


def test_interpreters_in_usr_bin_are_found_with_an_empty_environment() -> None:
    expected = {path.name for path in Path("/usr/bin").glob("python3.1[1-4]")}
    assert {each.path.name for each in interpreters(FOR_THE_CORE, {})} == expected


@pytest.mark.parametrize(("version", "found"), [("3.10.13", 0), ("3.11.0", 1), ("3.14.2", 1), ("3.15.0", 0)])
def test_only_versions_in_the_range_are_found(tmp_path: Path, version: str, found: int) -> None:
    installed(tmp_path / f"python{version.rpartition('.')[0]}", version)
    assert len(found_below(tmp_path, PATH=str(tmp_path))) == found


def test_the_version_is_that_of_the_interpreter_not_of_its_name(tmp_path: Path) -> None:
    installed(tmp_path / "python3.12", "3.10.1")
    installed(tmp_path / "python3.13", "3.14.1")
    assert found_below(tmp_path, PATH=str(tmp_path)) == ["python3.13 3.14.1"]


def test_other_names_implementations_and_pre_releases_are_ignored(tmp_path: Path) -> None:
    installed(tmp_path / "python3.12", "3.12.0", implementation="pypy")
    installed(tmp_path / "python3.14", "3.14.0", release="candidate")
    installed(tmp_path / "python3.13t", "3.13.0")
    installed(tmp_path / "python3", "3.13.0")
    assert found_below(tmp_path, PATH=str(tmp_path)) == []


def test_a_shim_that_fails_and_a_file_that_is_no_program_are_ignored(tmp_path: Path) -> None:
    for name, text in {"python3.12": "#!/bin/sh\nexit 127\n", "python3.13": "no program", "python3.11": ""}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3.14").symlink_to("nothing")
    assert found_below(tmp_path, PATH=str(tmp_path)) == []


def test_a_virtual_environment_is_ignored_and_its_base_is_found(tmp_path: Path) -> None:
    subprocess.run([BASE, "-m", "venv", "--without-pip", "--symlinks", tmp_path / "venv"], check=True)
    assert (tmp_path / "venv/bin" / BASE.name).exists()
    environment = {"PATH": f"{tmp_path}/venv/bin:{BASE.parent}"}
    found = {each.path.resolve() for each in interpreters(FOR_THE_CORE, environment)}
    assert found_below(tmp_path, **environment) == []
    assert BASE.resolve() in found


def test_one_interpreter_under_two_names_is_found_once(tmp_path: Path) -> None:
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / BASE.name).symlink_to(BASE)
    found = interpreters(FOR_THE_CORE, {"PATH": f"{tmp_path}/a:{tmp_path}/b:{BASE.parent}"})
    assert [each for each in found if each.path.resolve() == BASE.resolve()] == [
        Interpreter(tuple(sys.version_info[:3]), tmp_path / "a" / BASE.name)
    ]


def test_the_program_prints_the_path_of_an_interpreter(tmp_path: Path) -> None:
    newest = installed(tmp_path / f"python3.{NEWEST[1]}", f"3.{NEWEST[1]}.999")
    oldest = installed(tmp_path / "python3.11", "3.11.0")
    for which, path in {"oldest": oldest, "newest": newest}.items():
        done = subprocess.run([BASE, PROGRAM, which], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, f"{path}\n")


def test_the_oldest_version_for_the_core_is_that_of_requires_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={FOR_THE_CORE[0]}.{FOR_THE_CORE[1]}"
