"""docs/kfp.md: the complete pipeline runs on this machine, and its condition selects whether the model is published."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.code_blocks import ROOT, blocks

pytestmark = pytest.mark.local

RUN = """\
import os, tempfile
from kfp import local

workspace = tempfile.mkdtemp(dir=os.getcwd())
local.init(local.SubprocessRunner(use_venv=False), pipeline_root="out", workspace_root=workspace)
from pipeline import means

means(minimum=9.0)
"""


@pytest.mark.parametrize(
    ("command", "published"),
    [(["-m", "pytest", "test_pipeline.py"], True), (["run.py"], False)],
    ids=["test", "condition"],
)
def test_the_complete_pipeline_runs(tmp_path: Path, home: Path, command: list[str], published: bool) -> None:
    files = {block.file: block.text for block in blocks(ROOT / "docs/kfp.md") if block.file}
    assert set(files) == {"train.py", "pipeline.py", "test_pipeline.py"}
    for name, text in {**files, "run.py": RUN}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    # The test of the page passes only if the model is published. It reads all lines of the steps.
    assert ("1 passed" in printed) == published, printed
    assert "published: " not in printed, printed
