"""The first hour in a terminal: the README's commands, a script that fails, why, a resumed run, and deletion."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.first_hour.readme import README
from tests.first_hour.shell import Shell, Shown
from tests.waiting import until

pytestmark = pytest.mark.local


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
LAUNCHER = ("--set", "framework.launcher=none")
"""Ranks without torchrun, so that no test imports torch."""
LOOPBACK = re.compile(r"127\.\d+\.\d+\.\d+")

TRAIN = """
import json, os, sys
print("training with", sys.argv[1:], flush=True)
if os.environ["RANK"] == "0":
    with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
        json.dump({"world_size": int(os.environ["WORLD_SIZE"])}, file)
"""
FAILS = """
import os, pathlib, time
rank, saved = int(os.environ["RANK"]), pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"])
print(f"rank {rank} begins at {os.environ.get('STEPSET_RESUME_FROM', 'the start')}", flush=True)
if "STEPSET_RESUME_FROM" not in os.environ:
    pathlib.Path(f"begun-{rank}").touch()
    while len([*pathlib.Path().glob("begun-*")]) < 4:
        time.sleep(0.02)
    if rank == 3:
        (saved / "step-1").touch()
        raise ValueError("bad batch: a reason of more than forty characters, which fits no narrow column")
    if rank == 0:
        raise ConnectionResetError("Connection reset by peer: " + "a follow-up error that is long " * 3)
    time.sleep(600)
"""


HANGS = """
import os, time
print("step 1", flush=True)
time.sleep(0 if os.environ["RANK"] == "1" else 3)
print("step 2", flush=True)
time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a space in its path, with the README's job and a script that fails until it is resumed."""
    directory = tmp_path / "first try"
    directory.mkdir()
    job = re.search(r"```yaml\n(# digits\.yaml\n.*?)```", README, re.DOTALL)
    assert job is not None
    (directory / "digits.yaml").write_text(job[1])
    (directory / "train.py").write_text(TRAIN)
    (directory / "fails.py").write_text(FAILS)
    return directory


@pytest.fixture(params=[80, 120, None], ids=["80 columns", "120 columns", "a pipe"])
def shell(place: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    home = tmp_path / "the home"
    home.mkdir()
    return Shell(place, home, request.param)


def name_of(shell: Shell, job: str) -> str:
    """The name of the last run of a job."""
    runs = json.loads(shell("list", "-o", "json").out)["items"]
    return str(next(run["name"] for run in runs if run["job"] == job))


def check_width(shell: Shell, shown: Shown) -> None:
    if shell.columns is not None:
        assert max(map(len, shown.lines)) <= shell.columns, shown.text


def check_notes(shown: Shown) -> None:
    """Four processes share the cores: the note appears once, and only if there are fewer cores."""
    assert shown.text.count("processes share") == (CORES < 4), shown.text


def test_the_commands_of_the_readme(shell: Shell) -> None:
    block = re.search(r"From the shell:\n\n```sh\n(.*?)```", README, re.DOTALL)
    assert block is not None
    commands = [shlex.split(line, comments=True)[1:] for line in block[1].splitlines()]
    assert [words[0] for words in commands] == ["run", "run", "explain", "validate", "list"]
    for words in commands:
        at = words.index("--") if "--" in words else len(words)
        shown = shell(*words[:at], *(LAUNCHER if words[0] == "run" else ()), *words[at:])
        assert shown.code == 0, shown.text
        if words[0] == "run":
            check_notes(shown)
            assert "[rank 3] training with ['--epochs', '3']" in shown.lines
            end = re.compile(r'stepset: run \S+ succeeded in .*; result: {"world_size": 4}')
            assert any(map(end.fullmatch, shown.lines)), shown.text
    check_width(shell, shown)
    assert [line.split()[1] for line in shown.lines[1:]] == ["Succeeded", "Succeeded"]
    assert ("\x1b[" in shown.out) == (shell.columns is not None)


def test_a_run_that_fails_is_understood_resumed_and_deleted(shell: Shell) -> None:
    words = (
        "fails.py",
        "-n",
        "2",
        "-p",
        "2",
        "--checkpoint-dir",
        "my checkpoints",
        "--label",
        "team=vision",
        *LAUNCHER,
    )
    failed = shell("run", *words)
    assert failed.code == 1, failed.text
    name = name_of(shell, "fails")
    end = next(at for at, line in enumerate(failed.lines) if line.startswith(f"stepset: run {name} failed after "))
    first, *_ = block = failed.lines[end:]
    assert ": UserError: rank 3 (pod node-1) exited with code 1: ValueError: bad batch" in first
    assert "  first failure rank 3, pod node-1, on node 1, exit code 1" in block
    assert "  aftermath     rank 0, rank 1, rank 2: stopped because of it" in block
    assert block[-2:] == [
        f"  resume        stepset run --resume {name}",
        f"  logs          stepset logs {name} --ranks 3",
    ]
    check_notes(failed)

    status = shell("status", name)
    assert status.code == 0
    check_width(shell, status)
    table = status.lines[next(at for at, line in enumerate(status.lines) if line.startswith("SOURCE")) :]
    assert [" ".join(line.split()[:2]) for line in table[1:]] == ["rank 3", "rank 0", "rank 1", "rank 2"]
    assert "Failed" in table[1] and "ValueError: bad batch" in table[1]
    if shell.columns is not None:
        coloured = {"rank 3": "36", "rank 0": "36", "rank 1": "36", "rank 2": "36", "Failed": "1;31"}
        found = {text: style for style, text in re.findall(r"\x1b\[((?!1m|0m)[\d;]+)m([^\x1b]*)", status.out) if text}
        assert found == coloured, status.out
    assert "ConnectionResetError" not in table[2] or len(table[2].partition("Connection")[2]) < 40
    for shown in (failed, status):
        assert not LOOPBACK.search(shown.text), shown.text

    why = shell("diagnose", name)
    assert (why.code, "ValueError: bad batch" in why.text) == (1, True)
    logs = shell(*shlex.split(block[-1].partition("stepset ")[2]))
    assert (logs.code, logs.lines[0]) == (0, "[rank 3] rank 3 begins at the start")
    assert logs.lines[-1].startswith("[rank 3] ValueError: bad batch")

    resumed = shell("run", "--resume", name)
    assert resumed.code == 0, resumed.text
    assert f"[rank 3] rank 3 begins at {shell.directory / 'my checkpoints'}" in resumed.lines
    assert f"resuming from {shell.directory / 'my checkpoints' / 'step-1'}" in resumed.text
    assert "restart" not in resumed.text
    latest = name_of(shell, "fails")
    about = shell("status", latest)
    assert f"continues  run {name}" in about.text and "restarts" not in about.text
    previous = shell("logs", latest, "-p")
    assert (previous.code, f"it continues run {name}, see stepset logs {name}" in previous.text) == (2, True)
    again = shell("run", "--resume", latest)
    assert again.code == 0
    assert f"note: run {latest} has already succeeded" in again.text
    assert shell("delete", name_of(shell, "fails")).code == 0

    listed = shell("list")
    check_width(shell, listed)
    assert [line.split()[1] for line in listed.lines[1:]] == ["Succeeded", "Failed"]
    chosen = shell("list", "-l", "team=vision", "--job", "fails", "--reason", "usererror", "-o", "name")
    assert chosen.lines == [name]
    deleted = shell("delete", "--job", "fails", "--yes")
    assert deleted.code == 0, deleted.text
    empty = shell("list")
    assert empty.code == 0 and "no runs found" in empty.text
    assert (shell.directory / "my checkpoints" / "step-1").exists()


def test_a_run_that_hangs_is_understood(shell: Shell, place: Path) -> None:
    (place / "hangs.py").write_text(HANGS)
    started = shell("run", "-d", "hangs.py", "-n", "2", "-p", "2", "--deadline", "20s", *LAUNCHER)
    name = started.lines[0]
    assert until(lambda: "step 2" in shell("status", name).text)
    status = shell("status", name)
    check_width(shell, status)
    seen = [line for line in status.lines if line.startswith(("SOURCE", "rank 1"))]
    assert "LAST OUTPUT" in seen[0] and re.search(r"Running +\d+ s +step 2$", seen[1]), seen
    waited = shell("wait", name)
    end = re.compile(
        rf"stepset: run {name} failed after \S+ s: DeadlineExceeded: the run took longer than its deadline of 20s;"
        r" no running rank had printed a line for \d+ s; the last line was of rank [023]: step 2;"
        r" rank 1 printed its last line \d+ s before\."
    )
    assert (waited.code, bool(end.fullmatch(waited.lines[0]))) == (4, True), waited.text
    assert any(line.startswith("  advice        The training may hang: ") for line in waited.lines)
    (see,) = [line.split(maxsplit=1)[1] for line in waited.lines if line.startswith("  see ")]
    remedies = shell(*see.split()[1:])
    assert "faulthandler.dump_traceback_later(600, repeat=True)" in "".join(remedies.text.split("\n"))


@pytest.mark.parametrize(
    "variables",
    [
        {"NO_COLOR": "1"},
        {"LANG": "C"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    ],
    ids=lambda variables: " ".join(variables),
)
def test_the_locale_and_no_color_do_not_change_what_is_printed(
    shell: Shell, place: Path, variables: dict[str, str]
) -> None:
    (place / "größe.py").write_text(
        "import os\nos.write(1, 'größe ✓\\n'.encode())\nraise ValueError('schließlich')\n", "utf-8"
    )
    usual, other = shell, shell.with_variables(**variables)
    shown = other("run", "größe.py", "--framework", "plain", "--name", "size")
    assert shown.code == 1, shown.text
    assert "[rank 0] größe ✓" in shown.lines
    name = name_of(shell, "size")
    for words in (("status", name), ("logs", name), ("diagnose", name), ("list",), ("explain", "größe.py")):
        expected, found = usual(*words), other(*words)
        ages = re.compile(r" *(\d+m)?\d+ ?s\b *| +")
        assert ages.sub(" ", found.text) == ages.sub(" ", expected.text)
        assert "NO_COLOR" not in variables or "\x1b[" not in found.out


def test_a_directory_that_cannot_be_written_is_only_read(shell: Shell, read_only: tuple[str, ...]) -> None:
    reader = Shell(shell.directory, shell.home, shell.columns, before=read_only)
    assert reader("validate", "digits.yaml").code == 0
    assert reader("run", "digits.yaml", *LAUNCHER).code == 0
    shown = reader("init", "train.py", "new.yaml")
    assert shown.code == 2, shown.text
    assert re.fullmatch(
        r"stepset: new\.yaml: cannot be written: (Read-only file system|Permission denied).*\n", shown.text
    )
    assert sorted(path.name for path in shell.directory.iterdir()) == ["digits.yaml", "fails.py", "train.py"]
