"""The job and the code of README.md, as a new user copies them."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

TRAIN = """
import json, os, sys
print("training with", sys.argv[1:], flush=True)
if "fail" in sys.argv and os.environ["RANK"] == "3":
    raise ValueError("bad batch")
if os.environ["RANK"] == "0":
    with open(os.environ["STEPSET_RESULT_FILE"], "w") as file:
        json.dump({"world_size": int(os.environ["WORLD_SIZE"])}, file)
"""
"""A script that the README's job can start, and that fails with the argument `fail`."""


def code_after(heading: str) -> str:
    """The block of code that follows the line that starts with `heading`."""
    found = re.search(rf"^{re.escape(heading)}.*?^```\w+\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def write_job(directory: Path) -> None:
    """Writes the README's job and the script that it names."""
    directory.mkdir(parents=True, exist_ok=True)
    # Without torchrun, whose start takes longer than the whole test.
    job = code_after("## One job, every interface").replace(
        "framework: torch", "framework: {kind: torch, launcher: none}"
    )
    (directory / "digits.yaml").write_text(job.replace("{max_restarts: 1}", "{max_restarts: 0}"), encoding="utf-8")
    (directory / "train.py").write_text(TRAIN, encoding="utf-8")
