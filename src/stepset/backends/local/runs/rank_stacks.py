"""Reads the stacks of local ranks. The agent's file, in the mode `stacks`, reads them as the user of the run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from functools import partial

from stepset.backends.local.agent_file import agent_file
from stepset.backends.local.liveness import read_supervisor
from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.stack_reading import TIME_LIMIT, PodStacks, read_stacks, running_ranks
from stepset.errors import BadInputError, InfrastructureError
from stepset.unstructured import one_line
from stepset.watch.stacks.document import MAX_BYTES
from stepset.watch.stacks.model import RunStacks

_LINE = 300
"""The maximum number of characters of the agent's error message."""


def local_stacks(run: RunDir, sources: frozenset[str] | None) -> RunStacks:
    """Returns the stacks of the running ranks of a local run. `Backend.stacks` documents the arguments and errors."""
    pods, problems = running_ranks(run.read(), sources)
    if not read_supervisor(run.path).pids_are_ours:
        raise BadInputError(f"run {run.name}: its processes cannot be found from here; use the machine of the run")
    found = [
        PodStacks(pod, rows, partial(_document, run, pod, [row.rank for row in rows if row.rank is not None]))
        for pod, rows in pods.items()
    ]
    return read_stacks(run.name, found, problems)


def _document(run: RunDir, pod: str, ranks: list[int]) -> bytes:
    """Returns the document of a pod. Kills the agent if it needs more time than `TIME_LIMIT`."""
    words = [sys.executable, "-I", "-S", str(agent_file()), "stacks", "--dir", str(run.pod(pod))]
    for rank in ranks:
        words += ["--rank", str(rank)]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
            timer = threading.Timer(TIME_LIMIT, process.kill)
            timer.start()
            assert process.stdout is not None
            data = process.stdout.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                process.kill()
            code = process.wait()
            timer.cancel()
        if not code or len(data) > MAX_BYTES:
            return data
        errors.seek(0)
        printed = errors.read(1 << 16).decode(errors="replace").strip().splitlines()
    reason = printed[-1] if printed else f"the agent exited with code {code}"
    raise InfrastructureError(f"pod {pod}: {one_line(reason, _LINE)}")
