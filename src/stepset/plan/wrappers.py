"""Programs that run another command, such as `env`, `nice` and `conda run`, and a function that skips them.

Sources: coreutils 9.7, util-linux 2.41, numactl 2.0.19, sudo 1.9, conda 25.5, micromamba 2.3, pixi 0.50, uv 0.8, Poetry
2.1, Apptainer 1.4, Nsight Systems 2025.3, perf 6.12, strace 6.15, and their manuals.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
"""Matches an assignment before a command, such as `A=1` in `env A=1 ./a.out`."""


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """The syntax of a wrapper, that is, of the words between the wrapper and the wrapped command.

    Args:
        valued: the options whose value is the next word. All other options have no value, or have the form
            `--name=value`. None if the value of every option is the next word.
        words: the number of words that the wrapper expects before the command, such as a subcommand. Options are not
            counted.
        assignments: whether assignments `NAME=VALUE` may precede the command.
        module: whether `-m MODULE` is allowed in place of the command.
    """

    valued: frozenset[str] | None
    words: int
    assignments: bool = False
    module: bool = False


def _wrapper(valued: str = "", words: int = 0, *, assignments: bool = False, module: bool = False) -> _Wrapper:
    return _Wrapper(frozenset(valued.split()), words, assignments, module)


_CONTAINER = _wrapper(
    "-B --bind --env --env-file -H --home --pwd --cwd -W --workdir -o --overlay -S --scratch --app --add-caps"
    " --drop-caps --apply-cgroups --hostname --mount --network --network-args --security --dns --fusemount --cpus"
    " --cpu-shares --cpuset-cpus --cpuset-mems --memory --memory-reservation --memory-swap --pids-limit --pem-path",
    words=2,
)
_CONDA = _wrapper("-n --name -p --prefix --cwd", words=1)
_WRAPPERS = {
    "env": _wrapper("-u --unset -C --chdir -S --split-string -a --argv0", assignments=True),
    "time": _wrapper("-f --format -o --output"),
    "nice": _wrapper("-n --adjustment"),
    "nohup": _wrapper(),
    "timeout": _wrapper("-k --kill-after -s --signal", words=1),
    "stdbuf": _wrapper("-i --input -o --output -e --error"),
    "numactl": _wrapper(
        "-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many -m --membind -N --cpunodebind -C"
        " --physcpubind"
    ),
    "taskset": _wrapper(words=1),
    "setsid": _wrapper(),
    "ionice": _wrapper("-c --class -n --classdata"),
    "chrt": _wrapper("-T --sched-runtime -P --sched-period -D --sched-deadline", words=1),
    "sudo": _wrapper(
        "-u --user -g --group -h --host -p --prompt -C --close-from -T --command-timeout -U --other-user -r --role -t"
        " --type -D --chdir -R --chroot",
        assignments=True,
    ),
    "gosu": _wrapper(words=1),
    "su-exec": _wrapper(words=1),
    "setpriv": _wrapper(
        "--reuid --regid --ruid --rgid --euid --egid --groups --inh-caps --ambient-caps --bounding-set --securebits"
        " --pdeathsig --selinux-label --apparmor-profile"
    ),
    "tini": _wrapper("-p -e"),
    "dumb-init": _wrapper("-r --rewrite"),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _wrapper("-n --name -p --prefix --cwd -r --root-prefix -a --attach -e --env --label", words=1),
    "pixi": _wrapper("-e --environment -m --manifest-path -w --workspace --color --concurrent-downloads", words=1),
    "uv": _wrapper(
        "--extra --no-extra --group --no-group --only-group --env-file --with --with-editable --with-requirements -w"
        " --package -p --python --index --default-index -i --index-url --extra-index-url -f --find-links"
        " --index-strategy --keyring-provider -P --upgrade-package --resolution --prerelease --fork-strategy"
        " --exclude-newer --link-mode --reinstall-package -C --config-setting --no-build-package --no-binary-package"
        " --no-build-isolation-package --refresh-package --cache-dir --python-preference --python-platform --color"
        " --directory --project --config-file --allow-insecure-host",
        words=1,
        module=True,
    ),
    "poetry": _wrapper("-C --directory -P --project", words=1),
    "singularity": _CONTAINER,
    "apptainer": _CONTAINER,
    "nsys": _Wrapper(None, words=1),
    "perf": _wrapper(
        "-e --event -o --output -F --freq -c --count -C --cpu -r --repeat -I --interval-print --call-graph -D --delay",
        words=1,
    ),
    "strace": _wrapper("-a -b -e -E -I -o -O -p -P -s -S -u -X"),
    "gdb": _wrapper("-ex -eval-command -x -command -ix -iex -cd -d -directory"),
    "valgrind": _wrapper(),
    "xvfb-run": _wrapper(
        "-e --error-file -f --auth-file -n --server-num -p --xauth-protocol -s --server-args -w --wait"
    ),
}


def wrapped_at(command: Sequence[str]) -> int:
    """Skips the wrappers at the start of a command, and returns the index of the program after the wrappers.

    If there are no wrappers, the function returns 0. If no program follows the wrappers, the function returns
    `len(command)`. For `uv run -m MODULE`, the function returns the index of `-m`.

    >>> wrapped_at(["env", "A=1", "conda", "run", "-n", "deepspeed", "torchrun", "train.py"])
    6
    >>> wrapped_at(["./a.out"])
    0
    """
    at = 0
    while at < len(command) and (wrapper := _WRAPPERS.get(posixpath.basename(command[at]))):
        at = _behind(command, at + 1, wrapper)
    return at


def _behind(command: Sequence[str], at: int, wrapper: _Wrapper) -> int:
    """Returns the index of the command after one wrapper. `at` is the index of the first word after the wrapper."""
    words, options = wrapper.words, True
    while at < len(command):
        word = command[at]
        if options and word == "--":
            options = False
        elif options and wrapper.module and word in ("-m", "--module"):
            return at
        elif options and word.startswith("-"):
            at += "=" not in word and (wrapper.valued is None or word in wrapper.valued)
        elif words:
            words -= 1
        elif not (wrapper.assignments and ASSIGNMENT.fullmatch(word)):
            return at
        at += 1
    return at
