"""The steps' image in pods with the restricted Pod Security Standard and a read-only root file system, except /tmp.

Only the image contains both KFP's executor and the newest kubernetes package.
"""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from stepset_kfp.training.distributed_train.component import IMAGE
from tests.cluster.testbed import node
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice
from tests.kfp.steps import LONGEST, WAITS, Steps, emissary

pytestmark = pytest.mark.cluster

ARCHIVE = Path(__file__).resolve().parents[3] / ".cache/kfp-image.tar"
INSPECT = """\
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
    """Loads the image on every node; returns its name."""
    if not ARCHIVE.exists():
        pytest.skip("no image; run tools/kfp-image")
    for worker in testbed_choice.worker_nodes:
        node.load_images(worker, ARCHIVE)
    return IMAGE


@pytest.fixture
def image_steps(steps: Steps, image: str) -> Steps:
    """Steps that run in the image; the directory that replaces KFP's storage is writable for them."""
    steps.shared.chmod(0o777)
    steps.image = image
    return steps


def test_a_step_has_its_packages_an_unprivileged_user_and_a_read_only_file_system(image_steps: Steps) -> None:
    pod = image_steps.start_program(INSPECT)
    assert image_steps.wait(pod) == 0, image_steps.log(pod)
    log = image_steps.log(pod)
    assert f"uid 65532 stepset=={version('stepset')} kfp==2.17.0 kubernetes==37." in log
    assert "Read-only file system" in log
    assert f"the account has all permissions that a run needs in namespace {image_steps.namespace}" in log


def test_a_step_trains_and_writes_its_outputs(image_steps: Steps) -> None:
    home = image_steps.shared / "checkpoints"
    pod = image_steps.start(WAITS, checkpoint_dir=str(home), log_ranks="all")
    image_steps.wait_for_line(pod, "[rank 1] begins from nothing")
    (home / "go").touch()
    assert image_steps.wait(pod) == 0, image_steps.log(pod)
    out = image_steps.out(pod)
    assert json.loads((out / "result").read_text()) == {"begin": "nothing", "accuracy": 0.5}
    assert "rank 1" in (out / "report").read_text()


def test_a_terminated_step_suspends_its_run(image_steps: Steps) -> None:
    image_steps.launcher = emissary(LONGEST, LONGEST)
    pod = image_steps.start(WAITS, checkpoint_dir=str(image_steps.shared / "checkpoints"))
    image_steps.wait_for_line(pod, "begins from nothing")
    image_steps.cluster.kubectl("exec", pod, "-n", image_steps.namespace, "--", "/bin/sh", "-c", "kill -TERM 1")
    assert image_steps.wait(pod) == 143
    (jobset,) = image_steps.jobsets()
    assert jobset["spec"]["suspend"] is True
