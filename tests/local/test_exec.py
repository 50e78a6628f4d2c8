"""`stepset exec` on this machine: the environment and the directory of the rank, the exit code, errors."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, program

__all__ = ["program"]

SCRIPT = """
import os, pathlib, time
pathlib.Path(f"started-{os.environ['RANK']}").touch()
while not pathlib.Path("end").exists():
    time.sleep(0.05)
"""


@pytest.mark.local
def test_a_command_beside_a_rank(program: Cli, tmp_path: Path) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    (place / "wait.yaml").write_text(
        "name: wait\nscript: wait.py\nnum_nodes: 2\nframework: plain\ncode: .\n"
        "env:\n  WORD: {secret: hub, key: token}\n"
    )
    (place / "wait.py").write_text(SCRIPT.replace("RANK", "STEPSET_NODE_RANK"))
    secret = {"STEPSET_SECRET_HUB_TOKEN": "hidden-word"}
    assert program("run", "a place/wait.yaml", "-d", env=secret).code == 0
    deadline = time.monotonic() + 60
    while len([*place.glob("started-*")]) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        script = "echo $STEPSET_NODE_RANK $WORD; pwd; exit 7"
        done = program("exec", "wait", "--rank", "1", "--", "sh", "-c", script)
        assert (done.code, done.out, done.err) == (7, f"1 hidden-word\n{place}\n", "")
        assert program("exec", "wait", "--", "sh", "-c", "kill -9 $$").code == 137
        silent = program("exec", "wait", "--", "true")
        assert (silent.code, silent.out + silent.err) == (0, "")
        for words, error in (
            (("--ranks", "9", "--", "true"), r"run wait-\w+ has no rank 9; it has: rank 0, rank 1"),
            (("--", "no-such-program"), "no-such-program: cannot be started: No such file or directory"),
            ((), "the command is missing; write it after --"),
            (("--ranks", "", "--", "true"), "--rank: '' is not a rank"),
        ):
            refused = program("exec", "wait", *words)
            assert refused.code == 2 and len(refused.errors) == 1, refused
            assert re.match(f"stepset: {error}", refused.err), refused.err
    finally:
        (place / "end").touch()
        program("wait", "wait")
    over = program("exec", "wait", "--", "true")
    assert over.code == 2 and "is over: Succeeded" in over.err
