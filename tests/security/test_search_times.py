"""Searches in text that a training, a job file or a cluster's objects contain take time proportional to its length."""

from __future__ import annotations

import subprocess
import sys

import pytest

SIZE = 1 << 18
OUTPUTS = [
    *("\n", " ", "\r", "-", "1", "A", "-" * 72 + "\n", "-" * 72 + "x\n", "rank\n", "AError ", "[" * 70),
    *("Root Cause (first observed failure):", "Root Cause (first observed failure):\n", "\n rank : " + "1" * 50),
    *("MPI_ABORT was invoked on rank 1 in communicator ", "Process name: [", "Process name: [@1", "BAD TERMINATION"),
    *("terminated with the exit string: ", "process rank 1 with PID 1 on node ", "Abort(1) on node 1"),
    *("Traceback (most recent call last):\n", "Traceback (most recent call last):\n x\n"),
    *("Traceback (most recent call last):" + "\n" * 30, " Traceback (most recent call last):\n"),
    *("Unable to allocate ", "rendezvous ", "Rendezvous", "connection ", "Error", "x.Error"),
]
IN_OUTPUT = """
from stepset.agent.diagnosis import find_error, launcher_report
from stepset.watch.diagnose import Observation, diagnose, find_error as error_in
for text in (given, "Root Cause (first observed failure):\\n" + given):
    find_error(text), find_error(text, "", 3), launcher_report(text)
    diagnose([Observation("rank 0", 1.0, rank=0, exit_code=1, error=text, tail=tuple(text.split("\\n")[-40:]))])
    error_in(text.split("\\n")[-40:])
"""
REFERENCES = ["$(", "$$", "$", "$(A", ")", "$()", "$$(", "$(A)"]
IN_REFERENCES = """
from stepset.agent.launch import expand as in_agent
from stepset.plan.expand import expand
from stepset.targets.pods.shell import quote
assert in_agent(given, {"A": "1"}) == expand(given, {"A": "1"})
quote(given, {"A": "A"})
"""
PODS = ["for pod ", "for pod a/", "for pod " + "a/" * 1000, "Pod a/"]
IN_PODS = """
from stepset.watch.cluster import failed
for pattern in (failed._FAILED_WITH, failed._DISRUPTED):
    pattern.search(given)
"""
WORDS = ["a", "a.", "a-", "-", "1", ".", "0e", "a/", "A"]
IN_WORDS = """
from contextlib import suppress
import stepset
for field in ("name", "image", "script", "module", "service_account", "deadline", "checkpoint_dir", "procs_per_node"):
    for text in (given, given + "!"):
        with suppress(stepset.BadInputError):
            stepset.render({"command": ["true"], "image": "a", field: text})
for field in ("labels", "annotations", "env", "resources_per_node"):
    with suppress(stepset.BadInputError):
        stepset.render({"command": ["true"], "image": "a", field: {given: given, "a": given + "!"}})
"""

SECRETS = ["a", "ab", "Zm9vYmFy", "0123456789abcdef"]
IN_SECRETS = """
from stepset.agent.redact import Redactor
many = "".join(f"{number} {given[:60]}{number}\\n" for number in range(1500))
for secret in (given, many):
    redactor = Redactor([secret])
    for block in 10 * [many[:1 << 16].encode(), b"another line of the training\\n" * 2000]:
        redactor.events("rank 0", block, cut=True)
    for text in (many, given, given[3:], "x" + given):
        redactor.text(text, cut=True)
"""


def search(program: str, unit: str, size: int = SIZE) -> None:
    """Runs a program with `given`, the unit repeated; in a process, because nothing interrupts a search."""
    text = f"given = ({unit!r} * ({size} // {len(unit)} + 1))[:{size}]\n{program}"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


@pytest.mark.parametrize("unit", OUTPUTS)
def test_the_output_of_a_training(unit: str) -> None:
    search(IN_OUTPUT, unit)


@pytest.mark.parametrize("unit", REFERENCES)
def test_references_in_variables(unit: str) -> None:
    search(IN_REFERENCES, unit, 4 * SIZE)


@pytest.mark.parametrize("unit", PODS)
def test_messages_of_controllers(unit: str) -> None:
    search(IN_PODS, unit)


@pytest.mark.parametrize("unit", WORDS)
def test_values_of_a_job_file(unit: str) -> None:
    search(IN_WORDS, unit)


@pytest.mark.parametrize("unit", SECRETS)
def test_values_of_secrets(unit: str) -> None:
    search(IN_SECRETS, unit, 1 << 17)
