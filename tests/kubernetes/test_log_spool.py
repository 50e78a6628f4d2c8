"""Many logs are merged through temporary files; a full disk is reported with a remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SPOOLING = """
import asyncio
import sys
from stepset.backends.kubernetes.logs.merge import in_groups
from stepset.errors import InfrastructureError

async def log(count):
    yield [b"%06d" % n for n in range(count)], [b"x" * 100] * count

async def total(count):
    return sum([len(rows) async for _, rows in in_groups([log(count) for _ in range(3)], 2)])

try:
    print(asyncio.run(total(int(sys.argv[1]))))
except InfrastructureError as error:
    print(error)
"""


def spooled(directory: Path, rows: int) -> str:
    """Returns the result of merging three logs of `rows` rows, two at a time, with 1 MiB for temporary files."""
    on_a_small_disk = f'mount -t tmpfs -o size=1m none {directory} && TMPDIR={directory} exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", on_a_small_disk, "sh", sys.executable, "-c", SPOOLING, str(rows)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("mounting a small disk requires root")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_many_logs_are_merged_through_files(tmp_path: Path) -> None:
    assert spooled(tmp_path, 1000) == "3000"


def test_a_full_disk_is_reported_with_a_remedy(tmp_path: Path) -> None:
    assert spooled(tmp_path, 10_000) == (
        f"{tmp_path}: No space left on device; the logs of 3 pods are sorted in temporary files there: set TMPDIR to a"
        " directory with more space, or select fewer ranks"
    )
