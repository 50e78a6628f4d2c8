"""Finds the launcher in a command. A launcher, such as torchrun or mpirun, is a program that starts the ranks of a job.

A launcher is recognised by its exact name. Programs with similar names, such as `torchrun_task` or `mpirun_x`, are not
launchers.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stepset.plan.shell_text import only_command
from stepset.plan.wrappers import wrapped_at

MPI_LAUNCHERS = frozenset(
    {"orterun", "prterun", "mpirun_rsh"}
    | {
        program + suffix
        for program in ("mpirun", "mpiexec")
        for suffix in ("", ".openmpi", ".mpich", ".mpich2", ".hydra", ".intel", ".lam", ".gforker", ".slurm")
    }
)
"""The launchers of Open MPI, MPICH, Intel MPI and MVAPICH.

The names include the suffixes that Hydra and Debian's alternatives use.
"""
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_PROGRAMS = {
    "torchrun": "torchrun",
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
    "deepspeed.pt": "deepspeed",
    "horovodrun": "horovodrun",
    "mlx.launch": "mlx.launch",
    **dict.fromkeys(MPI_LAUNCHERS, "mpirun"),
}
_SUBCOMMANDS = {
    ("tune", "run"): "tune",
    ("accelerate", "launch"): "accelerate",
    ("fabric", "run"): "fabric",
}
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_VALUED_PYTHON_OPTIONS = ("-X", "-W", "--check-hash-based-pycs")


class Launcher(NamedTuple):
    """A launcher in a command.

    Args:
        kind: the kind of the launcher. One of torchrun, tune, accelerate, deepspeed, fabric, mpirun (for every MPI
            implementation), horovodrun and mlx.launch.
        name: the launcher as written in the command, such as `mpiexec.hydra` or `python3 -m torch.distributed.run`.
        words: the words after the launcher: the launcher's options, the program and the program's arguments.
        at: the index in the command at which `words` begin. None if the launcher is in the script of `bash -c SCRIPT`.
    """

    kind: str
    name: str
    words: Sequence[str]
    at: int | None


class PythonProgram(NamedTuple):
    """A program that a Python interpreter runs.

    Args:
        kind: whether the program is a script, a module (`-m`) or the code of `-c`.
        text: the path of the script, the name of the module, or the code.
        end: the index in the command of the first word after the program. These words are the program's arguments.
    """

    kind: Literal["script", "module", "code"]
    text: str
    end: int


def is_mpi_launcher(program: str) -> bool:
    """Returns whether a program has the name of an MPI launcher, such as `mpirun` or `/opt/bin/mpiexec.hydra`."""
    return posixpath.basename(program) in MPI_LAUNCHERS


def is_python(program: str) -> bool:
    """Returns whether a program has the name of a Python interpreter, such as `python` or `/usr/bin/python3.13`."""
    return _PYTHON.fullmatch(posixpath.basename(program)) is not None


def needs_python(program: str) -> bool:
    """Returns whether the image of a program can be expected to contain Python.

    The result is True if the name of the program is the name of a Python interpreter, a launcher or a program of MLX.
    """
    name = posixpath.basename(program)
    written_in_python = {first for first, _ in _SUBCOMMANDS} | _PROGRAMS.keys() | {"mlx.distributed_config"}
    return is_python(program) or name in written_in_python or name.startswith("mlx_lm.")


def find_launcher(command: Sequence[str]) -> Launcher | None:
    """Returns the launcher that a command starts, or None if the command does not start a launcher.

    Wrappers such as `env`, `nice` or `conda run` may precede the launcher. In the script of `bash -c SCRIPT`, the
    launcher is found only if all other commands of the script are preparation, such as `cd` or `export`.

    >>> find_launcher(["env", "A=1", "python3", "-m", "torch.distributed.run", "--nnodes=1", "train.py"])
    Launcher(kind='torchrun', name='python3 -m torch.distributed.run', words=['--nnodes=1', 'train.py'], at=5)
    >>> find_launcher(["bash", "-c", "exec torchrun --nnodes=1 train.py"])
    Launcher(kind='torchrun', name='torchrun', words=['--nnodes=1', 'train.py'], at=None)
    >>> find_launcher(["torchrun_task", "--nnodes=1"])
    """
    return _at(command, wrapped_at(command))


def find_python(command: Sequence[str]) -> tuple[list[str], PythonProgram] | None:
    """Returns the program that a command runs with Python, or None if the command runs another program.

    Wrappers and shells are skipped as in `find_launcher`. The first item of the result is the command that contains
    the program. In `bash -c SCRIPT`, this is the main command of SCRIPT.

    >>> find_python(["env", "A=1", "python3", "-u", "train.py", "--lr", "1"])
    (['python3', '-u', 'train.py', '--lr', '1'], PythonProgram(kind='script', text='train.py', end=3))
    >>> find_python(["bash", "-c", "cd /work && python3 -m pkg.train"])
    (['python3', '-m', 'pkg.train'], PythonProgram(kind='module', text='pkg.train', end=3))
    >>> find_python(["./train.sh"])
    """
    words = list(command[wrapped_at(command) :])
    if not words:
        return None
    program = posixpath.basename(words[0])
    if words[0].startswith("-"):
        words.insert(0, "python3")  # `uv run -m MODULE`
    elif program.endswith(".py"):
        return words, PythonProgram("script", words[0], 1)
    elif program in SHELLS:
        text = shell_text(words[1:])
        inner = None if text is None else only_command(text)
        return find_python(inner) if inner else None
    elif not is_python(program):
        return None
    found = _run_by_python(words, 0)
    return (words, found) if found else None


def _at(command: Sequence[str], at: int) -> Launcher | None:
    """Returns the launcher at index `at` of a command, or None if this word is not a launcher."""
    if at >= len(command):
        return None
    if command[at].startswith("-"):
        found = _module(command, at - 1)  # `uv run -m MODULE`
        return found and found._replace(name=f"uv run -m {command[at + 1]}")
    program = posixpath.basename(command[at])
    if kind := _PROGRAMS.get(program):
        return Launcher(kind, program, list(command[at + 1 :]), at + 1)
    if kind := _SUBCOMMANDS.get((program, command[at + 1] if at + 1 < len(command) else "")):
        return Launcher(kind, f"{program} {command[at + 1]}", list(command[at + 2 :]), at + 2)
    if is_python(program):
        return _module(command, at)
    return _in_text(command[at + 1 :]) if program in SHELLS else None


def _module(command: Sequence[str], at: int) -> Launcher | None:
    """Returns the launcher that a Python interpreter runs. `at` is the index of the interpreter in the command."""
    program = _run_by_python(command, at)
    if program is None or program.kind == "code":
        return None
    if program.kind == "module":
        return _named(command, at, program.text, program.end)
    # In `python3 /opt/conda/bin/torchrun`, the script is the launcher, because its directory is named bin. In other
    # directories, a script with the name of a launcher may be the user's own program.
    installed = posixpath.basename(posixpath.dirname(program.text)) == "bin"
    return _at(command, program.end - 1) if installed and not is_python(program.text) else None


def _run_by_python(command: Sequence[str], at: int) -> PythonProgram | None:
    """Returns the program that a Python interpreter runs. `at` is the index of the interpreter in the command."""
    option = at + 1
    while option < len(command) and command[option].startswith("-"):
        word = command[option]
        if word in _VALUED_PYTHON_OPTIONS:
            option += 2
            continue
        if word.startswith("-m") and len(word) > 2:
            return PythonProgram("module", word[2:], option + 1)
        if (word.endswith("m") and not word.startswith("--")) or word == "--module":
            return PythonProgram("module", "".join(command[option + 1 : option + 2]), option + 2)
        if word.startswith("-c") and len(word) > 2:
            return PythonProgram("code", word[2:], option + 1)
        if word.endswith("c") and not word.startswith("--"):
            return PythonProgram("code", "".join(command[option + 1 : option + 2]), option + 2)
        option += 1
    return PythonProgram("script", command[option], option + 1) if option < len(command) else None


def _named(command: Sequence[str], at: int, module: str, words: int) -> Launcher | None:
    """Returns the launcher that the Python module `module` contains.

    Args:
        at: the index of the interpreter in `command`.
        words: the index in `command` of the first word after the module.
    """
    if module == "accelerate.commands.accelerate_cli" and "".join(command[words : words + 1]) == "launch":
        module, words = "accelerate.commands.launch", words + 1
    kind = _MODULES.get(module)
    name = f"{posixpath.basename(command[at])} -m {module}"
    return Launcher(kind, name, list(command[words:]), words) if kind else None


def _in_text(words: Sequence[str]) -> Launcher | None:
    """Returns the launcher that the script of `bash -c SCRIPT` starts. `words` are the arguments of the shell.

    Returns None if the script contains other commands that may decide whether the launcher starts.
    """
    text = shell_text(words)
    command = None if text is None else only_command(text)
    found = find_launcher(command) if command else None
    return found._replace(at=None) if found else None


def shell_text(words: Sequence[str]) -> str | None:
    """Returns the script in the arguments of a shell, such as `-c SCRIPT`. Returns None if there is no `-c`.

    The script is the first word after `-c` that is not an option. In `bash -c -e SCRIPT`, the word `-e` is an option.
    """
    at = script_at(words)
    given = words[at : at + 1]
    if not given or given[0].startswith("--") or "c" not in given[0][1:] or given[0][:1] not in ("-", "+"):
        return None
    return next((word for word in words[at + 1 :] if not word.startswith("-")), "")


def script_at(words: Sequence[str]) -> int:
    """Returns the index of the first word that is not an option in the arguments of a shell.

    If `-c` or `--` precedes this word, returns the index of `-c` or `--`.
    """
    at = 0
    while at < len(words) and words[at][:1] in ("-", "+") and words[at] != "--":
        option = words[at]
        if not option.startswith("--") and "c" in option[1:]:
            break
        at += 2 if option.endswith("o") or option in ("--rcfile", "--init-file") else 1
    return at
