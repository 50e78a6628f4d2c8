"""Packs code for a pipeline, and unpacks the code in the step.

A script is packed in a tar.gz archive. An archive is converted to a string that can be an input of a task.
"""

from __future__ import annotations

import base64
import io
import tarfile
import zlib
from pathlib import Path

from stepset.errors import BadInputError
from stepset.functions.extract import extract


def as_text(archive: bytes) -> str:
    """Converts a tar.gz archive to a string that can be an input of a task."""
    return base64.b64encode(archive).decode()


def from_text(text: str) -> bytes:
    """Converts the result of `as_text` to an archive. Raises BadInputError if the string is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise BadInputError(f"packed_code: cannot be unpacked: {error}; compile the pipeline again") from error


def script_archive(name: str, content: bytes) -> bytes:
    """Returns a tar.gz archive with one script. The archive has no timestamps, so equal scripts give equal archives."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        info.mode = 0o644
        tar.addfile(info, io.BytesIO(content))
    gzipped = plain.getvalue()
    return gzipped[:4] + b"\0\0\0\0" + gzipped[8:]  # without the time in the header (RFC 1952 section 2.3.1)


def unpack(archive: bytes, directory: Path) -> None:
    """Extracts an archive into an existing directory.

    Raises BadInputError if the archive is damaged, or contains anything other than regular files.
    """
    try:
        extract(archive, str(directory))
    except (ValueError, zlib.error, tarfile.TarError, EOFError, OSError) as error:
        raise BadInputError(f"packed_code: cannot be unpacked: {error}; compile the pipeline again") from error
