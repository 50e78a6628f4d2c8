"""Searches in text that a training, a job file or a cluster's objects contain take time proportional to its length."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

pytestmark = pytest.mark.machine

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
REQUIREMENTS = ["a", "a>", ">=1", ">=1,", " ", "a ", "[", ";", "(", "a.", "@ a:", "# /// script\n", "# ///\n", "#\n"]
IN_REQUIREMENTS = """
from contextlib import suppress
import stepset
from stepset.sources.requirements import script_metadata
texts = [start + given[:498 - len(start)] + end for start in ("a", "a @ ", "") for end in ("", "!")]
for text in texts:
    with suppress(stepset.BadInputError):
        stepset.render({"command": ["true"], "image": "a", "requirements": [text]})
for text in (given, "# /// script\\n" + given, f'# /// script\\n# requires-python = "{given[:100]}"\\n# ///'):
    with suppress(stepset.BadInputError):
        script_metadata(text.encode())
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

MOVES = ["\x1b[A", "\x1b[A\n", "\r\x1b[A", "\r", "\n", "a"]
IN_LINES = """
from stepset.agent.lines import Lines
up = "\\r" + given[: len(given) // 2 // 3 * 3]
for text in ("\\r" + given, given, up + "\\n" * (len(up) // 3)):
    for chunk in (1, len(text)):
        lines = Lines("rank 0")
        for at in range(0, min(len(text), share << 15), chunk):
            lines.feed(text[at : at + chunk].encode())
        lines.finish()
"""
PATTERNS = [
    "[[a]",
    "[z-a]\n",
    "a",
    "*a",
    "?*",
    "[a-z]*",
    "**/",
    "**/a/",
    "*/",
    "*\n",
    "a*\n",
    "!*\n",
    "/**/a\n",
    "\\\\*",
]
IN_PATTERNS = """
import tempfile
from contextlib import suppress
from pathlib import Path
from stepset import BadInputError
from stepset.sources.code_files import find_code_files
with tempfile.TemporaryDirectory() as name:
    directory = Path(name)
    for file in ("a" * 250, "a" * 249 + "b", "x.py"):
        (directory / file).touch()
    for text in (given, given + "b", given[:60] + "b", given[:6] + "b", given.replace("\\n", "b\\n")):
        (directory / ".gitignore").write_text(text)
        with suppress(BadInputError):
            find_code_files(directory)
"""
ENTRIES = ["{name: a%d, emptyDir: {}}", "{name: a, emptyDir: {}}", "{name: a%d, $patch: delete}", "{name: [a%d]}", "{}"]
IN_ENTRIES = """
from stepset.targets.pods.strategic_merge import merge
import yaml
for field in ("volumes", "containers", "env", "ports", "tolerations"):
    entries = [yaml.safe_load(given % n if "%" in given else given) for n in range(100)] * (75 * share)
    for n, entry in enumerate(entries):
        entries[n] = {**entry, "name": f"{entry.get('name')}{n}"} if isinstance(entry.get("name"), str) else entry
    merged = merge(merge({}, {field: entries}), {field: entries})
"""
COMMANDS = ["a", "a.", "a.sh", ".", "source ", "# ", " .", "mpirun", "mpirun_", "env ", "bash -c ", "nice bash ", "["]
IN_COMMANDS = """
from stepset.backends.kubernetes.submit.field_map import _tokens
from stepset.plan.launchers import find_launcher
from stepset.plan.starters import starts_ranks
for text in (given, given + "!", given + "."):
    starts_ranks(["bash", "-c", text])
    starts_ranks([text])
    starts_ranks(["env", *text.split(" ")])
    starts_ranks(["env"] * len(text) + ["./a.out"])
    for command in (["bash", "-c", text], [text], ["env", *text.split(" ")], ["env"] * len(text) + ["./a.out"]):
        find_launcher(command)
    _tokens(text)
"""
IN_LOGS = """
import os, tempfile
from pathlib import Path
from stepset.backends.local.logs.files import chunks
from stepset.backends.local.runs.run_dir import RunDir
with tempfile.TemporaryDirectory() as name:
    run = RunDir(Path(name))
    run.log.write_text(given * 1024 + "\\n")
    assert max(map(len, chunks(run, follow=False))) < 1 << 23
"""


EACH = """
import signal
import time
code = compile(program, "program", "exec")

def seconds(unit, share):
    length = size * share // 4 or len(unit)
    given = (unit * (length // len(unit) + 1))[:length]
    signal.setitimer(signal.ITIMER_PROF, 60)
    started = time.process_time()
    exec(code, {"given": given, "share": share})
    return time.process_time() - started

def grows(unit):
    less, more = seconds(unit, 1), seconds(unit, 4)
    found = f"{less:.3f} s of CPU time for a quarter of the text, {more:.3f} s for the text"
    return found if more > 0.5 and more > 8 * less else ""

exec(code, {"given": units[0], "share": 1})  # imports the modules
for unit in units:
    print(repr(unit), flush=True)
    if grows(unit) and (found := grows(unit)):
        raise SystemExit(found)
"""


def search(program: str, units: Sequence[str], size: int = SIZE) -> None:
    """Runs a program for each unit. `given` in the program is the unit, repeated up to `size` (0: the unit itself).

    Fails if the CPU time is more than 0.5 s, and more than 8 times the CPU time for a quarter of the size. The factor
    is 4 for proportional time, and 16 for quadratic time. A program may also use `share`, which is 4, and 1 for
    a quarter of the size. A unit that fails is measured again.

    The programs run in a process. A timer ends the process if a program uses 60 s of CPU time, because nothing else
    interrupts a search.
    """
    text = f"program, units, size = {program!r}, {list(units)!r}, {size}\n{EACH}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=1800)
    assert (done.returncode, done.stdout.splitlines()) == (0, list(map(repr, units))), f"{done.stdout}\n{done.stderr}"


def test_a_search_in_quadratic_time_is_found() -> None:
    with pytest.raises(AssertionError, match=r"s of CPU time for a quarter of the text"):
        search("import re\nre.search('a*c', given)", ["a"], 1 << 16)


def test_the_output_of_a_training() -> None:
    search(IN_OUTPUT, OUTPUTS)


def test_references_in_variables() -> None:
    search(IN_REFERENCES, REFERENCES, 4 * SIZE)


def test_messages_of_controllers() -> None:
    search(IN_PODS, PODS)


def test_values_of_a_job_file() -> None:
    search(IN_WORDS, WORDS)


def test_requirements() -> None:
    search(IN_REQUIREMENTS, REQUIREMENTS)


def test_values_of_secrets() -> None:
    search(IN_SECRETS, SECRETS, 1 << 17)


def test_output_that_moves_the_cursor() -> None:
    search(IN_LINES, MOVES, 1 << 20)


def test_an_ignore_file() -> None:
    search(IN_PATTERNS, PATTERNS, 1 << 17)


def test_commands_and_paths_of_fields() -> None:
    search(IN_COMMANDS, COMMANDS)


def test_lists_of_a_pod_template() -> None:
    search(IN_ENTRIES, ENTRIES, 0)


def test_a_log_without_line_ends() -> None:
    search(IN_LOGS, ["[rank 0] x"])
