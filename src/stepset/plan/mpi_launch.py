"""Determines whether the command of an MPI job is a launcher or the program of one rank.

For example, `mpirun ./a.out` is a launcher, which starts all ranks, and `./a.out` is the program of one rank. The
functions examine only the words of the command, because the files of the job are not available everywhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stepset.plan.launchers import (
    MPI_LAUNCHERS,
    SHELLS,
    is_mpi_launcher,
    script_at,
    shell_text,
)
from stepset.plan.wrappers import wrapped_at

_OTHERS = ("prun", "srun", "aprun", "jsrun", "horovodrun", "deepspeed", "mlx.launch")
"""Further programs that start the ranks of a job."""
_SCRIPTS = (".sh", ".bash")
_IN_TEXT = (*sorted(MPI_LAUNCHERS, reverse=True), "srun", "horovodrun", "mlx.launch")
_NAMED = re.compile(rf"(?<![\w-])(?P<name>{'|'.join(map(re.escape, _IN_TEXT))})(?!\.?[\w-])", re.IGNORECASE)
_WORD = re.compile(r"[^\s;&|()'\"]+")
_NAMES_SCRIPT = re.compile(r".+\.(?:sh|bash)(?![\w.-])")
_SOURCED = re.compile(r"(?:^|(?<=[\s;&|]))(?:source|\.)\s+[^\s;&|]+")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")


class RankStarter(NamedTuple):
    """The part of a command that starts the ranks: a launcher or a shell script.

    Args:
        what: `launcher` if the command contains the name of a launcher. `script` if the command runs a shell script.
        name: the name of the launcher, or the path of the script.
    """

    what: Literal["launcher", "script"]
    name: str


def starts_ranks(command: Sequence[str]) -> RankStarter | None:
    """Returns the launcher or script with which a command starts the ranks.

    Returns None if the command is the program of one rank. Wrappers such as `env`, `nice` or `conda run` may precede
    the program of a command. A command is considered to start the ranks if its program is one of the following:

    - A launcher.
    - A shell script.
    - A shell with `-c SCRIPT`, if SCRIPT contains the name of a launcher or of a shell script.

    >>> starts_ranks(["env", "A=1", "/opt/mpi/bin/mpirun", "-n", "4", "./a.out"])
    RankStarter(what='launcher', name='mpirun')
    >>> starts_ranks(["bash", "-lc", "module load mpi && mpiexec ./a.out"])
    RankStarter(what='launcher', name='mpiexec')
    >>> starts_ranks(["./run.sh"])
    RankStarter(what='script', name='./run.sh')
    >>> starts_ranks(["./a.out", "--launcher", "mpirun"])
    """
    at = wrapped_at(command)
    return _by_program(command, at) if at < len(command) else None


def _by_program(command: Sequence[str], at: int) -> RankStarter | None:
    """Returns the launcher or script at index `at` of a command, or None if this program does not start ranks."""
    program = posixpath.basename(command[at])
    if is_mpi_launcher(command[at]) or program in _OTHERS:
        return RankStarter("launcher", program)
    if program.endswith(_SCRIPTS):
        return RankStarter("script", command[at])
    return _by_shell(command[at + 1 :]) if program in SHELLS else None


def launcher_in(text: str) -> str | None:
    """Returns the first name of a launcher in the text of a shell script, or None if there is none.

    Names in comments are ignored.

    >>> launcher_in("# uses mpirun\\n./a.out\\n"), launcher_in("exec $MPIRUN -n 4 ./a.out\\n")
    (None, 'MPIRUN')
    """
    found = _NAMED.search(_COMMENT.sub("", text))
    return found["name"] if found else None


def _by_shell(words: Sequence[str]) -> RankStarter | None:
    """Returns the launcher or script that a shell with these arguments runs, or None if the shell runs neither."""
    text = shell_text(words)
    if text is not None:
        if name := launcher_in(text):
            return RankStarter("launcher", name)
        # Matching each word separately takes linear time. A search in the whole text would take quadratic time.
        called = map(_NAMES_SCRIPT.match, _WORD.findall(_SOURCED.sub("", _COMMENT.sub("", text))))
        return next((RankStarter("script", each[0]) for each in called if each), None)
    at = script_at(words)
    rest = words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]
    return RankStarter("script", rest[0]) if rest else None
