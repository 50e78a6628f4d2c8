"""A wheel that a test builds, and uv, with which a run installs the wheel without internet access."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

NAME = "stepset-sample"
MODULE = "stepset_sample"

_PROJECT = f"""
[project]
name = "{NAME}"
version = "1.0"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
_ENDLESS = """
import os, signal, time

def build_wheel(*args, **kwargs):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open({marker!r}, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""


def build_wheel(directory: Path, version: str = "1.0", needs: str = "") -> Path:
    """Writes a wheel whose module MODULE has `version`, and returns its path; `needs` is a requirement of the wheel."""
    metadata = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    info = f"{MODULE}-{version}.dist-info"
    files = {
        f"{MODULE}.py": f"version = {version!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    path = directory / f"{MODULE}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def without_index(wheels: Path) -> dict[str, str]:
    """The variables with which uv installs only from a directory."""
    return {"UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}


def uv() -> Path:
    """The path of uv: on PATH, or installed by `make setup`."""
    places = f"{os.environ.get('PATH', '')}{os.pathsep}{Path(__file__).parents[1] / '.venvs/uv/bin'}"
    found = shutil.which("uv", path=places)
    if found is None:
        pytest.fail("uv is missing, which installs requirements; install uv, or run `make setup`", pytrace=False)
    return Path(found)


@contextmanager
def endless_build(directory: Path) -> Iterator[dict[str, str]]:
    """Yields the variables with which the installation of NAME builds it without end, and ignores SIGTERM.

    The build writes its process id to the file `building` in `directory`, where uv and stepset also keep their caches.
    """
    source, wheels, marker = directory / "sample", directory / "wheels", directory / "building"
    source.mkdir()
    wheels.mkdir()
    (source / "pyproject.toml").write_text(_PROJECT)
    (source / "backend.py").write_text(_ENDLESS.format(marker=str(marker)))
    (source / "PKG-INFO").write_text(f"Metadata-Version: 2.2\nName: {NAME}\nVersion: 1.0\n")
    with tarfile.open(wheels / f"{MODULE}-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, f"{MODULE}-1.0")
    try:
        yield {
            **without_index(wheels),
            "PATH": f"{uv().parent}{os.pathsep}{os.environ['PATH']}",
            "UV_CACHE_DIR": str(directory / "uv"),
            "XDG_CACHE_HOME": str(directory / "cache"),
        }
    finally:
        if marker.exists():
            with suppress(ProcessLookupError):
                os.kill(int(marker.read_text()), signal.SIGKILL)


def unfinished(directory: Path) -> list[str]:
    """The names of the environments below `directory`, whole or not, that `endless_build` has left there."""
    return [path.name for path in (directory / "cache/stepset/requirements").iterdir() if path.suffix != ".lock"]
