"""Prepares a pod before its command starts: the directories, the FIFO for ranks, the files and the job's code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepset.agent.config import Config
from stepset.agent.errors import ERROR_FILE, IF_POSSIBLE, setup_error
from stepset.agent.launch import hook_directory
from stepset.agent.loop import widen, write_file
from stepset.agent.signals import STOPPING


def create_fifo(config: Config, env: Mapping[str, str]) -> int:
    """Creates the directories of the agent and of the result. Creates and opens the FIFO for the lines of ranks.

    Raises:
        AgentError: a directory or the FIFO cannot be created.
    """
    result_file = env.get("STEPSET_RESULT_FILE", "")
    try:
        os.makedirs(config.dir, mode=0o700, exist_ok=True)
        path = os.path.join(config.dir, "out")
        remove(path)
        remove(os.path.join(config.dir, STOPPING))
        os.mkfifo(path, 0o600)
        # The FIFO is also opened for writing. Otherwise, a read would return end-of-file while no rank has it open.
        fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        if result_file:
            os.makedirs(os.path.dirname(result_file) or ".", exist_ok=True)
    except OSError as error:
        raise setup_error(f"cannot use {error.filename or config.dir}: {error.strerror}") from error
    widen(fifo, 1 << 20)
    return fifo


def write_hook(config: Config, get_source: Callable[[str], str | None]) -> None:
    """Writes the hook that every Python of a rank imports, and the file by which the mode `stacks` finds the agent.

    Args:
        get_source: returns the source of a module of the agent.

    Raises:
        AgentError: a file cannot be written.
    """
    try:
        for name, data in (("ranks", b""), ("agent.pid", b"%d" % os.getpid())):
            write_file(os.path.join(config.dir, name), data, os.O_NOFOLLOW)
        directory = hook_directory(config.dir)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for name, module in (("sitecustomize", "hook"), ("collectives", "collectives")):
            source = get_source(f"stepset.agent.hangs.{module}") or ""
            write_file(os.path.join(directory, f"{name}.py"), source.encode(), os.O_NOFOLLOW)
        _write_compiled(directory, get_source("stepset.agent.hangs.hook") or "")
    except OSError as error:
        raise setup_error(f"cannot write the hook in {config.dir}: {error.strerror}") from error


def _write_compiled(directory: str, source: str) -> None:
    """Writes the compiled hook for this version of Python. To compile it would take milliseconds in each process."""
    import marshal

    magic: bytes = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER  # importlib.util.MAGIC_NUMBER, but faster
    path = os.path.join(directory, "sitecustomize.py")
    about = os.stat(path)
    numbers = (0, int(about.st_mtime), about.st_size)  # PEP 552
    head = magic + b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers)
    cache = os.path.join(directory, "__pycache__")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    name = f"sitecustomize.{sys.implementation.cache_tag}.pyc"
    write_file(os.path.join(cache, name), head + marshal.dumps(compile(source, path, "exec")), os.O_NOFOLLOW)


def record_rank(config: Config, rank: int, pid: int) -> None:
    """Records the process of a rank in the file `ranks`, from which the mode `stacks` reads it."""
    if config.hang_after:
        with IF_POSSIBLE:
            path = os.path.join(config.dir, "ranks")
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(fd, "wb") as file:
                file.write(b"%d %d\n" % (rank, pid))


def put_in_place(config: Config, env: Mapping[str, str], first: bool) -> None:
    """Removes files of an earlier attempt, copies the config's files and unpacks the job's code.

    Args:
        env: the environment of the pod's command.
        first: whether this is the first pod, which also removes files outside the agent's directory.

    Raises:
        AgentError: a file cannot be copied, the entry of a file is invalid, the code cannot be unpacked, or the working
            directory does not exist.
    """
    if first:
        remove(env.get("STEPSET_RESULT_FILE", ""))
        remove(env[ERROR_FILE])
    remove_reports(config, env)
    copy_files(config.files)
    if config.code_archive:
        unpack(config.code_archive, config.code_dir)
    if config.work_dir and not os.path.isdir(config.work_dir):
        raise setup_error(f"{config.work_dir}, the working directory of the command, is not a directory")


def remove_reports(config: Config, env: Mapping[str, str]) -> None:
    """Removes the result and the file of torch's error handler from the agent's directory."""
    for path in (env.get("STEPSET_RESULT_FILE", ""), env[ERROR_FILE]):
        if os.path.dirname(path) == config.dir:
            remove(path)


def remove(path: str) -> None:
    """Removes a file, if it exists."""
    with IF_POSSIBLE:
        os.unlink(path)


def copy_files(files: Iterable[Mapping[str, str]]) -> None:
    """Copies files, and sets the modes that programs such as ssh require. An entry's `prefix` precedes the content."""
    for entry in files:
        try:
            source, path, mode = entry["source"], os.path.expanduser(entry["path"]), int(entry.get("mode", "0644"), 8)
        except (KeyError, TypeError, ValueError) as error:
            raise setup_error(f"agent's config: files: {entry!r} needs source, path and an octal mode") from error
        try:
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            with open(source, "rb") as file:
                data = entry.get("prefix", "").encode() + file.read()
            remove(path)  # a read-only copy from before a restart of the container
            write_file(path, data, os.O_EXCL)
            os.chmod(path, mode)
        except OSError as error:
            raise setup_error(f"cannot copy {source} to {path}: {error.strerror}") from error


def unpack(archive: str, directory: str) -> None:
    """Unpacks the tar.gz of the job's code."""
    import tarfile
    import zlib

    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with tarfile.open(archive, "r:gz") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(directory, filter="data")
            else:  # Some versions of Python, for example the version in Debian 12, do not have the filter.
                for member in tar.getmembers():
                    if leads_outside(member):
                        raise tarfile.TarError(f"{member.name} leads outside the directory")
                tar.extractall(directory)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise setup_error(f"cannot unpack {archive} to {directory}: {error}") from error


def leads_outside(member: Any) -> bool:
    """Returns whether the path of a tarfile.TarInfo, or its link's target, is outside the target directory."""
    places = [member.name]
    if member.issym():
        places.append(os.path.join(os.path.dirname(member.name), member.linkname))
    elif member.islnk():
        places.append(member.linkname)
    return any(os.path.normpath(place).split("/")[0] in ("", "..") for place in places)
