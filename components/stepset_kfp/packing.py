"""Packs a script or a code directory as text that is part of a pipeline, and unpacks it in the step."""

from __future__ import annotations

import base64
import binascii
import io
import tarfile
from pathlib import Path

from stepset.errors import BadInputError

LIMIT = 96 * 1024
"""Maximum characters of packed code. A step gets all its inputs as one argument, which Linux limits to 128 KiB
(MAX_ARG_STRLEN, include/uapi/linux/binfmts.h)."""
ARGUMENT = 120 * 1024
"""Maximum characters of all inputs; the rest of the argument contains the locations of the outputs."""


def pack(archive: bytes, field: str, hint: str = "") -> str:
    """Returns a tar.gz as text; raises BadInputError, which names the field, if it is too large.

    `hint` is the part of the error that names what is large.
    """
    text = base64.b64encode(archive).decode()
    if len(text) > LIMIT:
        raise BadInputError(
            f"{field}: {len(text)} bytes when packed, the limit is {LIMIT};{hint} put the code into the image"
            " and use module or command, or give the path of a mounted volume"
        )
    return text


def pack_script(name: str, content: bytes) -> str:
    """Packs a script; the same content results in the same text. Raises like `pack`."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        info.mode = 0o644
        tar.addfile(info, io.BytesIO(content))
    return pack(_without_time(plain.getvalue()), "script")


def unpack(text: str, directory: Path) -> None:
    """Extracts text that `pack` returned into an existing directory; raises BadInputError for other text."""
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text, validate=True)), mode="r:gz") as tar:
            # Extraction filters came with Python 3.11.4, and Debian 12 has 3.11.2; `pack` packs regular files only.
            for member in tar.getmembers():
                if not member.isfile() or Path(member.name).is_absolute() or ".." in Path(member.name).parts:
                    raise BadInputError(f"packed: {member.name!r} is not a regular file below the code; pack it again")
                path = directory / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                path.write_bytes(source.read() if source else b"")
                path.chmod(member.mode & 0o777)
    except (binascii.Error, tarfile.TarError, EOFError, OSError) as error:
        raise BadInputError(f"packed: cannot be unpacked: {error}; compile the pipeline again") from error


def _without_time(gzipped: bytes) -> bytes:
    """Clears the time in the header of a gzip stream (RFC 1952 2.3.1: bytes 4 to 7)."""
    return gzipped[:4] + b"\0\0\0\0" + gzipped[8:]
