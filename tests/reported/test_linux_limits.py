"""An argument or a variable that Linux cannot pass to a process is refused before the run, in each interface.

Without the check, the kernel answers `Argument list too long` in each pod, after the run has waited for its nodes.
Source: Linux fs/exec.c and include/uapi/linux/binfmts.h (MAX_ARG_STRLEN, 128 KiB).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepset.cli import main
from stepset.errors import BadInputError
from stepset.plan.exec_limits import WORD_LIMIT
from stepset.rendering import render
from tests.targets.making import request

LONG = "x" * (WORD_LIMIT + 1)
FITS = "x" * WORD_LIMIT


@pytest.mark.parametrize("framework", ["plain", "torch", "mpi", "xgboost"])
@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"args": ["a", LONG]}, "args[1]"),
        ({"command": ["python3", "-c", LONG]}, "command[2]"),
        ({"args": ["\u00e4" * (WORD_LIMIT // 2 + 1)]}, "args[0]"),
        ({"env": {"A": LONG}}, "env.A"),
        ({"env": {"A": FITS}}, "env.A"),
        ({"env": {"A": "x" * 100_000, "B": "$(A)$(A)"}}, "env.B"),
        ({"env": {"A": "x" * 100_000}, "args": ["--a=$(A)$(A)"]}, "args[0]"),
        ({"roles": [{"name": "data", "command": ["a"], "args": [LONG]}]}, "roles.data.args[0]"),
        ({"roles": [{"name": "data", "command": ["a"], "env": {"A": LONG}}]}, "roles.data.env.A"),
        (
            {"pod_template": {"containers": [{"name": "node", "env": [{"name": "A", "value": LONG}]}]}},
            "pod_template.containers.node.env.A",
        ),
        (
            {"pod_template": {"spec": {"initContainers": [{"name": "i", "image": "i", "command": ["a", LONG]}]}}},
            "pod_template.spec.initContainers.i.command[1]",
        ),
    ],
)
def test_a_longer_word_is_refused(framework: str, job: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        render(request(framework=framework, **job))
    assert str(caught.value).startswith(f"{field}: has 1") or str(caught.value).startswith(f"{field}: has 2")
    assert f" bytes; Linux allows {WORD_LIMIT} in " in str(caught.value)


def test_the_longest_words_are_accepted() -> None:
    assert render(request(framework="plain", args=[FITS], env={"A": "x" * (WORD_LIMIT - 2)}))


def test_a_longer_command_line_is_refused_in_total() -> None:
    with pytest.raises(BadInputError, match=r"^args: the arguments and variables have \d+ bytes; Linux allows 2097152"):
        request(framework="plain", args=["x" * 100_000] * 20, env={f"A{index}": "x" * 100_000 for index in range(2)})


@pytest.mark.parametrize("command", ["validate", "render", "explain", "run"])
def test_the_command_line_prints_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").touch()
    job = {"framework": "plain", "script": "train.py", "image": "a", "args": [LONG]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert main([command, str(tmp_path / "job.json")]) == 2
    error = capsys.readouterr().err
    assert "args[0]: has 131072 bytes; Linux allows 131071 in an argument; write it to a file" in error
    assert len(error) < 500


@pytest.mark.local
def test_the_limit_is_that_of_the_kernel() -> None:
    command = [sys.executable, "-S", "-c", "pass"]
    subprocess.run([*command, FITS], check=True)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run([*command, LONG])
