"""Reads and packs the files of a code directory."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from stepset.directory_trees import Cursor
from stepset.errors import BadInputError
from stepset.sources.code_files import CodeFiles, secret_problem, shown
from stepset.sources.regular_file import ChangedError, read_regular
from stepset.sources.secret_files import holds_secret

CODE_LIMIT = 1024 * 1024
"""The maximum size of a job's packed code in bytes. Kubernetes has the same limit for a ConfigMap (kubernetes v1.36
validation.MaxSecretSize)."""
UNPACKED_LIMIT = 64 * CODE_LIMIT
"""The maximum total size of the files in bytes. The size is checked before any file is read."""
LARGE_CODE = (
    "for larger code, use a volume (code: {claim: NAME, path: DIR}), an OCI artifact (code: {image: REF, path: DIR}),"
    " or the image"
)
"""Advice in an error message about code that exceeds the limit."""
_LARGEST = 3


class CodeTooLargeError(BadInputError):
    """The code of a job exceeds the size limit."""


def pack(code: CodeFiles) -> bytes:
    """Returns a tar.gz of the files. Equal files result in equal bytes, because times and owners are not stored.

    Raises:
        CodeTooLargeError: the code exceeds the limit.
        BadInputError: a file holds credentials.
        ChangedError: a file changed while it was read.
        OSError: a file cannot be read.
    """
    packed = compress(code)
    if len(packed) > CODE_LIMIT:
        raise over_limit(code, len(packed), "packed")
    return packed


def compress(code: CodeFiles) -> bytes:
    """Returns the same tar.gz as `pack`, but does not limit the packed size."""
    if code.size > UNPACKED_LIMIT:
        raise over_limit(code, code.size, "unpacked")
    plain = io.BytesIO()
    problems = []
    with (
        closing(Cursor(Path("/"))) as cursor,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, file in code.files.items():
            content = read_regular(file.path, UNPACKED_LIMIT, cursor)
            if content is None:  # the file was a regular file when the directory was listed
                raise ChangedError(str(file.path))
            mode = os.stat(file.path.name, dir_fd=cursor.fd, follow_symlinks=False).st_mode
            if holds_secret(name, content):
                problems.append(secret_problem(name, code.remedy_file, code.directory))
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755 if mode & 0o100 else 0o644
            tar.addfile(info, io.BytesIO(content))
            if plain.tell() > 2 * UNPACKED_LIMIT:  # files have become larger since the directory was listed
                raise ChangedError(str(file.path))
    if problems:
        raise BadInputError(*problems)
    return gzip.compress(plain.getvalue(), mtime=0)


def over_limit(code: CodeFiles, size: int, how: str) -> CodeTooLargeError:
    """Returns the error for code that is too large. `how` is either "packed" or "unpacked"."""
    return CodeTooLargeError(
        f"code: {code.directory} has {size} bytes {how}; at most {CODE_LIMIT} bytes packed can be shipped;"
        f" the largest files are {largest(code.largest_first())}; `stepset explain --files` lists all;"
        f" add data to {code.remedy_file}; {LARGE_CODE}"
    )


def largest(files: Iterable[tuple[str, int]]) -> str:
    """Returns the names and sizes of the first few files of a list, as text for a message.

    The caller must sort the list by size, with the largest file first.

    >>> largest([("a.bin", 2000), ("b.py", 10)])
    'a.bin (2000 bytes), b.py (10 bytes)'
    """
    return ", ".join(f"{shown(name)} ({size} bytes)" for name, size in list(files)[:_LARGEST])
