"""A run whose ranks have joined no process group gets a note; one with any process group gets none."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepset
from stepset.run_status import Phase

pytestmark = [pytest.mark.frameworks, pytest.mark.local]

WAIT = "import time; time.sleep(8)\n"
GLOO = "import torch.distributed as dist\ndist.init_process_group('gloo'{})\ndist.barrier()\n"
FILE = (
    "import os\n"
    + GLOO.format(", init_method='file://' + os.getcwd() + '/group', rank=int(os.environ['RANK']), world_size=2")
    + WAIT
)
SCRIPTS = {
    "no group": "import torch\n" + WAIT,
    "Fabric without the size of the world": "from lightning.fabric import Fabric\nFabric().launch()\n" + WAIT,
    "a group to the end": GLOO.format("") + WAIT,
    "a group that is left at once": GLOO.format("") + "dist.destroy_process_group()\n" + WAIT,
    "a group of a file": FILE,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_only_ranks_without_a_process_group_are_noted(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(script)
    status = stepset.run("train.py", num_nodes=2)
    assert status.phase is Phase.SUCCEEDED
    alone = "init_process_group" not in script
    assert any("no rank joined a process group" in note for note in status.notes) == alone, status.notes
