"""Reading a run's state costs no import of what only reads or renders jobs: `stepset list` would pay for it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["pydantic", "yaml", "kubernetes", "rich"])
def test_a_run_is_read_without(package: str) -> None:
    modules = (
        "stepset.watch.cluster.status, stepset.watch.cluster.router, stepset.watch.list_watch, stepset.targets.request"
    )
    code = f"import sys, {modules}; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
