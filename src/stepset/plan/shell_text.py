"""Finds the main command in the script of `bash -c SCRIPT`.

All other commands of the script must be preparation, such as `cd` or `pip install`.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

from stepset.plan.wrappers import ASSIGNMENT

_LONGEST = 10_000
"""The maximum number of characters of a script. Longer scripts are not examined."""
_OPERATORS = ";&|<>()`\n"
_SUBSTITUTED = re.compile(r"\$\(\([^()`]*\)\)|\$\([^()`]*\)")
"""Matches arithmetic such as `$((2*4))`, commands such as `$(hostname)`, and Kubernetes' references `$(NAME)`."""
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n'\"]*$", re.MULTILINE)
_PREPARATION = frozenset({
    "cd", "pushd", "popd", "export", "unset", "set", "shopt", "source", ".", "ulimit", "umask", "trap", "eval", "echo",
    "printf", "module", "ml", "mkdir", "rm", "cp", "mv", "ln", "ls", "cat", "pwd", "chmod", "touch", "hostname", "date",
    "sleep", "wait", "exit", "true", ":", "which", "nvidia-smi", "rocm-smi", "ibv_devinfo", "pip", "pip3", "apt",
    "apt-get", "git", "wget", "curl", "tar", "unzip", "hf", "huggingface-cli", "wandb",
})  # fmt: skip
_SUBCOMMANDS = {"conda": "run", "mamba": "run", "micromamba": "run", "uv": "run"}
"""A mapping from a program to a subcommand. The program is preparation unless it is run with this subcommand."""


def only_command(text: str) -> list[str] | None:
    """Returns the words of the main command in a script, without `exec` and without assignments before the command.

    The main command is the only command that is not preparation. Returns None if there is no main command, or more than
    one main command. Also returns None if the script is not a list of simple commands, for example if it contains
    conditions, loops or functions. In the returned words, each `$` stands for a value that only the shell can
    determine.

    >>> only_command("set -e; cd /work && OMP_NUM_THREADS=8 torchrun --nnodes=$(NODES) train.py | tee log")
    ['torchrun', '--nnodes=$', 'train.py']
    >>> only_command("if true; then torchrun train.py; fi")
    """
    if len(text) > _LONGEST:
        return None
    found = None
    try:
        for words, decides in _commands(_COMMENT.sub("", _SUBSTITUTED.sub("$", text.replace("\\\n", " ")))):
            command = _without_assignments(words)
            if command and not _prepares(command):
                if found is not None:
                    return None
                found = command
            elif decides:
                return None
    except ValueError:
        return None
    return found


def _commands(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yields the commands of a script. Raises ValueError if the script is not a list of simple commands.

    Each yielded pair contains the words of a command, and whether the command contains `||`. The words end at the
    first redirection, pipe or `||`.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    redirected = decides = False
    for token in lexer:
        operator = token.strip("\n")
        if not token or token.strip(_OPERATORS):
            if not redirected:
                words.append(token)
        elif operator in ("", ";", "&&"):
            yield words, decides
            words, redirected, decides = [], False, False
        elif operator == "&" or "<<" in operator or operator.strip("<>&|"):
            raise ValueError(token)
        else:
            redirected, decides = True, decides or operator == "||"
    yield words, decides


def _without_assignments(words: list[str]) -> list[str]:
    at = next((at for at, word in enumerate(words) if not ASSIGNMENT.fullmatch(word)), len(words))
    return words[at + 1 :] if words[at : at + 1] == ["exec"] else words[at:]


def _prepares(command: list[str]) -> bool:
    """Returns whether a command is preparation for other commands."""
    program, first = posixpath.basename(command[0]), command[1] if len(command) > 1 else ""
    if program in _SUBCOMMANDS:
        return first != _SUBCOMMANDS[program]
    return program in _PREPARATION or (program.startswith("python") and command[1:3] == ["-m", "pip"])
