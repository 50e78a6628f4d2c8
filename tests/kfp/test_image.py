"""The steps' own image in pods, as a cluster with hard rules runs it: nobody's user, nothing to write to but /tmp.

It holds what no environment here can: KFP's executor beside the newest kubernetes package.
"""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from stepset_kfp.training.distributed_train.component import IMAGE
from tests.cluster.testbed import node
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice
from tests.kfp.steps import WAITS, Steps

pytestmark = pytest.mark.cluster

ARCHIVE = Path(__file__).resolve().parents[2] / ".cache/kfp-image.tar"
WHAT_IS_INSIDE = """\
import importlib.metadata as installed, os, pathlib, sys
print("uid", os.getuid(), *(f"{name}=={installed.version(name)}" for name in ("stepset", "kfp", "kubernetes")))
try:
    pathlib.Path("/usr/mark").touch()
except OSError as error:
    print(error)
from stepset_kfp.step.preflight import main
sys.argv = ["preflight"]
sys.exit(main())
"""


@pytest.fixture(scope="module")
def image(cluster: Cluster, testbed_choice: Choice) -> str:
    """The image, on every node."""
    if not ARCHIVE.exists():
        pytest.skip("there is no image: run tools/kfp-image")
    for worker in testbed_choice.worker_nodes:
        node.load_images(worker, ARCHIVE)
    return IMAGE


@pytest.fixture
def steps_in_it(steps: Steps, image: str) -> Steps:
    """Steps that run in it; they may write to the directory that stands in for KFP's storage."""
    steps.shared.chmod(0o777)
    steps.image = image
    return steps


def test_it_holds_what_a_step_needs_and_runs_as_nobody_without_writing(steps_in_it: Steps) -> None:
    pod = steps_in_it.start_program(WHAT_IS_INSIDE)
    assert steps_in_it.wait(pod) == 0, steps_in_it.log(pod)
    log = steps_in_it.log(pod)
    assert f"uid 65532 stepset=={version('stepset')} kfp==2.17.0 kubernetes==37." in log
    assert "Read-only file system" in log
    assert f"everything is allowed in namespace {steps_in_it.namespace}" in log


def test_a_step_in_it_trains_and_leaves_its_outputs(steps_in_it: Steps) -> None:
    home = steps_in_it.shared / "checkpoints"
    pod = steps_in_it.start(WAITS, checkpoint_dir=str(home), log_ranks="all")
    steps_in_it.wait_for_line(pod, "[rank 1] begins from nothing")
    (home / "go").touch()
    assert steps_in_it.wait(pod) == 0, steps_in_it.log(pod)
    out = steps_in_it.out(pod)
    assert json.loads((out / "result").read_text()) == {"begin": "nothing", "accuracy": 0.5}
    assert "rank 1" in (out / "report").read_text()


def test_a_step_in_it_suspends_its_run_when_it_is_told_to_end(steps_in_it: Steps) -> None:
    pod = steps_in_it.start(WAITS, checkpoint_dir=str(steps_in_it.shared / "checkpoints"))
    steps_in_it.wait_for_line(pod, "begins from nothing")
    steps_in_it.cluster.kubectl("exec", pod, "-n", steps_in_it.namespace, "--", "/bin/sh", "-c", "kill -TERM 1")
    assert steps_in_it.wait(pod) == 143
    (jobset,) = steps_in_it.jobsets()
    assert jobset["spec"]["suspend"] is True
