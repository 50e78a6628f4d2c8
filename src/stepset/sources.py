"""The job's own files: script and code directory, read before the job is run or rendered."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepset.errors import BadInputError
from stepset.plan.code import script_in_code
from stepset.spec.job import TrainingJob

CODE_LIMIT = 1024 * 1024
"""Bytes of packed code that a job may ship: the limit of a ConfigMap (kubernetes v1.36 validation.MaxSecretSize)."""

_UNPACKED_LIMIT = 64 * CODE_LIMIT  # so that a forgotten data set is reported before it is packed
_LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}


@dataclass(frozen=True)
class Sources:
    """The files that are shipped with a job.

    Args:
        base_dir: the directory the job's paths are relative to.
        code_dir: the code's directory on this machine: `code`, or the script's directory.
        script: the script's text, if it is shipped alone.
        archive: the packed `code` directory (tar.gz), the same bytes for the same files.
    """

    base_dir: Path
    code_dir: Path
    script: bytes | None = None
    archive: bytes | None = None


def read_sources(job: TrainingJob, base_dir: Path | None = None) -> Sources:
    """Reads the script or packs the code directory of a job.

    Args:
        base_dir: the directory that the job's paths are relative to; default: the current directory.

    Raises:
        BadInputError: a file is missing or unreadable, or the code is over the limit.
    """
    base = (base_dir or Path.cwd()).resolve()
    if job.code is not None:
        return _read_code(job, base, base / job.code)
    if job.script is not None:
        path = base / job.script
        with _located_errors("script", path):
            if not path.is_file():
                raise _missing("script", "file", path)
            text = path.read_bytes()
        _check_size("script", str(path), len(text))
        return Sources(base, path.parent, script=text)
    if job.function is not None:
        _check_size("function", "the program", len(job.function.encode()))
    return Sources(base, base)


def _read_code(job: TrainingJob, base: Path, directory: Path) -> Sources:
    with _located_errors("code", directory):
        if not directory.is_dir():
            raise _missing("code", "directory", directory)
        files = _files(directory)
        archive = _pack(directory, files)
    if job.script is not None and (script := script_in_code(job)) not in files:
        with _located_errors("script", directory / script):
            if not (directory / script).is_file():
                raise _missing("script", "file", directory / script)
        raise BadInputError(
            f"script: {job.script} is not among the files of code that are shipped ({directory});"
            " give a path inside it, or leave code out"
        )
    return Sources(base, directory, archive=archive)


def _missing(field: str, what: str, path: Path) -> BadInputError:
    return BadInputError(f"{field}: no such {what}: {path}; paths are relative to the job file")


@contextmanager
def _located_errors(field: str, path: Path) -> Iterator[None]:
    """Converts an OSError into a BadInputError that names the job file's field."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise BadInputError(
            f"{field}: cannot read {where}: {error.strerror or error}; check the path and its permissions"
        ) from error


def _check_size(field: str, what: str, size: int) -> None:
    if size > CODE_LIMIT:
        raise BadInputError(f"{field}: {what} has {size} bytes; at most {CODE_LIMIT} can be shipped")


def _files(directory: Path) -> dict[str, Path]:
    """Returns path within the archive -> file, sorted, without directories that are never code.

    Links are followed, because their targets do not exist in the pods; broken and circular links are omitted.
    """
    found: dict[str, Path] = {}

    def collect(folder: Path, above: frozenset[Path]) -> None:
        real = folder.resolve()
        if real in above:
            return
        for path in folder.iterdir():
            if path.is_dir():
                if path.name not in _LEFT_OUT:
                    collect(path, above | {real})
            elif path.is_file():  # no sockets, no pipes
                found[path.relative_to(directory).as_posix()] = path

    collect(directory, frozenset())
    return dict(sorted(found.items()))


def _pack(directory: Path, files: dict[str, Path]) -> bytes:
    """Packs the files as a tar.gz without times and owners."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in files.items():
            info = tarfile.TarInfo(name)
            status = path.stat()
            info.size = status.st_size
            info.mode = 0o755 if status.st_mode & 0o100 else 0o644
            if plain.tell() + info.size > _UNPACKED_LIMIT:
                raise _over_limit(directory, plain.tell() + info.size, "unpacked")
            with path.open("rb") as file:
                tar.addfile(info, file)
    packed = gzip.compress(plain.getvalue(), mtime=0)
    if len(packed) > CODE_LIMIT:
        raise _over_limit(directory, len(packed), "packed")
    return packed


def _over_limit(directory: Path, size: int, how: str) -> BadInputError:
    return BadInputError(
        f"code: {directory} has {size} bytes {how}; at most {CODE_LIMIT} bytes packed can be shipped;"
        " leave data out, or put the code into the image"
    )
