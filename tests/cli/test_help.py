"""`stepset --help` lists commands and exit codes, has examples, and starts fast."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Cli

COMMANDS = (
    "run", "explain", "validate", "render", "schema", "rbac",
    "status", "logs", "wait", "cancel", "list", "prune", "diagnose",
)  # fmt: skip


def test_help_names_every_command_and_every_exit_code(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert all(f"\n  {command} " in result.out for command in COMMANDS)
    assert all(word in result.out for word in ("0 success", "1 the training failed", "2 bad input", "130 interrupted"))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.code == 0
    assert f"    stepset {command}" in result.out
    assert result.out == cli(command, "-h").out


def test_no_command_shows_the_help(cli: Cli) -> None:
    assert cli().out == cli("--help").out


def test_version(cli: Cli) -> None:
    import stepset

    assert cli("--version").out == f"stepset {stepset.__version__}\n"


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
    assert result.errors == ["stepset: No such command 'statsu'. Did you mean 'status'?; see 'stepset --help'"]


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
