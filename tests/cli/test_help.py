"""`stepset --help` lists commands and exit codes, has examples, and starts fast."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

COMMANDS = (
    "run", "init", "doctor", "explain", "validate", "render", "schema", "rbac",
    "status", "logs", "stacks", "exec", "wait", "cancel", "list", "delete", "prune", "diagnose", "failures",
)  # fmt: skip


def test_help_names_every_command_and_every_exit_code(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert all(f"\n  {command} " in result.out for command in COMMANDS)
    assert all(word in result.out for word in ("0 success", "1 the training failed", "2 bad input", "130 interrupted"))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example_and_fits_a_terminal(
    cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    result = cli(command, "--help")
    assert result.code == 0
    assert f"    stepset {command}" in result.out
    assert [line for line in result.out.splitlines() if len(line) > 80] == []
    assert result.out == cli(command, "-h").out


def test_no_command_shows_the_help(cli: Cli) -> None:
    assert cli().out == cli("--help").out


def test_version(cli: Cli) -> None:
    import stepset

    assert cli("--version").out == f"stepset {stepset.__version__}\n"


@pytest.mark.parametrize("words", [("--version",), ("run", "nowhere.py"), ("run",), ()])
def test_the_package_is_the_same_program(program: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    argv = [sys.executable, "-m", "stepset", *words]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    expected = program(*words)
    assert (done.returncode, done.stdout, done.stderr) == (expected.code, expected.out, expected.err)


HEAVY = {"yaml", "rich", "stepset.spec", "stepset.api", "stepset.backends"}


# pydantic: typer itself uses it once a command has parameters.
@pytest.mark.parametrize(
    ("argv", "heavy"), [(["--help"], HEAVY | {"pydantic"}), (["run", "--help"], HEAVY), (["logs", "--help"], HEAVY)]
)
def test_help_imports_no_unnecessary_module(argv: list[str], heavy: set[str]) -> None:
    code = (
        "import sys; from stepset.cli import main; main(sys.argv[1:]); "
        f"found = {heavy} & set(sys.modules); sys.exit(f'imported: {{found}}' if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistyped_command_is_a_usage_error_that_names_the_nearest(cli: Cli) -> None:
    result = cli("statsu")
    assert result.code == 2
    assert result.errors == [
        "stepset: No such command 'statsu'. Did you mean 'status', 'stacks'?; see 'stepset --help'"
    ]


@pytest.mark.parametrize(
    ("command", "used"),
    [
        ("describe", "status"),
        ("get", "list"),
        ("ps", "list"),
        ("stop", "cancel"),
        ("launch", "run"),
        ("resume", "run --resume"),
        ("help", "COMMAND --help"),
        ("version", "--version"),
        ("down", "cancel"),
    ],
)
def test_a_command_of_another_tool_is_a_usage_error_with_the_command_of_stepset(
    cli: Cli, command: str, used: str
) -> None:
    result = cli(command, "train")
    assert result.code == 2
    assert result.errors == [f"stepset: No such command {command!r}; use 'stepset {used}'; see 'stepset --help'"]


def test_ctrl_c_while_the_program_is_loaded_ends_it_without_a_traceback() -> None:
    code = """if True:
        import os, signal, sys

        class CtrlC:
            def find_spec(self, name, path=None, target=None):
                if name == "stepset.cli.app":
                    os.kill(os.getpid(), signal.SIGINT)

        from stepset.cli import main

        sys.meta_path.insert(0, CtrlC())
        main(["--version"])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize(
    "place",
    [
        "os.kill(os.getpid(), signal.SIGINT)",
        "type('Imported', (), {'field': Interrupted()})",
    ],
    ids=["in a module", "in a class"],
)
def test_ctrl_c_while_a_command_imports_a_module_ends_the_program_without_a_traceback(
    place: str, tmp_path: Path
) -> None:
    code = f"""if True:
        import os, signal, sys

        class Interrupted:
            def __set_name__(self, owner, name):
                os.kill(os.getpid(), signal.SIGINT)

        class CtrlC:
            def find_spec(self, name, path=None, target=None):
                if name == "stepset.backends":
                    {place}

        from stepset.cli import main

        sys.meta_path.insert(0, CtrlC())
        sys.exit(main(["list"]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stepset: interrupted\n")


@pytest.mark.parametrize("columns", [60, 80])
def test_the_summary_of_every_command_fits_a_terminal(program: Cli, columns: int) -> None:
    page = program("--help", env={"COLUMNS": str(columns)}).out.partition("\nCommands:\n")[2]
    assert "..." not in page
    assert max(map(len, page.splitlines())) <= columns
    if columns == 80:  # each summary has one line
        assert len([line for line in page.partition("\n\n")[0].splitlines() if line.startswith("   ")]) == 0


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["logs", "x", "--tail", "x"], "Invalid value for '--tail': not a whole number; see 'stepset logs --help'"),
        (["list", "-n", "ml"], "No such option: -n; use --namespace; see 'stepset list --help'"),
        (["rbac", "-n", "ml"], "No such option: -n; use --namespace; see 'stepset rbac --help'"),
        (["list", "--json"], "No such option: --json; use --output json; see 'stepset list --help'"),
        (["cancel", "x", "--force"], "No such option: --force; use --now; see 'stepset cancel --help'"),
        (
            ["run", "train.py", "--timeout", "5m"],
            "No such option: --timeout; use --deadline; the program's own options go after --; see 'stepset run"
            " --help'",
        ),
        (
            ["run", "train.py", "--nproc_per_node=2"],
            "No such option: --nproc_per_node; use --procs-per-node; the program's own options go after --; see"
            " 'stepset run --help'",
        ),
        (["failures", "-n", "ml"], "No such option: -n; see 'stepset failures --help'"),
        (["logs", "x", "--tail", "-1"], "Invalid value for '--tail': less than 0; see 'stepset logs --help'"),
        (
            ["run", "--command", "-e", "1X=3", "--", "true"],
            "env: '1X' is not a variable name; use letters, digits, '_', '-' and '.', and do not begin with a digit",
        ),
        (
            ["status", "nope"],
            "nope: no such run, and no run of a job of that name; 'stepset list' shows the names of runs",
        ),
        (
            ["status", "etl.train"],
            "etl.train: no such run, and no run of a job of that name; 'stepset list' shows the names of runs; a task"
            " of Airflow is called DAG.TASK",
        ),
    ],
)
def test_a_message_states_the_remedy_in_plain_words(cli: Cli, argv: list[str], error: str) -> None:
    result = cli(*argv)
    assert (result.code, result.out, result.errors) == (2, "", [f"stepset: {error}"])
