"""Bad input: one line for each problem, with field, value and remedy; exit code 2; never a traceback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import STEPSET, Cli, CommandResult

COMMANDS = ("run", "validate", "explain")


def refused(result: CommandResult, *errors: str) -> bool:
    """Returns whether a command failed as bad input, with exactly these lines."""
    assert "Traceback" not in result.err
    assert result.out == ""
    assert result.errors == [f"stepset: {error}" for error in errors]
    return result.code == 2


@pytest.fixture(autouse=True)
def script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n")


@pytest.mark.parametrize(
    "words", ["run a.yaml", "explain a.yaml", "validate a.yaml", "run --command -- true", "explain --command -- true"]
)
def test_a_current_directory_that_was_deleted_is_named(tmp_path: Path, words: str) -> None:
    gone = tmp_path / "gone"
    shell = f"mkdir '{gone}' && cd '{gone}' && rmdir '{gone}' && exec '{STEPSET}' {words}"
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home")}
    done = subprocess.run(["sh", "-c", shell], env=env, capture_output=True, text=True, timeout=120)
    message = f"{gone}: the current directory was deleted; change to an existing directory, and try again"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"stepset: {message}\n")


# The content of a job file, and the message of stepset.
JOBS = {
    "unknown key": ("script: train.py\nnum_node: 2\n", "unknown key 'num_node'; did you mean 'num_nodes'?"),
    "unknown key far from any": ("script: train.py\nqqq: 2\n", None),
    "unknown key in a part": (
        "script: train.py\nrestart: {max_restart: 2}\n",
        "restart: unknown key 'max_restart'; did you mean 'max_restarts'?",
    ),
    "unknown framework": (
        "script: train.py\nframework: pytorch\n",
        "framework: unknown framework 'pytorch'; did you mean 'torch'?",
    ),
    "script and module": (
        "script: train.py\nmodule: a.b\n",
        "exactly one of script, module, command, function is required; script and module are given",
    ),
    "module and command": (
        "module: a.b\ncommand: [x]\n",
        "exactly one of script, module, command, function is required; module and command are given",
    ),
    "nothing to run": ("num_nodes: 2\n", None),
    "name too long": (
        f"script: train.py\nname: {'a' * 49}\n",
        f"name: {'a' * 49!r} has 49 characters; with these pod groups at most 48 fit into Kubernetes' 63-character"
        " pod names; shorten it",
    ),
    "name not DNS-1035": (
        "script: train.py\nname: My_Job\n",
        "name: 'My_Job' is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a letter"
        " (for example 'my-job')",
    ),
    "procs_per_node 0": (
        "script: train.py\nprocs_per_node: 0\n",
        "procs_per_node: 0 is not known; use auto, cpu, gpu, or a whole number of 1 or more",
    ),
    "procs_per_node gpu without one": (
        "script: train.py\nprocs_per_node: gpu\n",
        "procs_per_node: gpu, but resources_per_node has no accelerator; add for example gpus: 1",
    ),
    "num_nodes 0": ("script: train.py\nnum_nodes: 0\n", "num_nodes: 0 is too small; give 1 or more"),
    "num_nodes a text": (
        "script: train.py\nnum_nodes: two\n",
        "num_nodes: 'two' is not a whole number; give one such as 2",
    ),
    "reserved variable": (
        "script: train.py\nenv: {PET_NNODES: 4}\n",
        "env.PET_NNODES: reserved, because torch jobs get it from stepset; leave it out, or override it with"
        " {value: ..., override: true}",
    ),
    "elastic min above max": (
        "script: train.py\nframework: {kind: torch, elastic: {min_nodes: 3, max_nodes: 2}}\n",
        "framework.elastic: min_nodes 3 is more than max_nodes 2; lower it or raise max_nodes",
    ),
    "a duration that is none": ("script: train.py\ndeadline: soon\n", None),
    "args that are no list": ("script: train.py\nargs: --epochs 3\n", None),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", JOBS)
def test_an_invalid_job_file_is_reported_in_one_line(cli: Cli, tmp_path: Path, command: str, case: str) -> None:
    text, error = JOBS[case]
    (tmp_path / "job.yaml").write_text(text)
    result = cli(command, "job.yaml")
    where = "job.yaml:2" if "unknown key" in case else "job.yaml"
    if error is None:
        assert result.code == 2
        assert len(result.errors) == 1
        assert result.err.startswith(f"stepset: {where}: ")
    else:
        assert refused(result, f"{where}: {error}")


def test_an_unknown_key_that_several_lines_contain_has_no_line_number(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("script: train.py\nenv: {num_node: a}\nnum_node: 2\n")
    assert refused(cli("run", "job.yaml"), "job.yaml: unknown key 'num_node'; did you mean 'num_nodes'?")


def test_all_problems_of_a_job_file_are_reported_together(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("script: train.py\nnum_nodes: 0\nprocs_per_node: 0\ndeadline: soon\n")
    result = cli("validate", "job.yaml")
    assert result.code == 2
    assert [line.split(": ")[2] for line in result.errors] == ["num_nodes", "procs_per_node", "deadline"]


# Job files that cannot be read: their bytes, and the text that the line about them must contain.
FILES: dict[str, tuple[bytes, str]] = {
    "syntax": (b"script: [train.py\nnum_nodes: 2\n", "line 2, column 10: not readable as YAML: "),
    "tabs": (b"restart:\n\tmax_restarts: 1\n", "line 2, column 1: not readable as YAML: "),
    "JSON syntax": (b'{"script": "train.py",, }', "not readable as YAML: "),
    "binary": (bytes(range(256)), "cannot be read: it is not UTF-8 text"),
    "control characters": (b"script: train.py\x00\n", "not readable as YAML: "),
    "empty": (b"", "is empty; a job file is a mapping of fields such as 'script: train.py'"),
    "only comments": (b"# a job\n", "is empty; a job file is a mapping of fields such as 'script: train.py'"),
    "a list": (b"- script: train.py\n", "is a list; a job file is a mapping of fields such as 'script: train.py'"),
    "a text": (b"train.py\n", "is a str; a job file is a mapping of fields such as 'script: train.py'"),
    "a key twice": (
        b"script: train.py\nscript: other.py\n",
        "line 2, column 1: not readable as YAML: the key 'script' is",
    ),
    "a key that is no text": (b"script: train.py\n3: x\n", 'the key 3 is not text; write "3"'),
    "a Python object": (b"script: !!python/object/apply:os.getcwd []\n", "line 1, column 9: not readable as YAML: "),
    "an alias inside itself": (b"env: &a {b: *a}\nscript: train.py\n", "an alias contains itself"),
    "deep nesting": (b"env: " + b"[" * 5000, "not readable as YAML: "),
}


@pytest.mark.parametrize("case", FILES)
def test_a_job_file_that_cannot_be_read(cli: Cli, tmp_path: Path, case: str) -> None:
    content, words = FILES[case]
    (tmp_path / "job.yaml").write_bytes(content)
    result = cli("run", "job.yaml")
    assert (result.code, len(result.errors), result.out) == (2, 1, "")
    assert result.err.startswith("stepset: job.yaml: ")
    assert words in result.err
    assert "\x00" not in result.err


def test_a_missing_job_file_and_a_directory_are_reported(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "dir.yaml").mkdir()
    assert refused(cli("run", "nope.yaml"), "nope.yaml: no such file; check the path")
    assert refused(cli("run", "dir.yaml"), "dir.yaml: cannot be read: Is a directory")
    assert refused(cli("run", "train.py/job.yaml"), "train.py/job.yaml: cannot be read: Not a directory")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Drops root's permission to read all files, if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_files_without_permission(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("validate", "train.py")  # everything is imported while it can be read
    (tmp_path / "job.yaml").write_text("script: train.py\n")
    (tmp_path / "job.yaml").chmod(0)
    (tmp_path / "secret.py").write_text("")
    (tmp_path / "secret.py").chmod(0)
    with unprivileged():
        job, script = cli("validate", str(tmp_path / "job.yaml")), cli("validate", str(tmp_path / "secret.py"))
    assert refused(job, f"{tmp_path / 'job.yaml'}: cannot be read: Permission denied")
    path = tmp_path / "secret.py"
    assert refused(script, f"script: cannot read {path}: Permission denied; check the path and its permissions")


def test_a_missing_program_and_two_programs_are_errors(cli: Cli) -> None:
    assert refused(
        cli("run"),
        "the program is missing; give a script (train.py), a job file (job.yaml), -m MODULE, or --command -- PROGRAM",
    )
    assert refused(cli("run", "nope.py"), "nope.py: no such file; check the path")
    assert refused(
        cli("run", "train"),
        "train: neither a script (.py) nor a job file (.yaml, .yml, .json); for a module use -m, for any other program"
        " --command -- PROGRAM",
    )
    assert refused(cli("run", "train.py", "-m", "a.b"), "a script and --module are given; give only one of them")
    assert refused(
        cli("run", "-m", "a", "--command", "--", "x"), "--module and --command are given; give only one of them"
    )
    assert refused(
        cli("run", "--command"),
        "--command: the command is missing; write it after --, such as --command -- ./train 1 2",
    )


def test_the_script_of_a_job_file_is_missing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("script: nope.py\n")
    for command in ("run", "validate"):
        assert refused(
            cli(command, "job.yaml"),
            f"script: no such file: {tmp_path / 'nope.py'}; paths are relative to {tmp_path}",
        )


def test_a_local_run_of_a_module_that_its_package_lacks_does_not_start(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    for name in ("__init__", "main"):
        (tmp_path / "trainer" / f"{name}.py").touch()
    error = f"module: {tmp_path} contains no module trainer.man; did you mean 'trainer.main'?"
    assert refused(cli("run", "-m", "trainer.man", "--framework", "plain"), error)
    checked = cli("validate", "-m", "trainer.man")
    assert (checked.code, checked.out.splitlines()[1]) == (0, f"note: {error}")
    (tmp_path / "trainer" / "__init__.py").write_text("__path__.append('/elsewhere')\n")
    assert cli("run", "-m", "trainer.man", "--framework", "plain").code == 1


def test_a_relative_checkpoint_dir_of_a_job_file_names_the_absolute_path(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: ['true']\ncheckpoint_dir: ckpt\n")
    assert refused(
        cli("run", "job.yaml"),
        f"job.yaml: checkpoint_dir: 'ckpt' is not an absolute path; start it with '/', such as '{tmp_path / 'ckpt'}';"
        " `stepset run --checkpoint-dir` and the argument of stepset.run accept a relative path",
    )


def test_a_home_directory_is_not_expanded_in_a_checkpoint_dir(cli: Cli) -> None:
    assert refused(
        cli("run", "--checkpoint-dir=~/ckpt", "--command", "--", "true"),
        "--checkpoint-dir: '~/ckpt' is not an absolute path; start it with '/', because '~' is not expanded",
    )


def test_a_checkpoint_dir_that_is_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ckpt").touch()
    result = cli("run", "--command", "--checkpoint-dir", "ckpt", "--", "true")
    assert refused(result, f"checkpoint_dir: {tmp_path / 'ckpt'} is a file; give a directory")


def test_a_checkpoint_dir_that_cannot_be_written(cli: Cli, tmp_path: Path) -> None:
    for path, what in (("/sys/kernel", "written"), ("/sys/kernel/ckpt", "created on this machine")):
        result = cli("run", "--command", "--checkpoint-dir", path, "--", "true")
        assert (result.code, len(result.errors)) == (2, 1)
        assert result.err.startswith(f"stepset: checkpoint_dir: {path} cannot be {what}: ")
    assert cli("run", "--framework", "plain", "--command", "--checkpoint-dir", "ckpt", "--", "true").code == 0
    assert [*(tmp_path / "ckpt").iterdir()] == []


def test_a_code_directory_over_the_limit(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("")
    (tmp_path / "src" / "weights.bin").write_bytes(os.urandom(1_200_000))
    result = cli("render", "src/main.py", "--code", "src", "--image", "i")
    assert result.code == 2
    assert len(result.errors) == 1
    assert f"code: {tmp_path / 'src'} has 12" in result.err
    assert (
        "at most 1048576 bytes packed can be shipped; the largest files are weights.bin (1200000 bytes), main.py (0"
        " bytes); `stepset explain --files` lists all; add data to .stepsetignore; for larger code, use a volume"
    ) in result.err


@pytest.mark.local
@pytest.mark.parametrize("size", [1_200_000, 70_000_000], ids=["over the packed limit", "too large to pack"])
def test_a_local_run_uses_a_code_directory_of_any_size(cli: Cli, tmp_path: Path, size: int) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("import os\nprint('weights of', os.path.getsize('weights.bin'))\n")
    with (tmp_path / "src" / "weights.bin").open("wb") as weights:
        weights.write(os.urandom(1_200_000))
        weights.truncate(size)
    result = cli("run", "src/main.py", "--code", "src", "--framework", "plain")
    assert result.code == 0
    assert f"[rank 0] weights of {size}" in result.out
    assert "are too many to ship with a run on a cluster" in result.err


def test_program_arguments_without_dashes_are_errors(cli: Cli) -> None:
    assert refused(
        cli("run", "train.py", "x"), "'x' is an unexpected argument; the program's own arguments go after --"
    )
    for program in ("python", "torchrun"):
        assert refused(
            cli("run", program, "train.py"),
            f"{program}: stepset itself starts Python and launchers such as torchrun; give only the script:"
            " stepset run train.py",
        )
    result = cli("run", "train.py", "--epochs", "3")
    assert result.code == 2
    assert result.errors[0].startswith("stepset: No such option: --epochs; the program's own options go after --")
    assert result.errors[0].endswith("; the program's own options go after --; see 'stepset run --help'")


@pytest.mark.parametrize("command", ["validate", "explain", "render"])
def test_an_option_of_run_alone_is_not_taken_for_an_option_of_the_program(cli: Cli, command: str) -> None:
    result = cli(command, "train.py", "--backend", "kubernetes")
    assert result.code == 2
    assert result.errors == [
        f"stepset: No such option: --backend; it is an option of 'stepset run'; see 'stepset {command} --help'"
    ]


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["run", "train.py", "-n", "0"], "--nodes: 0 is too small; give 1 or more"),
        (["run", "train.py", "--nodes", "two"], "--nodes: 'two' is not a whole number; give one such as 2"),
        (["run", "train.py", "--cpus", "x"], "--cpus: 'x' is not a Kubernetes quantity; write it like 4, 500m or 16Gi"),
        (["run", "train.py", "--max-restarts", "-1"], "--max-restarts: -1 is too small; give 0 or more"),
        (["run", "train.py", "--set", "num_nodes=x"], "num_nodes: 'x' is not a whole number; give one such as 2"),
        (["run", "train.py", "--backend", "moon"], "backend: 'moon' is not known; use one of local, kubernetes"),
        (
            ["status", "x", "--namespace", "ml"],
            "--namespace: requires --backend kubernetes; add that flag, or leave this one out",
        ),
        (
            ["list", "--all-namespaces"],
            "--all-namespaces: requires --backend kubernetes; add that flag, or leave this one out",
        ),
        (
            ["list", "--phase", "gone"],
            "--phase: 'gone' is not a phase; use pending, running, suspended, restarting, succeeded, failed, lost",
        ),
        (["list", "-l", "a in b"], "--selector: 'a in b' is not a label selector; write it like team=vision,!debug"),
        (["list", "-o", "yaml"], "--output: 'yaml' is not known; use text, wide, name or json"),
        (["logs", "x", "-f", "--previous"], "--previous: the previous attempt is over; leave out --follow"),
        (
            ["run", "train.py", "--backend", "kubernetes", "--startup-timeout", "soon"],
            "--startup-timeout: 'soon' is not a duration; write it like 90s, 30m, 12h or 1d",
        ),
        (
            ["run", "train.py", "--backend", "kubernetes", "-d", "--startup-timeout", "5m"],
            "--startup-timeout: with --detach no process waits for the run and enforces the timeout; leave one of them"
            " out, or set `deadline` in the job, which limits the run's duration without the time in a queue",
        ),
        (
            ["run", "train.py", "--backend", "kubernetes", "--detach", "--admission-timeout", "2h"],
            "--admission-timeout: with --detach no process waits for the run and enforces the timeout; leave one of"
            " them out, or set `deadline` in the job, which limits the run's duration without the time in a queue",
        ),
        (
            ["run", "train.py", "--detach", "--startup-timeout", "5m"],
            "--startup-timeout: requires --backend kubernetes; add that flag, or leave this one out",
        ),
        (
            ["run", "train.py", "--queue", "team-a"],
            "--queue: requires --backend kubernetes; add that flag, or leave this one out",
        ),
        (
            ["list", "--backend", "kubernetes", "--kubeconfig", "nowhere"],
            "kubeconfig nowhere: no such file; check the path",
        ),
        (["run", "train.py", "-o", "xml"], "--output: 'xml' is not known; use text or json"),
        (["status", "nope"], None),
        (["logs", "nope"], None),
        (["wait", "nope"], None),
        (["cancel", "nope"], None),
        (["diagnose", "nope"], None),
        (["status", "../x"], None),
        (["wait", "x", "--timeout", "soon"], "--timeout: 'soon' is not a duration; write it like 90s, 30m, 12h or 1d"),
        (["logs", "nope", "--ranks", "a,"], "--ranks: '' is neither a rank nor a range; write it like 0,2 or 0-3"),
        (["logs", "nope", "--ranks", "3-1"], "--ranks: '3-1' is neither a rank nor a range; write it like 0,2 or 0-3"),
        (["cancel"], "give the names of runs ('stepset list' shows the names), --job NAME or -l LABELS"),
        (["run", "--nodes"], "Option '--nodes' requires an argument; see 'stepset run --help'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_invalid_arguments_are_errors(cli: Cli, argv: list[str], error: str | None) -> None:
    result = cli(*argv)
    if error is None:
        assert result.code == 2
        assert len(result.errors) == 1
        assert "no such run" in result.err
    else:
        assert refused(result, error)


def test_a_missing_program(cli: Cli) -> None:
    result = cli("run", "--framework", "plain", "--command", "--", "no-such-program-anywhere", "1")
    assert result.code == 2
    assert len(result.errors) == 1
    assert "no-such-program-anywhere" in result.err


def test_a_program_that_may_not_be_executed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o644)
    error = "command: './train.sh' is not executable; run chmod +x, or start it with its interpreter"
    assert refused(cli("run", "--framework", "plain", "--command", "--", "./train.sh"), error)


def test_empty_arguments_are_errors(cli: Cli) -> None:
    result = cli("run", "")
    assert result.code == 2
    assert result.errors[0].startswith("stepset: the program is missing; give a script (train.py)")
    error = "command: its first word is empty; it must be the program"
    assert refused(cli("run", "--framework", "plain", "--command", "--", "", "x"), error)


def test_too_many_processes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    result = cli("run", "train.py", "--framework", "plain", "-n", "100000", "-p", "1000")
    assert (result.code, len(result.errors)) == (2, 1)
    assert "num_nodes, procs_per_node: 100000000 processes are more than this machine can have at once (" in result.err


def test_an_unknown_home_directory(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_HOME", "~no-such-user/runs")
    error = "STEPSET_HOME: ~no-such-user/runs: the home directory does not exist; give a path"
    assert refused(cli("list"), error)


def test_the_cause_is_shown_in_debug_mode(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSET_DEBUG", "1")
    result = cli("run", "nope.yaml")
    assert result.code == 2
    assert "Traceback" in result.err
    assert "FileNotFoundError" in result.err
    assert result.errors[-1] == "stepset: nope.yaml: no such file; check the path"
    monkeypatch.setenv("STEPSET_DEBUG", "0")
    assert "Traceback" not in cli("run", "nope.yaml").err


def test_the_installed_program_reports_errors_in_the_same_way(program: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("script: train.py\nnum_node: 2\n")
    assert refused(program("run", "job.yaml"), "job.yaml:2: unknown key 'num_node'; did you mean 'num_nodes'?")
    assert refused(program("run", "--nodes"), "Option '--nodes' requires an argument; see 'stepset run --help'")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--on-orphan", "end"], "--on-orphan: 'end' is not known; use one of stop, keep"),
        (["--on-orphan", "stop", "-d"], "--on-orphan: a run with --detach has no process that could end; leave one of"),
        (
            ["--on-orphan", "keep"],
            "--on-orphan: a local run ends with this process; add --detach, or leave the flag out",
        ),
        (
            ["--on-orphan", "stop", "--backend", "kubernetes"],
            "--on-orphan: stop requires that stepset runs in a pod of the cluster, because the API server cannot state",
        ),
    ],
)
def test_an_owner_that_the_run_cannot_have(cli: Cli, words: list[str], error: str) -> None:
    Path("train.py").touch()
    result = cli("run", "train.py", *words)
    assert (result.code, len(result.errors)) == (2, 1)
    assert result.errors[0].startswith(f"stepset: {error}")


def test_a_local_run_stops_with_its_process_in_any_case(cli: Cli) -> None:
    Path("train.py").write_text("print('trained')")
    assert cli("run", "train.py", "--framework", "plain", "--on-orphan", "stop").code == 0
