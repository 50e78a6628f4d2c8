"""Installs a job's Python requirements for the ranks of a local run. The ranks' Python environment is not changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepset.backends.local.environment import search_path
from stepset.errors import BadInputError, InfrastructureError, RunStoppedError
from stepset.requirements import PROGRAM_FILE
from stepset.requirements.install import INTERRUPTED, REJECTED
from stepset.sources.requirements import Requirements
from stepset.spec.environ import EnvText
from stepset.spec.job import TrainingJob
from stepset.trusted_path import check_path

_POLL = 0.1
"""The interval in seconds at which `stopping` is called."""
_GRACE = 10.0
"""The number of seconds in which a stopped installation must delete the files that it has written."""


@dataclass(frozen=True)
class Prepared:
    """The environment in which the ranks can import the requirements. `notes` lists what was installed."""

    environ: Mapping[str, str]
    notes: tuple[str, ...] = ()


def prepare_requirements(
    required: Requirements, job: TrainingJob, environ: Mapping[str, str], stopping: Callable[[], bool] | None = None
) -> Prepared:
    """Installs the requirements that are missing in the ranks' Python. All ranks use the same installation.

    Args:
        stopping: a function that returns whether to stop the installation. Default: the installation is not stopped.

    Raises:
        BadInputError: uv is missing, a requirement cannot be met, or the ranks' Python does not have the version that
            the script requires.
        InfrastructureError: a package index or the disk fails, another process stopped the installation, or the cache
            can be changed by another user.
        RunStoppedError: `stopping` returned True. The installation has stopped, and its files are deleted.
    """
    if not required:
        return Prepared(environ)
    path = search_path(environ, sys.executable, sys.prefix)
    python = shutil.which("python3", path=path) or sys.executable
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "stepset", "requirements")
    check_path(cache, "XDG_CACHE_HOME")
    given = json.dumps({"requirements": required.packages, "python": required.python, "lifeline": True})
    command = [python, "-I", str(PROGRAM_FILE), given, str(cache)]
    done = _run(command, {**environ, **_settings_of_uv(job), "PATH": path}, stopping or (lambda: False))
    lines = done.stderr.strip().splitlines()
    if done.returncode < 0 or done.returncode == INTERRUPTED:
        raise InfrastructureError("requirements: the installation was stopped by another process")
    if done.returncode:
        problem = lines[-1] if lines else "requirements: cannot be installed"
        raise BadInputError(problem) if done.returncode == REJECTED else InfrastructureError(problem)
    place = done.stdout.rstrip("\n")
    if not place:
        return Prepared(environ)
    check_path(Path(place), "XDG_CACHE_HOME")  # another user may have created the directory in the meantime
    rows = {"PYTHONPATH": (place, environ.get("PYTHONPATH")), "PATH": (f"{place}/bin", environ.get("PATH"))}
    found = {name: os.pathsep.join(filter(None, words)) for name, words in rows.items()}
    return Prepared({**environ, **found}, tuple(lines))


def _run(
    command: Sequence[str], environ: Mapping[str, str], stopping: Callable[[], bool]
) -> subprocess.CompletedProcess[str]:
    """Runs the program in a separate process group.

    All processes of the group are stopped when this function returns, and when this process exits.
    """
    lifeline, held = os.pipe()
    try:
        with subprocess.Popen(
            command, env=environ, stdin=lifeline, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, umask=0o077,
        ) as process:  # fmt: skip
            try:
                while not stopping():
                    with suppress(subprocess.TimeoutExpired):
                        out, err = process.communicate(timeout=_POLL)
                        return subprocess.CompletedProcess(command, process.returncode, out, err)
            finally:
                if process.returncode is None:
                    _end(process)
    finally:
        os.close(lifeline)
        os.close(held)
    raise RunStoppedError("the run was stopped while its requirements were installed; no rank has started")


def _end(process: subprocess.Popen[str]) -> None:
    """Stops the process and the other processes of its group, for example the build backends that uv has started."""
    os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    with suppress(ProcessLookupError, PermissionError):  # no process is left; for a zombie, macOS reports EPERM
        os.killpg(process.pid, signal.SIGKILL)


def _settings_of_uv(job: TrainingJob) -> dict[str, str]:
    """Returns the variables of the job that are for uv, such as the URL of a package index.

    In a pod, uv gets all variables of the job.
    """
    return {name: each.value for name, each in job.env.items() if name.startswith("UV_") and isinstance(each, EnvText)}
