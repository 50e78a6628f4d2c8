"""The job's own files, read at the edge: script and code directory.

Used before a job is run or rendered, so that everything after it is pure.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from stepset.errors import BadInputError
from stepset.plan.code import script_in_code
from stepset.spec.job import TrainingJob

CODE_LIMIT = 1024 * 1024
"""Bytes of packed code a job may ship: what fits into one ConfigMap (kubernetes v1.36 validation.MaxSecretSize)."""

_LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}


@dataclass(frozen=True)
class Sources:
    """What travels with a job.

    Args:
        base_dir: the directory the job's paths are relative to.
        code_dir: where its code lies on this machine: `code`, or the script's directory.
        script: the script's text, when it travels alone.
        archive: the packed `code` directory (tar.gz), the same bytes for the same files.
    """

    base_dir: Path
    code_dir: Path
    script: bytes | None = None
    archive: bytes | None = None


def read_sources(job: TrainingJob, base_dir: Path | None = None) -> Sources:
    """Reads the script or packs the code directory of a job.

    Args:
        job: the job.
        base_dir: what its paths are relative to; default: the current directory.

    Raises:
        BadInputError: a file is missing or unreadable, or the code is over the limit.
    """
    base = (base_dir or Path.cwd()).resolve()
    if job.code is not None:
        code_dir = base / job.code
        if not code_dir.is_dir():
            raise BadInputError(f"code: no such directory: {code_dir}; paths are relative to the job file")
        archive = _pack(code_dir)
        if job.script is not None:
            _existing(code_dir / script_in_code(job), "script")
        return Sources(base, code_dir, archive=archive)
    if job.script is not None:
        path = _existing(base / job.script, "script")
        text = path.read_bytes()
        if len(text) > CODE_LIMIT:
            raise BadInputError(f"script: {path} has {len(text)} bytes; at most {CODE_LIMIT} can be shipped")
        return Sources(base, path.parent, script=text)
    return Sources(base, base)


def _existing(path: Path, field: str) -> Path:
    if not path.is_file():
        raise BadInputError(f"{field}: no such file: {path}; paths are relative to the job file")
    return path


def _pack(directory: Path) -> bytes:
    """The directory as a tar.gz with sorted names, no times and no owners."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(p for p in directory.rglob("*") if p.is_file()):
            relative = path.relative_to(directory)
            if _LEFT_OUT.intersection(relative.parts):
                continue
            info = tarfile.TarInfo(relative.as_posix())
            info.size = path.stat().st_size
            info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            if info.size > 64 * CODE_LIMIT:
                raise _over_limit(directory, info.size, "unpacked")
            with path.open("rb") as file:
                tar.addfile(info, file)
            if plain.tell() > 64 * CODE_LIMIT:
                raise _over_limit(directory, plain.tell(), "unpacked")
    packed = gzip.compress(plain.getvalue(), mtime=0)
    if len(packed) > CODE_LIMIT:
        raise _over_limit(directory, len(packed), "packed")
    return packed


def _over_limit(directory: Path, size: int, how: str) -> BadInputError:
    return BadInputError(
        f"code: {directory} has {size} bytes {how}; at most {CODE_LIMIT} bytes packed can be shipped;"
        " leave data out, or put the code into the image"
    )
