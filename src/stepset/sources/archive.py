"""Reads and packs the files of a code directory."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable

from stepset.errors import BadInputError
from stepset.sources.code_files import CodeFiles, secret_problem, shown
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.sources.secret_files import holds_secret

CODE_LIMIT = 1024 * 1024
"""Bytes of packed code that a job may ship: the limit of a ConfigMap (kubernetes v1.36 validation.MaxSecretSize)."""
UNPACKED_LIMIT = 64 * CODE_LIMIT
"""The maximum size of all files in bytes, checked before reading: a data set in the directory is reported at once."""
_LARGEST = 3


def pack(code: CodeFiles) -> bytes:
    """Returns the files as a tar.gz without times and owners: the same bytes for the same files.

    Raises:
        BadInputError: the code is over the limit, or a file holds credentials.
        ChangedError: a file changed while it was read.
        OSError: a file cannot be read.
    """
    packed = compress(code)
    if len(packed) > CODE_LIMIT:
        raise over_limit(code, len(packed), "packed")
    return packed


def compress(code: CodeFiles) -> bytes:
    """As `pack`, but without a limit for the packed size."""
    if code.size > UNPACKED_LIMIT:
        raise over_limit(code, code.size, "unpacked")
    plain = io.BytesIO()
    problems = []
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, file in code.files.items():
            mode = file.path.stat(follow_symlinks=False).st_mode
            content = read_regular(file.path, UNPACKED_LIMIT)
            if content is None:  # it was a regular file when the directory was listed
                raise ChangedError(str(file.path))
            if holds_secret(name, content):
                problems.append(secret_problem(name, code.remedy_file, code.directory))
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755 if mode & 0o100 else 0o644
            tar.addfile(info, io.BytesIO(content))
            if plain.tell() > 2 * UNPACKED_LIMIT:  # files have grown since the directory was listed
                raise ChangedError(str(file.path))
    if problems:
        raise BadInputError(*problems)
    return gzip.compress(plain.getvalue(), mtime=0)


def over_limit(code: CodeFiles, size: int, how: str) -> BadInputError:
    """Returns the error for code of too many bytes; `how` is packed or unpacked."""
    return BadInputError(
        f"code: {code.directory} has {size} bytes {how}; at most {CODE_LIMIT} bytes packed can be shipped;"
        f" the largest files are {largest(code.largest_first())}; `stepset explain --files` lists all;"
        f" add data to {code.remedy_file}, or put the code into the image"
    )


def largest(files: Iterable[tuple[str, int]]) -> str:
    """Returns the first files of a list that begins with the largest, with their sizes.

    >>> largest([("a.bin", 2000), ("b.py", 10)])
    'a.bin (2000 bytes), b.py (10 bytes)'
    """
    return ", ".join(f"{shown(name)} ({size} bytes)" for name, size in list(files)[:_LARGEST])
