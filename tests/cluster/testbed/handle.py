"""The cluster as the tests see it: the test cluster of this package, or any that KUBECONFIG names.

Called by `tests/cluster/conftest.py`, and by whatever else wants to run something on the cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.waiting import until

from . import lifecycle, pod
from .build import binary
from .layout import BORROWED_FILE, HOST_IMAGE, KUBECONFIG, STATE, Choice, TestbedError
from .objects import Objects, known


class NoClusterError(TestbedError):
    """Nobody offers a cluster; tests are skipped unless STEPSET_CLUSTER=required."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers.

    Args:
        kubeconfig: value for KUBECONFIG; an administrator's on the test cluster.
        program: path of kubectl.
        image: image every test pod can run; it has Python with stepset's test dependencies.
        python: the Python to call inside a pod.
        choice: versions and nodes of the test cluster; None for a cluster of somebody else, which has no faults.
    """

    kubeconfig: str
    program: str
    image: str
    python: str
    choice: Choice | None

    def kubectl(self, *arguments: str, text: str = "", timeout: float = 300.0) -> str:
        """Run kubectl and return its output.

        Args:
            arguments: its command line after the program.
            text: its standard input.
            timeout: seconds; longer than any --timeout in `arguments`.

        Raises:
            TestbedError: it failed (its message follows) or took too long.
        """
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        # On the test cluster the discovery cache goes where `down` removes it.
        words = [self.program, *(["--cache-dir", str(STATE / "kubectl")] if self.choice else []), *arguments]
        said = f"kubectl {' '.join(arguments)[:100]}"
        try:
            done = subprocess.run(words, input=text, env=environment, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"{said}: no end after {timeout:.0f} s") from error
        if done.returncode:
            raise TestbedError(f"{said}: {done.stderr.strip()}")
        return done.stdout

    @cached_property
    def objects(self) -> Objects:
        """Its objects, for whoever asks often."""
        return Objects(self.kubeconfig)

    def apply(self, manifest: dict[str, Any], namespace: str = "") -> None:
        """Create one object; a field that its kind does not have is an error."""
        if known(manifest["kind"].lower()):
            self.objects.create(manifest, namespace)
        else:
            self.kubectl("create", *_in(namespace), "-f", "-", text=json.dumps(manifest))

    def get(self, what: str, namespace: str = "", selector: str = "") -> dict[str, Any]:
        """Read an object ("pod/x") or a list of them ("pods") as the API server has it."""
        if known(what):
            return self.objects.get(what, namespace, selector)
        options = ["-l", selector] if selector else []
        found: dict[str, Any] = json.loads(self.kubectl("get", what, *_in(namespace), "-o", "json", *options))
        return found

    def logs(self, pod_name: str, namespace: str) -> str:
        """Everything a pod's only container has written."""
        return self.objects.logs(pod_name, namespace)

    @contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A namespace of its own that takes pods at once, deleted afterwards without waiting for it.

        Where the cluster will soon be gone with all its namespaces, only what runs is deleted: for a namespace the
        controller-manager asks for every kind of object that there is.
        """
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        try:
            # Pods are refused until it is there; the controller-manager would make it a moment later.
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self.objects.create(account, name, again=True)
            yield name
        finally:
            if self.choice and BORROWED_FILE.exists():
                self.objects.end_pods(name)
            else:
                self.objects.delete(f"namespace/{name}")

    def pod_template(self, container: str = "node", mounts: Iterable[pod.Mount] = ()) -> dict[str, Any]:
        """What must be merged over a pod to make it runnable here.

        Args:
            container: name of the container to patch.
            mounts: further directories of this machine (test cluster only).
        """
        own = [*pod.host_programs(), *mounts] if self.choice else []
        return pod.template(container, own)

    def pod_spec(self, command: list[str], container: str = "node") -> dict[str, Any]:
        """A pod spec that runs a command, for tests that need no more."""
        own = pod.host_programs() if self.choice else []
        return pod.runnable(container, command, self.image, own)

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = 180.0) -> None:
        """Look once a second at least until a condition holds.

        Raises:
            TestbedError: it did not within `timeout` seconds.
        """
        if not until(condition, timeout, every=1.0):
            raise TestbedError(f"waited {timeout:.0f} s for {what} in vain")


def find() -> Cluster:
    """The cluster to test with: what KUBECONFIG names, else the running test cluster.

    Raises:
        NoClusterError: there is neither.
        TestbedError: there is one, but it cannot be used.
    """
    if kubeconfig := named():
        return _named(kubeconfig)
    choice = lifecycle.running()
    if choice is None:
        raise NoClusterError("no Kubernetes cluster: run `make cluster` as root, or set KUBECONFIG")
    if not os.access(KUBECONFIG, os.R_OK):
        raise TestbedError(f"the cluster is root's ({KUBECONFIG}); run its tests as root")
    program = binary(f"kubernetes-{choice.kubernetes}", "kubectl")
    return Cluster(str(KUBECONFIG), str(program), HOST_IMAGE, sys.executable, choice)


def named() -> str:
    """The kubeconfig of a cluster of somebody else's that KUBECONFIG names; empty when it names none."""
    kubeconfig = os.environ.get("KUBECONFIG", "")
    return "" if kubeconfig == str(KUBECONFIG) else kubeconfig


def _named(kubeconfig: str) -> Cluster:
    image = os.environ.get("STEPSET_TEST_IMAGE", "")
    if not image:
        # KUBECONFIG is often set for other reasons; nothing is created on that cluster unless this says so.
        raise NoClusterError("KUBECONFIG is set, STEPSET_TEST_IMAGE is not: name an image that the cluster can run")
    program = shutil.which("kubectl")
    if program is None:
        raise TestbedError("KUBECONFIG is set but there is no kubectl on PATH")
    cluster = Cluster(kubeconfig, program, image, os.environ.get("STEPSET_TEST_PYTHON", "python3"), None)
    cluster.kubectl("get", "--raw", "/readyz", timeout=20)
    return cluster


def _in(namespace: str) -> list[str]:
    return ["-n", namespace] if namespace else []
