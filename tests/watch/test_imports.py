"""The modules that read a run's state import no packages that are needed only to read or render jobs.

`stepset list` would start more slowly.
"""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["pydantic", "yaml", "kubernetes", "rich"])
def test_reading_a_run_does_not_import(package: str) -> None:
    modules = (
        "stepset.watch.cluster.status, stepset.watch.cluster.router, stepset.watch.list_watch, stepset.targets.request"
    )
    code = f"import sys, {modules}; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
