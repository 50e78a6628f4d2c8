"""The agent's command line: the modes `run`, `rank`, `rsh` and `stacks`.

`rank` has the options --world N, --report, --secret NAME and --secret-file FILE. The last two may be repeated. The
options of `rsh` are those of ssh.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from stepset.agent.bundle import Bundle


def usage(problem: str) -> NoReturn:
    """Prints a problem and the usage to standard error, and exits with code 2."""
    lines = (
        f"stepset agent: {problem}",
        "usage: agent.py run CONFIG.json [-- COMMAND [ARG...]]",
        "       agent.py rank --dir DIR [OPTION...] -- COMMAND [ARG...]",
        "       agent.py stacks --dir DIR [--rank N]...",
        "       agent.py rsh DIR [OPTION...] HOST COMMAND",
    )
    os.write(2, ("\n".join(lines) + "\n").encode())
    os._exit(2)


def main(argv: Sequence[str], bundle: Bundle) -> int:
    """Runs the mode that the first argument names. For the mode `run`, returns the exit code."""
    mode = argv[0] if argv else ""
    if mode == "rank":
        _rank(argv[1:])
    if mode == "rsh":
        _rsh(argv[1:])
    if mode == "stacks":
        return _stacks(argv[1:])
    if mode == "run":
        return _run(argv[1:], bundle)
    usage(f"unknown mode {mode!r}" if mode else "no mode")


def _rank(argv: Sequence[str]) -> NoReturn:
    directory, world, report = "", 0, False
    secrets: dict[str, list[str]] = {"--secret": [], "--secret-file": []}
    words = list(argv)
    while words and words[0] != "--":
        option = words.pop(0)
        if option == "--dir" and words:
            directory = words.pop(0)
        elif option == "--world" and words and words[0].isdigit():
            world = int(words.pop(0))
        elif option == "--report":
            report = True
        elif option in secrets and words:
            secrets[option].append(words.pop(0))
        else:
            usage(f"rank: unknown option {option}")
    if len(words) < 2:
        usage("rank: no program; put it after --")
    from stepset.agent.rank import run_rank
    from stepset.agent.redact import make_redactor

    redactor = make_redactor(os.environ, secrets["--secret"], secrets["--secret-file"])
    run_rank(words[1:], directory, world, report, redactor)


def _rsh(argv: Sequence[str]) -> NoReturn:
    words = list(argv)
    directory = words.pop(0) if words else ""
    while words and words[0].startswith("-"):
        if words.pop(0) in ("-o", "-p", "-l", "-i", "-F") and words:
            words.pop(0)
    if len(words) < 2:
        usage("rsh: give a directory, a host and a command")
    from stepset.agent.rsh import run_rsh

    run_rsh(directory, words[0], words[1:])


def _stacks(argv: Sequence[str]) -> int:
    directory, wanted = "", []
    words = list(argv)
    while words:
        option = words.pop(0)
        if option == "--dir" and words:
            directory = words.pop(0)
        elif option == "--rank" and words and words[0].isdigit():
            wanted.append(int(words.pop(0)))
        else:
            usage(f"stacks: unknown option {option}")
    if not directory:
        usage("stacks: no directory; add --dir DIR")
    import json

    from stepset.agent.hangs.pod_ranks import stacks_document

    text = json.dumps(stacks_document(os.path.abspath(directory), wanted)).encode() + b"\n"
    while text:
        text = text[os.write(1, text) :]
    return 0


def _run(argv: Sequence[str], bundle: Bundle) -> int:
    if not argv or (len(argv) > 1 and argv[1] != "--"):
        usage("run: give a config, then -- and the command")
    from stepset.agent.config import read_config
    from stepset.agent.errors import AgentError, setup_error
    from stepset.agent.events import failure_of_agent, long_event
    from stepset.agent.pod import Pod

    for fd in range(3):  # Opens each standard stream that is closed, so that no pipe can get the stream's number.
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    command = list(argv[2:])
    try:
        config = read_config(argv[0])
        if not command and not config.serve:
            raise setup_error("no command to run; put it after --, or use an image that has one")
        if command and config.serve:
            raise setup_error("agent's config: serve takes no command")
    except AgentError as error:
        os.write(1, long_event("failed", failure_of_agent(error)))
        return error.code
    return Pod(config, command, os.environ, bundle).run()
