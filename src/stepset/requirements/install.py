"""Installs a job's Python requirements with uv, and then runs a command that can import them.

    install.py {"requirements": [...], "python": ">=3.9", "lifeline": false} ROOT [-- COMMAND [ARG...]]

The requirements that are missing in the running Python are installed into a directory in ROOT. The name of the
directory is derived from the requirements and the installed packages. The environment of Python itself is not changed.
If several processes need the same directory, one process installs the requirements, and the other processes wait.
Without COMMAND, the program prints the path of the directory, or an empty line if nothing is missing.

One line on standard error states what is installed. The last line on standard error contains the error, if any. The
exit code after an error is 72 if another attempt would fail in the same way, and 73 otherwise. The agent uses the same
exit codes for Rejected and Infrastructure.

At SIGTERM or SIGINT, the program stops the installation and deletes the files of the installation. The exit code is
then 130. With "lifeline", the program sends SIGTERM to its process group when its standard input ends. The group
contains uv and the build backends that uv starts. Therefore the installation also stops if the process that started it
is killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from typing import Any

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*([<>=!~][^;\[@]*)?")
_SPECIFIER = re.compile(r"\s*(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")
_RELEASE = re.compile(r"(\d+(?:\.\d+)*)(?:\+.*)?")
# Matches a package in the output of uv. The package comes from an index or a URL. Older releases of uv write the URL
# after the version of the package.
_PLANNED = re.compile(
    r"^ \+ (?P<name>[A-Za-z0-9._-]+)(?:==(?P<version>\S+)(?: \(from (?P<from>.+)\))?| @ (?P<url>\S+))$", re.MULTILINE
)
_NOTHING = "Would make no changes"
# The texts that uv 0.13 prints if an index or a disk fails. After such a failure, another attempt may succeed.
_TRANSIENT = re.compile(r"error sending request|Request failed after \d+ retr|HTTP status server error|os error 28")
# The URL of an index may contain a password or, in its path, a token. uv replaces only passwords in its output.
_URL = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)(?:[^\s/?#]*@)?([^\s/?#@`\"'<>()]+)([/?#][^\s`\"<>]*)?")
_LIMIT = 1000
REJECTED = 72
INFRASTRUCTURE = 73
_KINDS = {REJECTED: "Rejected", INFRASTRUCTURE: "Infrastructure"}
INTERRUPTED = 130


class RequirementsError(Exception):
    """The requirements cannot be met.

    Args:
        message: one line that states the problem.
        code: the exit code of the program.
    """

    def __init__(self, message: str, code: int = REJECTED) -> None:
        super().__init__(message)
        self.code = code


def meets(version: str, specifiers: str) -> bool | None:
    """Returns whether a version meets specifiers such as `>=3.9,<4`.

    Returns None if this program cannot parse the version or a specifier.
    """
    release = _RELEASE.fullmatch(version)
    for each in specifiers.split(","):
        match = _SPECIFIER.fullmatch(each)
        if not match or not release:
            return None
        operator, text, prefix = match.groups()
        have, want = _numbers(release.group(1)), _numbers(text)
        if prefix or operator == "~=":
            width = len(want) if prefix else len(want) - 1
            same = have[:width] == want[:width]
            good = same if operator == "==" else not same if operator == "!=" else same and have >= want
        else:
            size = max(len(have), len(want))
            have, want = (row + [0] * (size - len(row)) for row in (have, want))
            good = {
                "==": have == want,
                "!=": have != want,
                "<=": have <= want,
                ">=": have >= want,
                "<": have < want,
                ">": have > want,
            }[operator]
        if not good:
            return False
    return True


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


def installed(requirement: str) -> bool:
    """Returns whether a requirement is already met.

    Also returns False if this program cannot parse the requirement or the installed version.
    """
    from importlib.metadata import PackageNotFoundError, version

    match = _REQUIREMENT.fullmatch(requirement.strip())
    if not match:
        return False
    try:
        have = version(match.group(1))
    except PackageNotFoundError:
        return False
    return not match.group(2) or bool(meets(have, match.group(2)))


def install(requirements: list[str], root: str) -> str:
    """Installs the missing requirements in a subdirectory of `root`.

    Returns the path of the subdirectory, or "" if nothing is missing.
    """
    missing = [each for each in requirements if not installed(each)]
    if not missing:
        return ""
    place = os.path.join(root, _key(requirements))
    if os.path.isdir(place):
        return place
    uv = _uv(missing)
    try:
        os.makedirs(root, exist_ok=True)
        with open(f"{place}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return place if os.path.isdir(place) or _installed_by(uv, requirements, place) else ""
    except OSError as error:
        raise RequirementsError(f"cannot write {place}: {error.strerror}", INFRASTRUCTURE) from error


def _installed_by(uv: list[str], requirements: list[str], place: str) -> bool:
    """Installs the missing requirements into `place`.

    Returns False if nothing is missing. The caller must have locked `place`.
    """
    planned = _run([*uv, "--dry-run", "--break-system-packages", "--python", sys.executable, *requirements])
    rows = [_planned_row(match) for match in _PLANNED.finditer(planned)]
    if not rows:
        if _NOTHING not in planned:
            raise RequirementsError(f"the plan of uv cannot be read: {_one_line(planned)}; use another version of uv")
        return False
    print(f"requirements: uv installs {', '.join(rows)}", file=sys.stderr, flush=True)
    new = f"{place}.new"
    _delete(new)  # a killed process may have left this directory behind
    try:
        _run([*uv, "--no-deps", "--python", sys.executable, "--target", new, *rows])
        os.rename(new, place)
    finally:
        _delete(new)
    return True


def _delete(directory: str) -> None:
    # A package can contain deep directories. shutil.rmtree before Python 3.13 is recursive, and cannot delete them.
    if os.path.isdir(directory):
        subprocess.call(["rm", "-rf", directory], stderr=subprocess.DEVNULL)


def _planned_row(match: Any) -> str:
    url = match.group("from") or match.group("url")
    return f"{match.group('name')} @ {url}" if url else f"{match.group('name')}=={match.group('version')}"


def _key(requirements: list[str]) -> str:
    site = sysconfig.get_path("purelib")
    changed = os.stat(site).st_mtime_ns if os.path.isdir(site) else 0
    return hashlib.sha256(json.dumps([sys.executable, sys.version, changed, requirements]).encode()).hexdigest()[:32]


def _uv(missing: list[str]) -> list[str]:
    from importlib.util import find_spec

    found = shutil.which("uv")
    if not found and not find_spec("uv"):
        raise RequirementsError(
            f"{sys.executable} lacks {_listed(missing)}, and uv is missing, which installs packages; install uv (for"
            " example `pip install uv`; for pods in the image), or the packages"
        )
    return [*([found] if found else [sys.executable, "-m", "uv"]), "pip", "install", "--color", "never"]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise RequirementsError(f"uv cannot be started: {error.strerror}; install uv again") from error
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        code = INFRASTRUCTURE if done.returncode < 0 or _TRANSIENT.search(text) else REJECTED
        raise RequirementsError(f"uv cannot install them: {_one_line(text)}", code)
    return text


def _one_line(text: str) -> str:
    """Returns the error in uv's output, without the text before the error. Of each URL, keeps scheme, host and port."""
    at = min((found for found in map(text.find, ("error:", "\u00d7")) if found >= 0), default=0)
    return " ".join(_URL.sub(_host_only, text[at:]).split())[:_LIMIT]


def _host_only(match: Any) -> str:
    scheme, host, rest = match.groups("")
    path = rest.rstrip("/)].,:;'")
    return f"{scheme}{host}/***{rest[len(path) :].lstrip('/')}" if path else f"{scheme}{host}{rest}"


def prepared(given: dict[str, Any], root: str) -> str:
    """Returns the directory of the installed requirements. Raises RequirementsError if they cannot be met."""
    version = ".".join(map(str, sys.version_info[:3]))
    if given.get("python") and not meets(version, given["python"]):
        raise RequirementsError(f"the script requires Python {given['python']}, and {sys.executable} is {version}")
    return install(given["requirements"], root)


def _stop(number: int, frame: object) -> None:
    """Stops the installation. Further signals do not interrupt the deletion of its files."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_stdin() -> None:
    """Waits until standard input ends, and then stops the process group."""
    while os.read(0, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGTERM)


def main(argv: list[str]) -> int:
    """Runs the program, and returns its exit code."""
    given, root, command = json.loads(argv[0]), argv[1], argv[3:]
    if command:  # in a pod, this process has PID 1, and the kernel ignores SIGTERM to PID 1 if there is no handler
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
        os.environ.setdefault("UV_CACHE_DIR", os.path.join(root, "cache"))
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
    if given.get("lifeline"):
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        place = prepared(given, root)
    except RequirementsError as error:
        text = f"requirements: {error}"
        print(text, file=sys.stderr, flush=True)
        if command and os.path.exists("/dev/termination-log"):
            failed = {"kind": _KINDS[error.code], "exit_code": error.code, "error": text, "at": time.time()}
            with open("/dev/termination-log", "w") as log:
                json.dump({"stepset": {"failed": failed}}, log)
        return error.code
    except KeyboardInterrupt:
        if given.get("lifeline"):  # a build backend may ignore SIGTERM
            os.killpg(os.getpgrp(), signal.SIGKILL)
        return INTERRUPTED
    if not command:
        print(place)
        return 0
    if place:
        for name, value in (("PYTHONPATH", place), ("PATH", os.path.join(place, "bin"))):
            os.environ[name] = os.pathsep.join(filter(None, (value, os.environ.get(name))))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
