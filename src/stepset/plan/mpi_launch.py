"""Whether a command starts MPI's ranks itself, as `mpirun ./a.out` does, or is the program of one rank.

The answer follows from the words of the command: they are the only information that every interface and target has.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

_MPI = ("mpirun", "mpiexec", "orterun", "prterun")
"""The launchers of Open MPI, MPICH and Intel MPI; a suffix such as `.openmpi` or `.hydra` may follow."""
_OTHERS = ("prun", "srun", "aprun", "jsrun", "horovodrun", "deepspeed", "mlx.launch")
"""Programs that start ranks by themselves, or by an MPI launcher of their own."""
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_WRAPPERS = (
    "env", "time", "nice", "nohup", "timeout", "stdbuf", "numactl", "taskset", "setsid", "ionice", "chrt", "sudo",
    "gosu", "su-exec", "setpriv", "tini", "dumb-init", "conda", "mamba", "micromamba", "pixi", "uv", "poetry",
    "singularity", "apptainer", "nsys", "perf", "strace", "gdb", "valgrind", "xvfb-run",
)  # fmt: skip
"""Programs that run the command among their arguments."""
_SCRIPTS = (".sh", ".bash")
_NAMED = re.compile(
    r"(?<![\w-])(?P<name>(?:mpirun|mpiexec|orterun|prterun)(?:[._]\w+)?|srun|horovodrun|mlx\.launch)(?![\w-])",
    re.IGNORECASE,
)
_CALLS_SCRIPT = re.compile(r"[^\s;&|()'\"]+\.(?:sh|bash)(?![\w.-])")
_SOURCED = re.compile(r"(?:^|(?<=[\s;&|]))(?:source|\.)\s+[^\s;&|]+")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")


class Finding(NamedTuple):
    """Why a command is considered to start ranks itself.

    Args:
        what: `launcher` if the command names one, `script` if it runs a shell script whose content is not known.
        name: the launcher, or the path of the script.
    """

    what: Literal["launcher", "script"]
    name: str


def starts_ranks(command: Sequence[str]) -> Finding | None:
    """Returns why a command starts the ranks itself; None if it is the program of one rank.

    A command starts ranks if its program is a launcher, a shell whose `-c` text names a launcher, or a shell script;
    wrappers such as `env`, `nice` or `conda run` may precede them.

    >>> starts_ranks(["env", "A=1", "/opt/mpi/bin/mpirun", "-n", "4", "./a.out"])
    Finding(what='launcher', name='mpirun')
    >>> starts_ranks(["bash", "-lc", "module load mpi && mpiexec ./a.out"])
    Finding(what='launcher', name='mpiexec')
    >>> starts_ranks(["./run.sh"])
    Finding(what='script', name='./run.sh')
    >>> starts_ranks(["./a.out", "--launcher", "mpirun"])
    """
    if not command:
        return None
    program = posixpath.basename(command[0])
    if is_mpi_launcher(command[0]) or program in _OTHERS:
        return Finding("launcher", program)
    if program.endswith(_SCRIPTS):
        return Finding("script", command[0])
    if program in SHELLS:
        return _by_shell(command[1:])
    if program in _WRAPPERS:
        return next(filter(None, (starts_ranks(command[at:]) for at in range(1, len(command)))), None)
    return None


def is_mpi_launcher(program: str) -> bool:
    """Whether a program is an MPI's launcher, by its name: `mpirun`, `/opt/bin/mpiexec.hydra`, `mpirun_rsh`."""
    return posixpath.basename(program).startswith(_MPI)


def launcher_in(text: str) -> str | None:
    """Returns the launcher that a shell script names outside comments, or None.

    >>> launcher_in("# uses mpirun\\n./a.out\\n"), launcher_in("exec $MPIRUN -n 4 ./a.out\\n")
    (None, 'MPIRUN')
    """
    found = _NAMED.search(_COMMENT.sub("", text))
    return found["name"] if found else None


def _by_shell(words: Sequence[str]) -> Finding | None:
    """Returns why a shell with these arguments starts ranks."""
    at = 0
    while at < len(words) and words[at][:1] in ("-", "+") and words[at] != "--":
        option = words[at]
        if not option.startswith("--") and "c" in option[1:]:
            # The text is the first word after -c that is not an option: `bash -c -e TEXT` is possible, but unusual.
            text = next((word for word in words[at + 1 :] if not word.startswith("-")), "")
            if name := launcher_in(text):
                return Finding("launcher", name)
            called = _CALLS_SCRIPT.search(_SOURCED.sub("", _COMMENT.sub("", text)))
            return Finding("script", called[0]) if called else None
        at += 2 if option.endswith("o") or option in ("--rcfile", "--init-file") else 1
    rest = words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]
    return Finding("script", rest[0]) if rest else None
