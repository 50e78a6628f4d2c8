"""Starts the backend, reports its state, and removes it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.cluster.testbed import debian, handle, node
from tests.cluster.testbed import lifecycle as testbed
from tests.cluster.testbed.layout import KUBECONFIG, Choice, TestbedError

from . import admission, build, images, objects, services
from .layout import KFP_STATE, NAMESPACE, ROOT, SERVICES_PYTHON, STARTED_CLUSTER_FILE
from .sources import Sources

DATABASE_PACKAGE = "mariadb-server"
_DEFINITIONS = "crd.yaml"


def up(sources: Sources) -> None:
    """Builds programs that are not in the cache, starts the cluster if it does not run, and starts the backend on it.

    Raises:
        TestbedError: a requirement is missing, or a step of the start has failed. Everything that the function has
            started is removed.
    """
    programs = build.ensure(sources)
    _ensure_environment()
    if shutil.which("mariadbd") is None:
        debian.install((DATABASE_PACKAGE,))
    choice = testbed.running()
    if choice is not None and is_running():
        return
    if starts_cluster := choice is None:
        choice = Choice.from_environment()
        testbed.up(choice)
    assert choice is not None
    try:
        _remove_backend()
        KFP_STATE.mkdir()
        if starts_cluster:
            STARTED_CLUSTER_FILE.touch()
        archive = KFP_STATE / "images.tar"
        images.write(programs / "bin", archive)
        for worker in choice.worker_nodes:
            node.load_images(worker, archive)
        _create_objects(programs)
        services.start(programs)
    except BaseException:
        down(stop_cluster=starts_cluster)
        raise


def down(*, stop_cluster: bool | None = None) -> None:
    """Removes the backend, and the cluster if `up` has started it.

    Args:
        stop_cluster: whether the cluster is stopped. By default, the cluster is stopped if `up` has started it.

    Raises:
        TestbedError: the backend or the cluster cannot be removed completely. The message states the reason.
    """
    if testbed.running() is None:
        return
    if STARTED_CLUSTER_FILE.exists() if stop_cluster is None else stop_cluster:
        testbed.down()
    else:
        _remove_backend()


def is_running() -> bool:
    """Returns whether all processes of the backend are running."""
    return all(text.startswith("running") for text in services.state().values())


def _remove_backend() -> None:
    kubectl = _kubectl()
    with suppress(TestbedError):  # the definitions or objects may not exist
        kubectl("delete", "workflows.argoproj.io", "--all", "-n", NAMESPACE, "--ignore-not-found", "--wait=false")
    services.stop()
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    kubectl("delete", admission.KINDS, admission.POLICY, "--ignore-not-found")
    for group in ("argoproj.io", "pipelines.kubeflow.org", "kubeflow.org"):
        _delete_definitions(kubectl, group)
    shutil.rmtree(KFP_STATE, ignore_errors=True)


def _delete_definitions(kubectl: Callable[..., str], group: str) -> None:
    """Deletes the CustomResourceDefinitions of an API group of KFP or Argo.

    The CustomResourceDefinitions of Kubeflow Trainer belong to another group and are not deleted.
    """
    names = kubectl("get", "crd", "-o", "name").split()
    if wanted := [name for name in names if name.rpartition("/")[2].partition(".")[2] == group]:
        kubectl("delete", *wanted, "--timeout=120s")


def _create_objects(programs: Path) -> None:
    kubectl = _kubectl()
    files = sorted((programs / "files").glob(f"*-{_DEFINITIONS}"))
    kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))
    created = objects.objects()
    for part in (created[:1], created[1:]):
        kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": part}))
    kubectl("apply", "-n", NAMESPACE, "-f", str(programs / "files/runner-role.yaml"))


def _kubectl() -> Callable[..., str]:
    cluster = handle.find()
    if cluster.choice is None:
        raise TestbedError(f"KUBECONFIG names another cluster; the backend needs the test cluster ({KUBECONFIG})")
    return cluster.kubectl


def _ensure_environment() -> None:
    if SERVICES_PYTHON.exists():
        return
    done = subprocess.run(["make", "setup-kfp-backend"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"`make setup-kfp-backend` failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
