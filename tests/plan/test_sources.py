"""The job's own files: read completely, packed reproducibly, and rejected with the field of the job file."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.sources import CODE_LIMIT, Sources, read_sources
from stepset.spec import parse_job

NO_FILE = "no such file: .*; (paths are relative to /|this is a directory; give the path of a script in it$)"


def read(base: Path, **job: Any) -> Sources:
    return read_sources(parse_job(job), base)


def packed(sources: Sources) -> dict[str, tarfile.TarInfo]:
    assert sources.archive is not None
    with tarfile.open(fileobj=io.BytesIO(sources.archive), mode="r:gz") as tar:
        return {member.name: member for member in tar.getmembers()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A job's directory: code/ with a script, a package, and files that are never code."""
    for path, text in {
        "code/train.py": "import lib.data\n",
        "code/lib/__init__.py": "",
        "code/lib/data.py": "x = 1\n",
        "code/run.sh": "#!/bin/sh\n",
        "code/lib/__pycache__/data.cpython-311.pyc": "bytecode",
        "code/.git/config": "[core]",
        "code/.venv/bin/python": "binary",
        "code/.mypy_cache/x": "x",
        "code/.ruff_cache/x": "x",
        "code/.pytest_cache/x": "x",
        "code/.ipynb_checkpoints/x": "x",
        "outside.py": "y = 2\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "code/run.sh").chmod(0o755)
    return tmp_path


# --- a script alone --------------------------------------------------------------------------------------------------


def test_a_script_is_shipped_alone(project: Path) -> None:
    (project / "code/train.py").write_text("import numpy\n", encoding="utf-8")
    sources = read(project, script="code/train.py")
    assert sources.script == b"import numpy\n"
    assert (sources.archive, sources.code_dir) == (None, project / "code")


def test_a_module_or_command_has_no_files(project: Path) -> None:
    for job in ({"module": "train"}, {"command": ["train"]}, {"function": "pass"}):
        sources = read(project, **job)
        assert (sources.script, sources.archive, sources.code_dir) == (None, None, project)


@pytest.mark.parametrize("script", ["missing.py", "code", "code/train.py/x", "a" * 300 + ".py", "no/such/dir.py"])
def test_a_missing_script_is_reported(project: Path, script: str) -> None:
    with pytest.raises(BadInputError, match=f"^script: ({NO_FILE}|cannot read .*; check)"):
        read(project, script=script)


@pytest.mark.parametrize("job", [{"script": "big.py"}, {"function": "#" * (CODE_LIMIT + 1)}])
def test_a_program_over_the_limit_is_reported_with_its_size(tmp_path: Path, job: dict[str, str]) -> None:
    (tmp_path / "big.py").write_bytes(b"#" * (CODE_LIMIT + 1))
    [field] = job
    with pytest.raises(BadInputError, match=rf"^{field}: .* has {CODE_LIMIT + 1} bytes; at most {CODE_LIMIT} can be"):
        read(tmp_path, **job)


# --- a code directory ------------------------------------------------------------------------------------------------


def test_code_is_packed_without_what_is_never_code(project: Path) -> None:
    sources = read(project, code="code", script="train.py")
    assert sorted(packed(sources)) == ["lib/__init__.py", "lib/data.py", "run.sh", "train.py"]
    assert (sources.script, sources.code_dir) == (None, project / "code")


@pytest.mark.parametrize("script", ["train.py", "code/train.py", "./code/train.py", "code/lib/../train.py"])
def test_the_script_is_found_by_its_path_inside_or_with_the_directory(project: Path, script: str) -> None:
    assert "train.py" in packed(read(project, code="code", script=script))


def test_the_archive_contains_no_times_no_owners_and_only_the_executable_bit(project: Path) -> None:
    for name, member in packed(read(project, code="code", module="train")).items():
        assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
        assert member.mode == (0o755 if name == "run.sh" else 0o644)


def test_the_same_files_make_the_same_bytes(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    for name in ("run.sh", "lib/data.py", "train.py", "lib/__init__.py"):  # another order, other times and umask
        target = other / "code" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((project / "code" / name).read_bytes())
        target.chmod(0o700 if name == "run.sh" else 0o600)
        os.utime(target, (1, 1))
    first, second = (read(base, code="code", module="train").archive for base in (project, other))
    assert first == second == read(project, code="code", module="train").archive


def test_a_changed_file_makes_other_bytes(project: Path) -> None:
    before = read(project, code="code", module="train").archive
    (project / "code/lib/data.py").write_text("x = 2\n", encoding="utf-8")
    assert read(project, code="code", module="train").archive != before


def test_names_of_any_bytes_are_kept(project: Path) -> None:
    for name in ("ünï-训练.py", "a" * 200 + ".py", "new\nline.py"):
        (project / "code" / name).write_text("1", encoding="utf-8")
    os.close(os.open(os.fsencode(project / "code") + b"/latin-\xe9.py", os.O_CREAT | os.O_WRONLY))
    names = set(packed(read(project, code="code", module="train")))
    assert {"ünï-训练.py", "a" * 200 + ".py", "new\nline.py", os.fsdecode(b"latin-\xe9.py")} <= names


@pytest.mark.parametrize("code", ["missing", "code/train.py", "a" * 300])
def test_a_missing_directory_is_reported(project: Path, code: str) -> None:
    with pytest.raises(BadInputError, match=r"^code: (no such directory: .*; paths are|cannot read .*; check)"):
        read(project, code=code, module="train")


@pytest.mark.parametrize("script", ["missing.py", "lib", "code/missing.py"])
def test_a_script_outside_the_code_is_reported(project: Path, script: str) -> None:
    with pytest.raises(BadInputError, match=f"^script: {NO_FILE}"):
        read(project, code="code", script=script)


@pytest.mark.parametrize("script", ["../outside.py", "{project}/outside.py", ".venv/bin/python"])
def test_a_script_that_would_not_be_shipped_is_reported(project: Path, script: str) -> None:
    with pytest.raises(BadInputError, match=r"is not among the shipped files of code .*; give a path inside it"):
        read(project, code="code", script=script.format(project=project))


def test_code_over_the_limit_is_reported_packed_and_unpacked(project: Path) -> None:
    noise = project / "code/noise.bin"
    noise.write_bytes(os.urandom(CODE_LIMIT + 1024))
    with pytest.raises(
        BadInputError, match=rf"^code: .* bytes packed; at most {CODE_LIMIT} bytes packed can be shipped;"
    ):
        read(project, code="code", module="train").check_shippable()
    with noise.open("wb") as file:
        file.truncate(65 * CODE_LIMIT)  # a sparse file: nothing is written, and the test must not read it
    with pytest.raises(
        BadInputError, match=r"^code: .* bytes unpacked; .* add data to .stepsetignore; for larger code, use a volume"
    ):
        read(project, code="code", module="train").check_shippable()


def test_large_code_that_packs_well_is_accepted(project: Path) -> None:
    (project / "code/table.csv").write_bytes(b"0,0,0,0\n" * (CODE_LIMIT // 2))
    archive = read(project, code="code", module="train").archive
    assert archive is not None and len(archive) < CODE_LIMIT


# Path without permission -> fields of the job -> message.
_CLOSED = [
    ("alone.py", {"script": "alone.py"}, "script: cannot read {base}/alone.py: Permission denied; check the path"),
    (
        "code/train.py",
        {"module": "m", "code": "code"},
        "code: cannot read {base}/code/train.py: Permission denied; check",
    ),
    ("code/lib", {"module": "m", "code": "code"}, "code: cannot read {base}/code/lib: Permission denied; check"),
    ("code", {"module": "m", "code": "code"}, "code: cannot read {base}/code: Permission denied; check"),
    ("code", {"script": "code/train.py"}, "script: cannot read {base}/code/train.py: Permission denied; check"),
]
_UNPRIVILEGED = """
import json, os, sys
from pathlib import Path
from stepset.errors import BadInputError
from stepset.sources import read_sources
from stepset.spec import parse_job
parse_job({"script": "x"})  # everything is loaded before the user changes, who may not see this interpreter
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for base, job in json.loads(sys.argv[1]):
    try:
        read_sources(parse_job(job), Path(base))
        print("read")
    except BadInputError as error:
        print(error)
"""


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can read; pytest makes its own directories private each time it starts."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()


def test_unreadable_files_are_reported(open_path: Path) -> None:
    """Runs as another user than root, who can read every file."""
    bases = [open_path / str(number) for number in range(len(_CLOSED))]
    for base, (closed, _, _) in zip(bases, _CLOSED, strict=True):
        for name in ("alone.py", "code/train.py", "code/lib/data.py"):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text("1\n", encoding="utf-8")
        (base / closed).chmod(0)
    cases = json.dumps([(str(base), job) for base, (_, job, _) in zip(bases, _CLOSED, strict=True)])
    done = subprocess.run(
        [sys.executable, "-c", _UNPRIVILEGED, cases], capture_output=True, text=True, timeout=120, check=False
    )
    for base, (closed, _, _) in zip(bases, _CLOSED, strict=True):
        (base / closed).chmod(0o755)
    assert done.stderr == ""
    for line, base, (_, _, message) in zip(done.stdout.splitlines(), bases, _CLOSED, strict=True):
        assert line.startswith(message.format(base=base))


SYNTAX_ERROR = "import os\nfor rank in range(2)\n    print(rank)\n"


DEFINITIONS = (
    '"""Trains."""\nimport torch\nfrom json import dumps\nSTEPS: int = 2 * 50\nNAMES = ["a", torch.float32]\n'
    "class Net(torch.nn.Module):\n    size = len(NAMES)\n    def forward(self, x):\n        return x\n"
)


@pytest.mark.parametrize(
    ("functions", "named", "called"),
    [
        ("def train(steps=STEPS):\n    print(steps)\n", "train", "train"),
        ("def evaluate(): ...\ndef main(): ...\ndef c(): ...\ndef d(): ...\n", "evaluate, main, c and 1 more", "main"),
    ],
)
def test_a_script_that_only_defines_functions_has_a_note(
    tmp_path: Path, functions: str, named: str, called: str
) -> None:
    (tmp_path / "train.py").write_text(DEFINITIONS + functions, encoding="utf-8")
    (note,) = read(tmp_path, script="train.py").notes
    assert note.startswith(f"script: train.py defines {named}, but calls nothing at its top level, so the ranks end")
    assert note.endswith(f'if __name__ == "__main__": {called}()')


@pytest.mark.parametrize(
    "more",
    [
        'if __name__ == "__main__":\n    train()\n',
        "train()\n",
        "loss = train()\n",
        "@run\ndef main(): ...\n",
        "def main(steps=train()): ...\n",
        "for _ in range(3): pass\n",
        "with open('x'): pass\n",
    ],
)
def test_a_script_that_may_call_a_function_has_no_note(tmp_path: Path, more: str) -> None:
    (tmp_path / "train.py").write_text(f"{DEFINITIONS}def train(): ...\n{more}", encoding="utf-8")
    assert read(tmp_path, script="train.py").notes == ()


def test_a_script_without_functions_has_no_note(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DEFINITIONS, encoding="utf-8")
    assert read(tmp_path, script="train.py").notes == ()


@pytest.mark.parametrize("job", [{"script": "train.py"}, {"script": "train.py", "code": "."}])
def test_a_syntax_error_of_the_script_is_a_note_with_its_line(tmp_path: Path, job: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(SYNTAX_ERROR)
    (note,) = read(tmp_path, **job).notes
    assert note.startswith("script: train.py, line 2: syntax error: expected ':', according to Python 3.")


def test_an_error_that_only_the_compiler_finds_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nreturn 1\n")
    assert "train.py, line 2: syntax error: 'return' outside function" in read(tmp_path, script="train.py").notes[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", "# -*- coding: latin-1 -*-\nprint('é')\n".encode("latin-1")),
        ("train.py", b"\xef\xbb\xbfprint('\\d')\r\n"),
        ("train", SYNTAX_ERROR.encode()),
    ],
)
def test_scripts_in_other_encodings_and_other_languages_have_no_note(tmp_path: Path, name: str, text: bytes) -> None:
    (tmp_path / name).write_bytes(text)
    assert read(tmp_path, script=name).notes == ()


def test_a_script_that_python_cannot_decode_has_a_note(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"print('\xe9')\n")
    assert "syntax error: (unicode error) 'utf-8' codec can't decode" in read(tmp_path, script="train.py").notes[0]


# --- programs that Python cannot import -------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory with the package `trainer`, whose script imports the package."""
    (tmp_path / "trainer").mkdir()
    for name, text in {"__init__": "", "data": "", "main": "import os\nfrom trainer.data import loader\n"}.items():
        (tmp_path / f"trainer/{name}.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize("job", [{}, {"code": "."}])
def test_a_script_that_imports_its_own_package_has_a_note_with_the_module(package: Path, job: dict[str, str]) -> None:
    (note,) = read(package, script="trainer/main.py", **job).notes
    assert f"main.py imports trainer from {package}, but Python searches only {package / 'trainer'}" in note
    assert note.endswith(
        "use module: trainer.main and code: . instead of script, or run `stepset run --code . -m trainer.main`"
    )
    assert read(package, script="trainer/main.py", env={"PYTHONPATH": "."}, **job).notes == ()
    assert read(package, module="trainer.main", **job).notes == ()


def test_the_note_names_the_directory_that_contains_the_package(package: Path) -> None:
    (note,) = read(package.parent, script=f"{package.name}/trainer/main.py").notes
    assert f"--code {package.name} -m trainer.main" in note


def test_a_directory_of_data_with_the_name_of_an_import_has_no_note(package: Path) -> None:
    (package / "wandb_runs").mkdir()
    (package / "trainer/main.py").write_text("import wandb_runs\n")
    assert read(package, script="trainer/main.py").notes == ()


def test_a_script_that_adds_the_directory_to_its_path_has_no_note(package: Path) -> None:
    (package / "trainer/main.py").write_text("import sys\nsys.path.insert(0, '.')\nimport trainer\n")
    assert read(package, script="trainer/main.py", code=".").notes == ()


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("trainr.main", "contains no module trainr; did you mean 'trainer.main'?"),
        ("trainer.mian", "contains no module trainer.mian; did you mean 'trainer.main'?"),
        ("trainer.evaluate", "contains no module trainer.evaluate; check the name, and that the ranks start in"),
    ],
)
def test_a_misspelt_module_has_a_note(package: Path, module: str, expected: str) -> None:
    (note,) = read(package, module=module).notes
    assert note.startswith(f"module: {package} {expected}")


@pytest.mark.parametrize("module", ["trainer", "trainer.main", "torch.distributed.run", "json.tool", "other.main"])
def test_a_module_that_may_be_installed_has_no_note(package: Path, module: str) -> None:
    (package / "jsn").mkdir()
    assert read(package, module=module).notes == ()
