"""Functions of a script's `__main__`, in the script's own process; Ctrl-C ends the run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import stepset
from tests.local.conftest import living
from tests.waiting import until

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("home")]

SHIPPED = """\
import stepset

def train(steps):
    import os
    import sys
    print("main is", sys.modules["__main__"].__file__)
    return {"nodes": int(os.environ["STEPSET_NUM_NODES"]), "steps": steps}

# Ranks that imported this file would start runs without end.
status = stepset.run(train, framework="plain", num_nodes=2, args={"steps": 3}, run_name="shipped")
print(status.result)
"""
CAPTURED = """\
import json
import stepset

RATE = 0.1

def train():
    print(json.dumps(RATE))

stepset.run(train, framework="plain")
"""
WAITS = """\
import stepset

def train():
    import time
    print("started", flush=True)
    time.sleep(600)

stepset.run(train, framework="plain", num_nodes=2, run_name="waits")
"""
IMPORTS = """\
import stepset

def train():
    import helper_of_main
    return helper_of_main.VALUE

print(stepset.run(train, framework="plain", **{fields}).result)
"""
LIMIT = 120
"""Seconds in which a script must end."""


def _script(directory: Path, text: str) -> list[str]:
    (directory / "script.py").write_text(text)
    return [sys.executable, "script.py"]


def _run(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    command = _script(directory, text)
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_a_function_of_main_is_shipped_as_source(tmp_path: Path) -> None:
    ended = _run(tmp_path, SHIPPED)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "{'nodes': 2, 'steps': 3}\n"
    assert [run.name for run in stepset.list_runs()] == ["shipped"]
    lines = [line.text for line in stepset.logs("shipped", ranks=0)]
    assert len(lines) == 1
    assert "script.py" not in lines[0]


@pytest.mark.parametrize("fields", [{}, {"code": "lib"}])
def test_a_function_of_main_is_shipped_with_modules_beside_it_or_with_code(
    fields: dict[str, str], tmp_path: Path
) -> None:
    for directory, value in ((tmp_path, "beside"), (tmp_path / "lib", "lib")):
        directory.mkdir(exist_ok=True)
        (directory / "helper_of_main.py").write_text(f"import second_helper\nVALUE = second_helper.VALUE + '{value}'\n")
        (directory / "second_helper.py").write_text("VALUE = 'from '\n")
    ended = _run(tmp_path, IMPORTS.replace("{fields}", repr(fields)))
    assert ended.stdout == f"from {fields.get('code', 'beside')}\n", ended.stderr


def test_names_from_outside_a_function_of_main_are_rejected_by_name(tmp_path: Path) -> None:
    ended = _run(tmp_path, CAPTURED)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "stepset.errors.BadInputError: function: train uses RATE from outside, and only its own source is shipped;"
        " import or define it inside train, or add include=['RATE'] to the call"
    )
    assert stepset.list_runs() == []


FAILS = """\
import asyncio
import pickle
import stepset

def train():
    raise ValueError("three")

async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(stepset.aio.run(train, framework="plain", run_name="grouped"))

try:
    stepset.run(train, framework="plain", run_name="single")
except stepset.TrainingFailedError as error:
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__
    print("\\n".join(error._render_traceback_()))
asyncio.run(main())
"""


def test_the_error_of_a_failed_run_ends_with_the_last_lines_and_the_call_that_diagnoses_it(tmp_path: Path) -> None:
    ended = _run(tmp_path, FAILS)
    assert ended.returncode == 1
    for name, shown in (("single", ended.stdout), ("grouped", ended.stderr)):
        _, _, notes = shown.partition("fix the training code.")
        assert "  last lines    Traceback (most recent call last):" in notes
        assert "ValueError: three" in notes
        assert f"  diagnosis     stepset.diagnose('{name}')" in notes


def test_ctrl_c_ends_the_run_and_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        _script(tmp_path, WAITS), cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert until(lambda: _started() == 2)
            os.kill(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert living(tmp_path) == []
    end = r"KeyboardInterrupt: run waits was cancelled after .* s: the ranks could use up to 50 s to save\."
    assert re.fullmatch(end, err.splitlines()[-1])
    failure = stepset.status("waits").failure
    assert failure is not None
    assert failure.kind is stepset.FailureKind.CANCELLED


def _started() -> int:
    try:
        return sum(line.text == "started" for line in stepset.logs("waits"))
    except stepset.RunNotFoundError:
        return 0


ADDS_TO_PATH = """\
import sys
import stepset

sys.path.insert(0, "src")

def train():
    import json, lib_of_src, no_module
    import beside_main

stepset.{call}(train, {fields})
"""


@pytest.mark.parametrize(
    ("fields", "noted"), [('framework="plain"', True), ('framework="plain", env={"PYTHONPATH": "src"}', False)]
)
@pytest.mark.parametrize("call", ["run", "render"])
def test_a_module_that_only_the_caller_can_import_is_noted(call: str, fields: str, noted: bool, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib_of_src.py").touch()
    (tmp_path / "beside_main.py").touch()
    fields = f'{fields}, image="i"' if call == "render" else fields
    err = _run(tmp_path, ADDS_TO_PATH.replace("{call}", call).replace("{fields}", fields)).stderr
    note = f"stepset: train imports lib_of_src from {tmp_path / 'src'}, which is not shipped; add code='src'"
    assert [line for line in err.splitlines() if line.startswith("stepset: ")] == [note] * noted


RESUMES = """\
import sys
import stepset

def train(script):
    import os
    import pathlib
    pathlib.Path(os.environ["STEPSET_CHECKPOINT_DIR"], script).write_text("")
    return sorted(os.listdir(os.environ.get("STEPSET_RESUME_FROM", "/var/empty/none"))) if script == "again" else []

how = {"resume": True} if sys.argv[1] == "again" else {"framework": "plain", "checkpoint_dir": "ck"}
print(stepset.run(train, args=[sys.argv[1]], **how, **dict(word.split("=") for word in sys.argv[2:])).result)
"""


def test_resume_does_not_continue_the_run_of_another_script_unless_its_name_is_given(tmp_path: Path) -> None:
    def execute(directory: str, *words: str) -> tuple[int, str, str]:
        (tmp_path / directory).mkdir(exist_ok=True)
        command = [*_script(tmp_path / directory, RESUMES), *words]
        ended = subprocess.run(
            command, cwd=tmp_path / directory, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        return ended.returncode, ended.stdout, ended.stderr

    assert execute("one", "first")[0] == 0
    first, checkpoints = stepset.list_runs()[0].name, tmp_path / "one" / "ck"
    code, _, err = execute("two", "again")
    one, two = tmp_path / "one" / "script.py", tmp_path / "two" / "script.py"
    assert code == 1
    assert err.splitlines()[-1] == (
        f"stepset.errors.BadInputError: resume: the newest run of job train, {first}, executed {one}, not {two}; to"
        f" start a separate job, pass a different name; to continue run {first} with this file, pass name='train'"
    )
    assert len(stepset.list_runs()) == 1
    begins = f"stepset: continuing run {first}, attempt 1, checkpoint_dir {checkpoints}\n"
    inherited = f"stepset: fields of run {first}: framework, checkpoint_dir\n"
    succeeded = f"stepset: run {first} has already succeeded\n"
    other = f"stepset: run {first} executed {one}, this run executes {two}\n"
    assert execute("two", "again", "name=train") == (0, "['again', 'first']\n", begins + inherited + succeeded + other)
    assert execute("two", "again")[:2] == (0, "['again', 'first']\n")


def test_a_failed_test_shows_its_own_line_and_no_frames_of_stepset(tmp_path: Path, home: Path) -> None:
    test = tmp_path / "test_train.py"
    call = "stepset.run({'command': ['false'], 'framework': 'plain'})"
    test.write_text(f"import stepset\n\n\ndef test_train():\n    {call}\n")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test)]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert f">       {call}\nE       stepset.errors.TrainingFailedError: run false-" in shown
    assert "test_train.py:5: TrainingFailedError" in shown


BOTH = """\
import stepset

def train():
    import beside
    import shared
    return [beside.VALUE, shared.VALUE]

print(stepset.run(train, framework="plain", code="lib").result)
"""


def test_modules_beside_a_script_are_shipped_in_addition_to_the_code(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name, value in (("beside.py", 1), ("shared.py", 2), ("lib/shared.py", 3)):
        (tmp_path / name).write_text(f"VALUE = {value}\n")
    ended = _run(tmp_path, BOTH)
    assert ended.stdout == "[1, 3]\n", ended.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "stepset.run(train, framework='plain', code=['a', 'b'])",
            "code: ['a', 'b'] is not a directory; give the path",
        ),
        ("stepset.list_runs(since='soon')", "since: 'soon' is not a duration; write it like 90s, 30m, 12h or 1d"),
        ("stepset.prune(older_than=True)", "older_than: True is not a duration"),
    ],
)
def test_wrong_types_of_arguments_are_bad_input(tmp_path: Path, call: str, message: str) -> None:
    ended = _run(tmp_path, f"import stepset\n\ndef train():\n    pass\n\n{call}\n")
    assert ended.stderr.splitlines()[-1].startswith(f"stepset.errors.BadInputError: {message}")


def test_durations_labels_and_directories_have_the_types_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "train.py").write_text("import pathlib; assert pathlib.Path('train.py').exists()\n")
    ended = _run(
        tmp_path,
        "import stepset\n"
        "labels = {'team': 'vision'}\n"
        "name = stepset.run('train.py', framework='plain', base_dir='proj', labels=labels).name\n"
        "found = stepset.list_runs(selector=labels, since='1h')\n"
        "assert [run.name for run in found] == [name]\n"
        "assert not stepset.list_runs(selector={'team': 'audio'})\n"
        "assert stepset.Run(name).wait('10s').phase.final\n"
        "assert list(stepset.logs(name, since='1h')) == []\n"
        "assert not stepset.prune(older_than='1d')\n",
    )
    assert ended.returncode == 0, ended.stderr
