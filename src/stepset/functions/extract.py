"""Extracts an archive of code.

`stepset.functions.module` copies the source of `extract` into programs. Therefore the imports of `extract` are inside
the function. The agent has its own function (`stepset.agent.setup.unpack`), because the agent imports only modules of
the standard library.
"""

from __future__ import annotations


def extract(archive: bytes, directory: str) -> None:
    """Extracts a tar archive to an existing directory. The archive may be compressed.

    Raises:
        tarfile.TarError: the archive is damaged, or a member is not a regular file inside the directory.
    """
    import io
    import os
    import tarfile

    # Python 3.12 and 3.13 warn if no filter is given. Python 3.11 of Debian 12 has no filters. Therefore this function
    # also checks the members.
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            if not member.isfile() or os.path.normpath(member.name).split("/")[0] in ("", ".."):
                raise tarfile.TarError(f"{member.name!r} is not a regular file inside the directory")
            member.mode &= 0o755
        tar.extractall(directory, **options)  # type: ignore[arg-type]  # mypy does not check unpacked keywords
