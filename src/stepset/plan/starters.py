"""Determines whether a command starts the ranks of a job itself, or is the program of one rank.

For example, `mpirun ./a.out` is a launcher, which starts all ranks, and `./a.out` is the program of one rank. The
functions examine only the words of the command, because the files of the job are not available everywhere.

A launcher of MPI starts the ranks of all nodes. A launcher such as torchrun runs in each node, and starts the ranks of
this node. In an MPI job, such a launcher is the program of one rank: mpirun starts torchrun in each node.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stepset.plan.launchers import (
    MPI_LAUNCHERS,
    SHELLS,
    find_launcher,
    find_python,
    is_mpi_launcher,
    script_at,
    shell_text,
)
from stepset.plan.wrappers import wrapped_at

_OTHERS = ("prun", "srun", "aprun", "jsrun", "horovodrun", "deepspeed", "mlx.launch")
"""Further programs that start the ranks of a job."""
_PER_NODE = ("ray", "composer", "colossalai", "axolotl", "llamafactory-cli", "trl", "lightning")
"""Programs whose subcommands start the ranks of a node, for example `llamafactory-cli train` with torchrun
(hiyouga/LLaMA-Factory-Doc docs/source/advanced/distributed.rst)."""
_SCRIPTS = (".sh", ".bash")
_IN_TEXT = (*sorted(MPI_LAUNCHERS, reverse=True), "srun", "horovodrun", "mlx.launch")
_NAMED = re.compile(rf"(?<![\w-])(?P<name>{'|'.join(map(re.escape, _IN_TEXT))})(?!\.?[\w-])", re.IGNORECASE)
_NAMED_PER_NODE = re.compile(
    rf"(?<![\w-])(?P<name>{'|'.join(map(re.escape, _IN_TEXT))}|torchrun|torch\.distributed\.(?:run|launch)|deepspeed"
    rf"|accelerate[ -]launch|(?:fabric|tune) run|(?:{'|'.join(_PER_NODE)}) [a-z]+)(?!\.?[\w-])",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\s;&|()'\"]+")
_NAMES_SCRIPT = re.compile(r".+\.(?:sh|bash)(?![\w.-])")
_SOURCED = re.compile(r"(?:^|(?<=[\s;&|]))(?:source|\.)\s+[^\s;&|]+")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")
_MAY_START_RANKS = re.compile(r"launch|torchrun|distributed\.run|spawn|start_processes|(?<![a-z])ray(?![a-z])")
"""Matches names of scripts and modules, and code, that may start ranks."""
_READS_WORLD = re.compile(
    r"(NODE|MACHINE)[-_]?RANK|NUM[-_]NODES|NNODES|MASTER[-_]ADDR|WORLD[-_]SIZE|(?<![a-z]-)\bRANK\b|PET_|DIST[-_]URL|environ"
    r"|subprocess|start_processes|spawn",
    re.IGNORECASE,
)
"""Matches words that use the position of the node in the world. With such words, a program can connect the nodes
itself."""


class RankStarter(NamedTuple):
    """The part of a command that starts the ranks: a launcher or a shell script.

    Args:
        what: `launcher` if the command contains the name of a launcher. `script` if the command runs a shell script.
        name: the name of the launcher, or the path of the script.
    """

    what: Literal["launcher", "script"]
    name: str


def starts_ranks(command: Sequence[str], *, per_node: bool = False) -> RankStarter | None:
    """Returns the launcher or script with which a command starts the ranks.

    Returns None if the command is the program of one rank. Wrappers such as `env`, `nice` or `conda run` may precede
    the program of a command. A command is considered to start the ranks if its program is one of the following:

    - A launcher.
    - A shell script.
    - A shell with `-c SCRIPT`, if SCRIPT contains the name of a launcher or of a shell script.

    Args:
        per_node: whether launchers of the ranks of one node, such as torchrun, count. With True, a launcher also counts
            if it is an argument of another program, as in `./entry.sh torchrun train.py`. A value of an option, as in
            `--strategy deepspeed`, is no launcher.

    >>> starts_ranks(["env", "A=1", "/opt/mpi/bin/mpirun", "-n", "4", "./a.out"])
    RankStarter(what='launcher', name='mpirun')
    >>> starts_ranks(["bash", "-lc", "module load mpi && mpiexec ./a.out"])
    RankStarter(what='launcher', name='mpiexec')
    >>> starts_ranks(["./run.sh"])
    RankStarter(what='script', name='./run.sh')
    >>> starts_ranks(["./a.out", "--launcher", "mpirun"])
    >>> starts_ranks(["torchrun", "train.py"])
    >>> starts_ranks(["torchrun", "train.py"], per_node=True)
    RankStarter(what='launcher', name='torchrun')
    """
    at = wrapped_at(command)
    if at >= len(command):
        return None
    if not per_node:
        return _by_program(command, at)
    if launcher := find_launcher(command):
        return RankStarter("launcher", launcher.name)
    if posixpath.basename(command[at]) in _PER_NODE:
        return RankStarter("launcher", posixpath.basename(command[at]))
    return _by_program(command, at, per_node=True) or _in_arguments(command, at + 1)


def _by_program(command: Sequence[str], at: int, *, per_node: bool = False) -> RankStarter | None:
    """Returns the launcher or script at index `at` of a command, or None if this program does not start ranks."""
    program = posixpath.basename(command[at])
    if is_mpi_launcher(command[at]) or program in _OTHERS:
        return RankStarter("launcher", program)
    if program.endswith(_SCRIPTS):
        return RankStarter("script", command[at])
    return _by_shell(command[at + 1 :], per_node=per_node) if program in SHELLS else None


def _in_arguments(command: Sequence[str], first: int) -> RankStarter | None:
    """Returns the launcher that the program of a command gets as an argument, or None if there is none."""
    for at in range(first, len(command)):
        before, word = command[at - 1], command[at]
        if before == "-m" and (found := find_launcher(["python3", *command[at - 1 : at + 1]])):
            return RankStarter("launcher", found.name)
        if not word.startswith("-") and not before.startswith("-") and (found := find_launcher(command[at : at + 2])):
            return RankStarter("launcher", found.name)
    return None


def launcher_in(text: str, *, per_node: bool = False) -> str | None:
    """Returns the first name of a launcher in the text of a shell script, or None if there is none.

    Names in comments are ignored.

    Args:
        per_node: whether launchers of the ranks of one node, such as torchrun, count.

    >>> launcher_in("# uses mpirun\\n./a.out\\n"), launcher_in("exec $MPIRUN -n 4 ./a.out\\n")
    (None, 'MPIRUN')
    """
    found = (_NAMED_PER_NODE if per_node else _NAMED).search(_COMMENT.sub("", text))
    return found["name"] if found else None


def _by_shell(words: Sequence[str], *, per_node: bool) -> RankStarter | None:
    """Returns the launcher or script that a shell with these arguments runs, or None if the shell runs neither."""
    text = shell_text(words)
    if text is not None:
        if name := launcher_in(text, per_node=per_node):
            return RankStarter("launcher", name)
        # Matching each word separately takes linear time. A search in the whole text would take quadratic time.
        called = map(_NAMES_SCRIPT.match, _WORD.findall(_SOURCED.sub("", _COMMENT.sub("", text))))
        return next((RankStarter("script", each[0]) for each in called if each), None)
    at = script_at(words)
    rest = words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]
    return RankStarter("script", rest[0]) if rest else None


def may_connect_nodes(words: Sequence[str]) -> bool:
    """Returns whether a command may start the ranks of a node, or connect its process to the other nodes.

    All words of the command count, because the words before the program can set variables.

    >>> may_connect_nodes(["python3", "train.py", "--node_rank", "$(STEPSET_NODE_RANK)"])
    True
    >>> may_connect_nodes(["python3", "train.py", "--lora-rank", "8"])
    False
    """
    found = find_python(words)
    name = found[1].text if found else "".join(words[:1])
    if not found or found[1].kind == "script":
        name = posixpath.basename(name)
    return "$" in name or _MAY_START_RANKS.search(name) is not None or any(map(_READS_WORLD.search, words))


def script_may_connect_nodes(text: str) -> bool:
    """Returns whether a shell script may start the ranks of a node, or connect its process to the other nodes."""
    text = _COMMENT.sub("", text)
    return bool(launcher_in(text, per_node=True) or _MAY_START_RANKS.search(text) or _READS_WORLD.search(text))
