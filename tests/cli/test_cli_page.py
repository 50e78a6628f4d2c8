"""docs/cli.md lists exactly the commands, flags and exit codes of the command line."""

from __future__ import annotations

import re
from pathlib import Path

from stepset.exit_code import ExitCode
from tests.cli.conftest import Cli
from tests.cli.test_help import COMMANDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    rows = re.findall(r"^\| `([a-z]+)(?: [A-Z.]+)?` \| .* \| .* \|$", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


def test_every_flag_on_the_page_exists(cli: Cli) -> None:
    helps = {command: cli(command, "--help").out for command in COMMANDS}
    named = set(re.findall(r"(?<![\w`-]-)(?<=[ `,(])--[a-z][a-z-]+", PAGE)) - {"--epochs", "--install-completion"}
    assert {"--set", "--now", "--timeout", "--procs-per-node"} <= named
    assert {flag for flag in named if not any(flag in text for text in helps.values())} == set()


def test_every_flag_of_run_is_on_the_page(cli: Cli) -> None:
    flags = set(re.findall(r"(?<=  )--[a-z-]+|(?<=, )--[a-z-]+", cli("run", "--help").out))
    missing = {flag for flag in flags if f"`{flag}" not in PAGE and f"{flag} " not in PAGE}
    assert missing <= {"--help", "--backend", "--output", "--module"}


def test_every_exit_code_has_a_row() -> None:
    rows = re.findall(r"^\| (\d+) \| ", PAGE, re.MULTILINE)
    assert [int(row) for row in rows] == sorted(int(code) for code in ExitCode)
