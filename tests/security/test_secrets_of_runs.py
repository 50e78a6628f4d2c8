"""A local training prints, reports and returns the value of a Secret: what is stored and shown of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

STEPSET = Path(sys.executable).parent / "stepset"
TOKEN = 'hf-Zm9v"YmFy+9876543210'


def leaks(stored: bytes | str) -> bool:
    """Whether a stored text contains a part of the value, also in its escapes."""
    text = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored
    return any(part in text or json.dumps(part)[1:-1] in text for part in (TOKEN[:10], TOKEN[-10:]))


TRAIN = """
import json, os, sys
token = os.environ["TOKEN"]
print("using", token, flush=True)
print(json.dumps({"stepset": {"step": 1, "metrics": {token: 1.0}}}), flush=True)
if "fail" in sys.argv:
    raise RuntimeError(f"GET https://host/?token={token} failed")
with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
    json.dump({"token": token}, file)
"""


def stored_files(home: Path) -> dict[str, bytes]:
    """The files of the run directories, without the ranks' own logs."""
    files = [each for each in home.rglob("*") if each.is_file()]
    return {
        str(each.relative_to(home)): each.read_bytes() for each in files if not re.search(r"/log$|ranks/", str(each))
    }


@pytest.mark.parametrize("framework", ["plain", "torch"])
@pytest.mark.parametrize("ending", ["succeed", "fail"])
def test_a_local_run_stores_and_shows_values_in_the_lines_of_ranks_only(
    tmp_path: Path, framework: str, ending: str
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    home = tmp_path / "home"
    env = {**os.environ, "STEPSET_HOME": str(home), "STEPSET_SECRET_HUB_TOKEN": TOKEN}

    def stepset(*argv: str) -> tuple[str, str]:
        done = subprocess.run([STEPSET, *argv], cwd=tmp_path, env=env, capture_output=True, timeout=240, check=False)
        return done.stdout.decode(), done.stderr.decode()

    secret = ("--set", "env.TOKEN={secret: hub, key: token}", "--framework", framework)
    out, err = stepset("run", "train.py", *secret, "--max-restarts", "1", "--", ending)
    assert f"using {TOKEN}" in out
    assert not leaks(err)
    assert "***" in err
    for path, content in stored_files(home).items():
        assert not leaks(content), path
    name = next((home / "runs").iterdir()).name
    assert "***" in stored_files(home)[f"runs/{name}/state.json"].decode()
    for command in (("status", name), ("status", name, "-o", "json"), ("list",), ("diagnose", name), ("wait", name)):
        shown = "".join(stepset(*command))
        assert not leaks(shown), command
        assert name in shown
    assert TOKEN in stepset("logs", name)[0]


def test_an_error_about_a_value_does_not_show_it(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "token").write_text(f"{TOKEN}\0")
    env = {**os.environ, "STEPSET_HOME": str(tmp_path / "home"), "STEPSET_SECRETS_DIR": str(tmp_path)}
    command = ("run", "--set", "env.TOKEN={secret: hub, key: token}", "--command", "--", "echo", "$(TOKEN)")
    done = subprocess.run([STEPSET, *command], cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"'TOKEN' contains a NUL character" in done.stderr
    assert not leaks(done.stderr)
