"""Runs on the cluster as a user starts them: through the backend or the command line, with the minimal Role.

Only the namespace, its Role and the faults of a test are created as an administrator.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import IO, TYPE_CHECKING, Any

import pytest
import yaml

from stepset.backends.base import ClusterOptions, RunRequest
from stepset.backends.kubernetes import kubernetes_backend
from stepset.run_status import LogLine, Phase, RunStatus
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset.spec.job import TrainingJob
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.rbac import Account, rbac
from tests.cluster.testbed.handle import Cluster
from tests.waiting import until

if TYPE_CHECKING:
    from stepset.backends.kubernetes.backend import KubernetesBackend
    from stepset.backends.kubernetes.handle import KubernetesHandle

STEPSET = Path(sys.executable).parent / "stepset"
ACCOUNT = "submitter"
VOLCANO = pytest.param("volcano", marks=pytest.mark.disruptive)
"""The target `volcano` as a parameter of the fixture `runs`, which provides Volcano."""
KINDS = "jobsets,trainjobs,trainingruntimes,statefulsets,jobs,pods,configmaps,secrets,services"


class RecordingListener:
    """A RunListener that records lines and statuses, and lets a test wait for them."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.statuses: list[RunStatus] = []
        self.followed: Callable[[], bool] = lambda: True
        self._news = threading.Condition()

    def on_line(self, line: LogLine) -> None:
        with self._news:
            self.lines.append(line)
            self._news.notify_all()

    def on_status(self, status: RunStatus) -> None:
        with self._news:
            self.statuses.append(status)
            self._news.notify_all()

    def texts(self, source: str) -> list[str]:
        """The lines of one source."""
        return [line.text for line in list(self.lines) if line.source == source]

    def phases(self) -> list[str]:
        """The phases of the run with their reasons, without consecutive duplicates."""
        found: list[str] = []
        for status in list(self.statuses):
            phase = status.phase.value if status.phase.final else f"{status.phase.value} {status.reason}".strip()
            if found[-1:] != [phase]:
                found.append(phase)
        return found

    def wait_for_line(self, text: str, count: int = 1, timeout: float = 180.0) -> None:
        """Waits for `count` lines that contain `text`."""
        self.wait_until(lambda: sum(text in line.text for line in self.lines) >= count, f"{count} x {text!r}", timeout)

    def wait_for(self, phase: Phase, reason: str | None = None, timeout: float = 180.0) -> RunStatus:
        """Waits until the run is in a phase; returns that status."""

        def matching() -> RunStatus | None:
            last = self.statuses[-1] if self.statuses else None
            return last if last and last.phase is phase and reason in (None, last.reason) else None

        self.wait_until(lambda: matching() is not None, f"{phase.value} {reason or ''}", timeout)
        found = matching()
        assert found is not None
        return found

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = 180.0) -> None:
        """Waits until a condition holds; evaluates it after each line and status."""
        end = time.monotonic() + timeout
        with self._news:
            while not self._news.wait_for(condition, 0.5):
                if time.monotonic() < end and self.followed():
                    continue
                if condition():
                    return
                last = self.statuses[-1] if self.statuses else "no status"
                why = f"waited {timeout:.0f} s" if self.followed() else "the follower of the run has ended; waited"
                raise AssertionError(f"{why} for {what}; last: {last}; {self.lines[-5:]}")


@dataclass
class Runs:
    """An account with only the rights of `stepset rbac` in a namespace, and its runs.

    Args:
        cluster: the cluster.
        namespace: the namespace.
        directory: the directory for scripts and the kubeconfig.
        kubeconfig: the account's kubeconfig.
        target: the target of the runs.
    """

    cluster: Cluster
    namespace: str
    directory: Path
    kubeconfig: Path
    target: str = "jobset"
    _handles: list[KubernetesHandle] = field(default_factory=list)

    def backend(self, **options: Any) -> KubernetesBackend:
        """The backend with this account's kubeconfig; `options` are those of ClusterOptions."""
        given = {"kubeconfig": str(self.kubeconfig), "namespace": self.namespace, "target": self.target, **options}
        return kubernetes_backend(ClusterOptions(**given))

    def job(self, text: str | None = None, /, **fields: Any) -> TrainingJob:
        """A job that is runnable on this cluster, whose ranks run the script `text`."""
        template = merge(self.cluster.pod_template(), {"spec": fields.pop("pod_template", {})})
        basis: dict[str, Any] = {"name": "job", "framework": "plain", "image": self.cluster.image}
        if text is not None:
            basis["function"] = dedent(text)
        return parse_job({**basis, "pod_template": template, **fields})

    def request(
        self, text: str | None = None, /, *, run: str | None = "run", owner: str | None = None, **fields: Any
    ) -> RunRequest:
        """A request for a run of `job`; its name is free, because each test has its own namespace."""
        job = self.job(text, **fields)
        return RunRequest(job, read_sources(job, self.directory), name=run, owner=owner)

    def start(
        self, text: str | None = None, /, *, options: dict[str, Any] | None = None, **fields: Any
    ) -> tuple[KubernetesHandle, RecordingListener]:
        """Starts a run with a recording listener."""
        listener = RecordingListener()
        handle = self.backend(**(options or {})).start(self.request(text, **fields), listener)
        self._handles.append(handle)
        listener.followed = lambda: not handle.ended(0)
        return handle, listener

    def run(self, text: str | None = None, /, **fields: Any) -> tuple[RunStatus, RecordingListener]:
        """Starts a run and waits for its end."""
        handle, listener = self.start(text, **fields)
        return handle.wait(), listener

    def cli(
        self, *words: str, timeout: float = 300.0, stdin: IO[str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs `stepset WORDS --backend kubernetes` as this account, in a new process."""
        with self.program(*words, stdin=stdin) as process:
            out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def words(self, *words: str, kubeconfig: Path | None = None) -> list[str]:
        """The command line of `cli`. Words after `--` stay at the end."""
        flags = ["--backend", "kubernetes", "--namespace", self.namespace]
        flags += ["--kubeconfig", str(kubeconfig or self.kubeconfig)]
        at = words.index("--") if "--" in words else len(words)
        return [str(STEPSET), *words[:at], *flags, *words[at:]]

    def program(
        self, *words: str, kubeconfig: Path | None = None, stdin: IO[str] | None = None
    ) -> subprocess.Popen[str]:
        """Starts the process of `cli`."""
        line = self.words(*words, kubeconfig=kubeconfig)
        env = {key: value for key, value in os.environ.items() if not key.startswith("STEPSET_")}
        return subprocess.Popen(
            line, cwd=self.directory, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def job_file(self, text: str | None = None, /, **fields: Any) -> str:
        """Writes job.yaml for the command line; returns its name."""
        (self.directory / "job.yaml").write_text(yaml.safe_dump(self.job(text, **fields).to_dict()))
        return "job.yaml"

    def get(self, what: str, selector: str = "") -> Any:
        """Reads an object ("pod/x") or a list ("pods") as an administrator."""
        return self.cluster.get(what, self.namespace, selector)

    def left(self, kinds: str = KINDS) -> list[str]:
        """Objects that runs left behind; objects that every namespace has are omitted."""
        found = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in self.get(kinds)["items"]]
        return [name for name in found if not name.endswith(("/kube-root-ca.crt", f"/{ACCOUNT}"))]

    def wait_nothing_left(self, timeout: float = 120.0) -> None:
        """Waits until the namespace contains no object of a run."""
        for kinds in (*KINDS.split(","), KINDS):  # one kind at a time: all of them take nine requests
            assert until(lambda kinds=kinds: not self.left(kinds), timeout, 0.3), f"left behind: {self.left()}"

    def pods(self, group: str = "node") -> list[dict[str, Any]]:
        """The pods of a group, sorted by name."""
        found = self.get("pods", f"stepset.dev/group={group}")["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def evict(self, pod: str) -> None:
        """Evicts a pod, as a drain or a preemption does."""
        about = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self.cluster.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))

    def close(self) -> None:
        """Stops following runs that a failed test did not wait for; they are deleted with the namespace."""
        for handle in self._handles:
            handle.leave()


@contextmanager
def runs_in(
    cluster: Cluster, namespace: str, directory: Path, target: str = "jobset", gang: str = "kueue"
) -> Iterator[Runs]:
    """Creates an account with the Roles that `stepset rbac` prints, and its kubeconfig."""
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}},
        *rbac(
            "cli",
            targets=[target],
            gang=gang,
            mpi=True,
            lost_node=True,
            network_policy=True,
            namespace=namespace,
            accounts=[Account(ACCOUNT)],
        ),
    ]
    for each in objects:
        cluster.objects.create(each, namespace, exist_ok=True)
    token = cluster.objects.token(ACCOUNT, namespace, 7200)
    path = directory / "submitter.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig_of(cluster, token, namespace)))
    runs = Runs(cluster, namespace, directory, path, target)
    try:
        yield runs
    finally:
        runs.close()


@contextmanager
def terminating(runs: Runs) -> Iterator[None]:
    """Deletes the namespace. Finalizers keep the accounts, the Roles and the namespace until the end of the block.

    The server accepts the token of an account for 60 s after its deletion was requested.
    """
    names = [
        f"{kind}/{each['metadata']['name']}"
        for kind in ("serviceaccount", "role", "rolebinding")
        for each in runs.get(kind)["items"]
    ]

    def finalizers(value: str) -> None:
        patch = f'{{"metadata": {{"finalizers": {value}}}}}'
        for name in names:
            runs.cluster.kubectl("patch", name, "-n", runs.namespace, "--type=merge", "-p", patch)

    finalizers('["stepset.dev/test"]')
    try:
        runs.cluster.kubectl("delete", "namespace", runs.namespace, "--wait=false")
        yield
    finally:
        finalizers("null")


def kubeconfig_of(cluster: Cluster, token: str, namespace: str) -> dict[str, Any]:
    """A kubeconfig for the cluster's server with a token, without the administrator's credentials."""
    admin = yaml.safe_load(Path(cluster.kubeconfig.split(os.pathsep)[0]).read_text("utf-8"))
    context = next(each for each in admin["contexts"] if each["name"] == admin["current-context"])["context"]
    server = next(each for each in admin["clusters"] if each["name"] == context["cluster"])["cluster"]
    if file := server.pop("certificate-authority", None):
        server["certificate-authority-data"] = base64.b64encode(Path(file).read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "test", "user": {"token": token}}],
    }
