"""A directory that may only be read. The journey of a pipeline author needs KFP's environment (`make setup-kfp`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("kfp") is None:
    collect_ignore = ["test_kfp_author.py"]

_MOUNTED = 'mount --bind . "$PWD" && mount -o remount,ro,bind "$PWD" && cd "$PWD" && exec "$@"'


@pytest.fixture
def read_only(place: Path) -> Iterator[tuple[str, ...]]:
    """The words that start a command which cannot write to `place`, its current directory.

    Root may write to any directory, so root gets a read-only mount of it in a mount namespace.
    """
    if os.geteuid() != 0:
        place.chmod(0o500)
        yield ()
        place.chmod(0o700)
        return
    words = ("unshare", "--mount", "sh", "-c", _MOUNTED, "sh")
    if not shutil.which("unshare") or subprocess.run([*words, "true"], cwd=place, capture_output=True).returncode:
        pytest.skip("root may write to any directory, and this machine has no mount namespaces (unshare)")
    yield words
