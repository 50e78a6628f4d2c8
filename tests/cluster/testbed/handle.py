"""The cluster that the tests use: the test cluster of this package, or the one that KUBECONFIG names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.waiting import attempts, until

from . import lifecycle, pod
from .build import binary
from .layout import BORROWED_FILE, HOST_IMAGE, KUBECONFIG, STATE, Choice, TestbedError
from .objects import ATTEMPTS_FOR, Objects, known

_REPEATED = {"apply": "(AlreadyExists)", "create": "(AlreadyExists)", "delete": "(NotFound)"}
"""Commands that are repeated -> the reason in the error of a second attempt if the first one was successful."""
_BUSY = re.compile(r"etcdserver: |connection refused|Unable to connect|handshake timeout|TooManyRequests|InternalError")


class NoClusterError(TestbedError):
    """No cluster is available; tests are skipped unless STEPSET_CLUSTER=required."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers requests.

    Args:
        kubeconfig: value for KUBECONFIG; on the test cluster the administrator's.
        program: path of kubectl.
        image: an image that the nodes can run, which contains Python with stepset's test dependencies.
        python: the Python interpreter inside a pod.
        choice: versions and nodes of the test cluster; None for any other cluster, where no faults are injected.
    """

    kubeconfig: str
    program: str
    image: str
    python: str
    choice: Choice | None

    def kubectl(self, *arguments: str, text: str = "", timeout: float = 300.0) -> str:
        """Runs kubectl and returns its output.

        A command that creates or deletes objects is repeated while the server is busy or does not answer.

        Args:
            arguments: the command line after the program.
            text: standard input.
            timeout: seconds; longer than any --timeout in `arguments`.

        Raises:
            TestbedError: kubectl failed (the error contains its message) or took too long.
        """
        verb, again = arguments[0], False
        for last in attempts(ATTEMPTS_FOR):
            done = self._kubectl(arguments, text, timeout)
            if not done.returncode or (again and _REPEATED[verb] in done.stderr):
                return done.stdout
            if last or verb not in _REPEATED or not _BUSY.search(done.stderr):
                break
            again = True
        raise TestbedError(f"{_shown(arguments)}: {done.stderr.strip()}")

    def _kubectl(self, arguments: Sequence[str], text: str, timeout: float) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        # On the test cluster the discovery cache is in the directory that `down` removes.
        words = [self.program, *(["--cache-dir", str(STATE / "kubectl")] if self.choice else []), *arguments]
        try:
            return subprocess.run(words, input=text, env=environment, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"{_shown(arguments)}: no end after {timeout:.0f} s") from error

    @cached_property
    def objects(self) -> Objects:
        """Its objects, read over one connection: faster than kubectl for repeated requests."""
        return Objects(self.kubeconfig)

    def apply(self, manifest: dict[str, Any], namespace: str = "") -> None:
        """Creates one object; a field that its kind does not have is an error."""
        if known(manifest["kind"].lower()):
            self.objects.create(manifest, namespace)
        else:
            self.kubectl("create", *_in(namespace), "-f", "-", text=json.dumps(manifest))

    def get(self, what: str, namespace: str = "", selector: str = "") -> dict[str, Any]:
        """Reads an object ("pod/x") or a list ("pods") from the API server."""
        if known(what):
            return self.objects.get(what, namespace, selector)
        options = ["-l", selector] if selector else []
        found: dict[str, Any] = json.loads(self.kubectl("get", what, *_in(namespace), "-o", "json", *options))
        return found

    def logs(self, pod_name: str, namespace: str, container: str = "") -> str:
        """The whole log of a pod's container; without `container`, of its only one."""
        return self.objects.logs(pod_name, namespace, container)

    @contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """Creates a namespace that accepts pods at once; deletes it afterwards, without waiting for the deletion.

        In a cluster that will be stopped after the tests, only the workloads are deleted: for each deleted namespace
        the controller-manager requests every kind of object.
        """
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        try:
            # Pods are refused until this account exists; the controller-manager would create it a moment later.
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self.objects.create(account, name, exist_ok=True)
            yield name
        finally:
            if self.choice and BORROWED_FILE.exists():
                self.objects.end_pods(name)
            else:
                self.objects.delete(f"namespace/{name}")

    def pod_template(self, container: str = "node", mounts: Iterable[pod.Mount] = ()) -> dict[str, Any]:
        """A pod template that makes a pod runnable on this cluster when it is merged over the pod's own.

        Args:
            container: name of the container to patch.
            mounts: more directories of this machine (test cluster only).
        """
        own = [*pod.host_programs(), *mounts] if self.choice else []
        return pod.template(container, own)

    def pod_spec(self, command: list[str], container: str = "node") -> dict[str, Any]:
        """A complete pod spec that runs a command."""
        own = pod.host_programs() if self.choice else []
        return pod.runnable(container, command, self.image, own)

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = 180.0) -> None:
        """Waits until a condition holds; checks it at least once a second.

        Raises:
            TestbedError: the condition did not hold within `timeout` seconds.
        """
        if not until(condition, timeout, every=1.0):
            raise TestbedError(f"waited {timeout:.0f} s for {what} in vain")


def find() -> Cluster:
    """Returns the cluster that KUBECONFIG names, otherwise the running test cluster.

    Raises:
        NoClusterError: neither exists.
        TestbedError: the cluster cannot be used.
    """
    if kubeconfig := named():
        return _named(kubeconfig)
    choice = lifecycle.running()
    if choice is None:
        raise NoClusterError("no Kubernetes cluster: run `make cluster` as root, or set KUBECONFIG")
    if not os.access(KUBECONFIG, os.R_OK):
        raise TestbedError(f"{KUBECONFIG} is readable by root only; run the tests as root")
    program = binary(f"kubernetes-{choice.kubernetes}", "kubectl")
    return Cluster(str(KUBECONFIG), str(program), HOST_IMAGE, sys.executable, choice)


def named() -> str:
    """The kubeconfig of another cluster that KUBECONFIG names; empty for the test cluster and without KUBECONFIG."""
    kubeconfig = os.environ.get("KUBECONFIG", "")
    return "" if kubeconfig == str(KUBECONFIG) else kubeconfig


def _named(kubeconfig: str) -> Cluster:
    image = os.environ.get("STEPSET_TEST_IMAGE", "")
    if not image:
        # KUBECONFIG is often set for other reasons; this variable is the permission to create objects there.
        raise NoClusterError("KUBECONFIG is set, STEPSET_TEST_IMAGE is not: name an image that the cluster can run")
    program = shutil.which("kubectl")
    if program is None:
        raise TestbedError("KUBECONFIG is set, but kubectl is not on PATH")
    cluster = Cluster(kubeconfig, program, image, os.environ.get("STEPSET_TEST_PYTHON", "python3"), None)
    cluster.kubectl("get", "--raw", "/readyz", timeout=20)
    return cluster


def _shown(arguments: Sequence[str]) -> str:
    return f"kubectl {' '.join(arguments)[:100]}"


def _in(namespace: str) -> list[str]:
    return ["-n", namespace] if namespace else []
