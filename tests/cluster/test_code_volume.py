"""`code: {claim: NAME}` on a cluster: the ranks run the code of a volume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepset.run_status import Phase
from tests.cluster.runs import Runs
from tests.cluster.testbed.layout import Choice

pytestmark = pytest.mark.cluster

CLAIM = "training-code"


@pytest.fixture
def code(runs: Runs, tmp_path: Path, testbed_choice: Choice) -> Iterator[Path]:
    """The directory of this machine that is the volume of the claim."""
    directory = tmp_path / "code"
    (directory / "digits/src/lib").mkdir(parents=True)
    volume = f"{runs.namespace}-code"
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    spec = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(directory)}}
    claim = {**common, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
    runs.cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec})
    manifest = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": claim}
    runs.cluster.apply(manifest, runs.namespace)
    yield directory
    runs.cluster.kubectl("delete", "pv", volume, "--wait=false")


def test_the_ranks_of_all_nodes_run_the_code_of_a_claim(runs: Runs, code: Path) -> None:
    source = code / "digits/src"
    (source / "lib/__init__.py").write_text("value = 42\n")
    text = "import os, lib\nprint('value', lib.value, os.getcwd(), os.path.exists('large'), flush=True)\n"
    (source / "train.py").write_text(text)
    with (source / "large").open("wb") as file:
        file.truncate(4 * 1024 * 1024)  # more than a ConfigMap can contain
    fields = {"script": "train.py", "code": {"claim": CLAIM, "path": "digits/src"}}
    status, listener = runs.run(num_nodes=2, **fields)
    assert status.phase is Phase.SUCCEEDED, status.failure
    assert sorted(line.text for line in listener.lines) == ["value 42 /stepset/code True"] * 2
    assert not [note for note in status.notes if note.startswith("ships")]


def test_a_missing_directory_of_the_claim_is_named(runs: Runs, code: Path) -> None:
    status, _ = runs.run(script="absent.py", code={"claim": CLAIM, "path": "digits/src"})
    assert status.phase is Phase.FAILED
    assert status.failure is not None
    assert "absent.py" in status.failure.error + "".join(status.failure.tail)
