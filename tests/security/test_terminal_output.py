"""A training attacks the terminal of the user who runs or reads it: every command, on a real terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

STEPSET = Path(sys.executable).parent / "stepset"
OWN = re.compile(r"\x1b\[[0-9;:]*m|\r\x1b\[K|\r?\n")
"""Colours, the line that clears the status line, and line ends."""

ATTACK = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\x1bP1$r\x1b\\\u202egnp.exe\u2066\u200bend\u2028rank 0 succeeded"
SCRIPT = f"""
import json, os, sys
attack = {ATTACK!r}
print("line", attack, flush=True)
print(json.dumps({{"stepset": {{"step": 1, "metrics": {{attack: 1.0}}}}}}, ensure_ascii=False), flush=True)
if "fail" in sys.argv:
    sys.stdout.buffer.write(b"undecodable \\xff\\xfe\\n")
    raise RuntimeError("broken " + attack)
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump({{"note": attack}}, file, ensure_ascii=False)
"""
FLAGS = ("--framework", "plain", "--name", "attack")


def on_a_terminal(directory: Path, *argv: str, **env: str) -> str:
    """What a command writes to a terminal."""
    (directory / "train.py").write_text(SCRIPT, encoding="utf-8")
    ours, theirs = os.openpty()
    full = {**os.environ, "STEPSET_HOME": str(directory / "home"), "TERM": "xterm", "PYTHONUTF8": "1", **env}
    command = subprocess.Popen([STEPSET, *argv], cwd=directory, env=full, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = bytearray()
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux reports EIO when the last writer has closed the terminal
            break
        if not data:
            break
        seen += data
    os.close(ours)
    command.wait(60)
    return seen.decode()


def assert_harmless(seen: str) -> None:
    found = {char for char in OWN.sub("", seen) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert found == set(), seen


@pytest.fixture(scope="module", params=["succeed", "fail"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    directory = tmp_path_factory.mktemp("attack")
    restarts = ("--max-restarts", "1") if request.param == "fail" else ()
    return directory, request.param, on_a_terminal(directory, "run", "train.py", *FLAGS, *restarts, "--", request.param)


def test_run_shows_lines_notes_progress_and_the_end(ran: tuple[Path, str, str]) -> None:
    _, ending, seen = ran
    assert_harmless(seen)
    assert "[rank 0]\x1b[0m line " in seen
    assert "\\u202egnp.exe" in seen
    assert ("note: restart 1" in seen) is (ending == "fail")
    assert ("last lines" if ending == "fail" else "result: ") in seen


@pytest.mark.parametrize(
    "command",
    [
        "status attack",
        "status attack -o json",
        "list",
        "list -o json",
        "diagnose attack",
        "wait attack",
        "cancel attack",
        "logs attack",
        "logs attack --raw",
    ],
)
def test_every_command_about_a_run(ran: tuple[Path, str, str], command: str) -> None:
    seen = on_a_terminal(ran[0], *command.split())
    assert "attack" in seen or "line " in seen
    assert_harmless(seen)


def test_a_job_file_that_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f'framework: "x\\e]52;c;x\\a\u202e"\nscript: "{chr(0x200B)}t.py"\n"\\e[2J": 1\n')
    seen = on_a_terminal(tmp_path, "validate", "job.yaml")
    assert "framework" in seen
    assert_harmless(seen)
    assert_harmless(on_a_terminal(tmp_path, "validate", "job.yaml", STEPSET_DEBUG="1"))
