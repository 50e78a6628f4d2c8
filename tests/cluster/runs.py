"""Runs on the cluster as a user has them: through the backend or the command line, under the least Role.

`Runs` is what the tests of the backend share. Nothing here is done as an administrator but making the namespace, its
Role, and what a test breaks on purpose.
"""

from __future__ import annotations

import base64
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
from typing import TYPE_CHECKING, Any

import yaml

from stepset.backends.base import ClusterOptions, RunRequest
from stepset.backends.kubernetes import kubernetes_backend
from stepset.sources import read_sources
from stepset.spec import parse_job
from stepset.spec.job import TrainingJob
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.rbac import Account, rbac
from stepset.watch.state import LogLine, Phase, RunStatus
from tests.cluster.testbed.handle import Cluster
from tests.waiting import until

if TYPE_CHECKING:
    from stepset.backends.kubernetes.backend import KubernetesBackend, KubernetesHandle

STEPSET = Path(sys.executable).parent / "stepset"
ACCOUNT = "submitter"
KINDS = "jobsets,trainjobs,trainingruntimes,statefulsets,jobs,pods,configmaps,secrets,services"


class Listening:
    """Keeps what it is told, and lets a test wait for it."""

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
        """What one source printed."""
        return [line.text for line in list(self.lines) if line.source == source]

    def phases(self) -> list[str]:
        """The phases the run went through, with their reasons, each once in a row."""
        found: list[str] = []
        for status in list(self.statuses):
            phase = f"{status.phase.value} {status.reason}".strip()
            if found[-1:] != [phase]:
                found.append(phase)
        return found

    def wait_for_line(self, text: str, count: int = 1, timeout: float = 180.0) -> None:
        """Until so many lines that hold the text have come."""
        self.wait_until(lambda: sum(text in line.text for line in self.lines) >= count, f"{count} x {text!r}", timeout)

    def wait_for(self, phase: Phase, reason: str | None = None, timeout: float = 180.0) -> RunStatus:
        """Until the run is in a phase; that status."""

        def there() -> RunStatus | None:
            last = self.statuses[-1] if self.statuses else None
            return last if last and last.phase is phase and reason in (None, last.reason) else None

        self.wait_until(lambda: there() is not None, f"{phase.value} {reason or ''}", timeout)
        found = there()
        assert found is not None
        return found

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = 180.0) -> None:
        """Until what was told makes a condition true; it is looked at whenever something is told."""
        end = time.monotonic() + timeout
        with self._news:
            while not self._news.wait_for(condition, 0.5):
                if time.monotonic() < end and self.followed():
                    continue
                if condition():
                    return
                last = self.statuses[-1] if self.statuses else "nothing was heard"
                why = f"waited {timeout:.0f} s" if self.followed() else "nobody follows the run any more, which waited"
                raise AssertionError(f"{why} for {what}; last: {last}; {self.lines[-5:]}")


@dataclass
class Runs:
    """Somebody who may do in a namespace what `stepset rbac` gives, and no more.

    Args:
        cluster: where.
        namespace: in which namespace.
        directory: for scripts and the kubeconfig.
        kubeconfig: of the account.
        target: what runs become.
    """

    cluster: Cluster
    namespace: str
    directory: Path
    kubeconfig: Path
    target: str = "jobset"
    _handles: list[KubernetesHandle] = field(default_factory=list)

    def backend(self, **options: Any) -> KubernetesBackend:
        """The backend as this account; options are those of ClusterOptions."""
        given = {"kubeconfig": str(self.kubeconfig), "namespace": self.namespace, "target": self.target, **options}
        return kubernetes_backend(ClusterOptions(**given))

    def job(self, text: str | None = None, /, **fields: Any) -> TrainingJob:
        """A job whose ranks run a script's text, runnable on this cluster."""
        template = merge(self.cluster.pod_template(), {"spec": fields.pop("pod_template", {})})
        basis: dict[str, Any] = {"name": "job", "framework": "plain", "image": self.cluster.image}
        if text is not None:
            basis["function"] = dedent(text)
        return parse_job({**basis, "pod_template": template, **fields})

    def request(
        self, text: str | None = None, /, *, run: str | None = "run", owner: str | None = None, **fields: Any
    ) -> RunRequest:
        """A request to run it under a name, which is free because the namespace is the test's own."""
        job = self.job(text, **fields)
        return RunRequest(job, read_sources(job, self.directory), name=run, owner=owner)

    def start(
        self, text: str | None = None, /, *, options: dict[str, Any] | None = None, **fields: Any
    ) -> tuple[KubernetesHandle, Listening]:
        """Starts a run and listens."""
        listening = Listening()
        handle = self.backend(**(options or {})).start(self.request(text, **fields), listening)
        self._handles.append(handle)
        listening.followed = lambda: not handle.ended(0)
        return handle, listening

    def run(self, text: str | None = None, /, **fields: Any) -> tuple[RunStatus, Listening]:
        """Runs to the end."""
        handle, listening = self.start(text, **fields)
        return handle.wait(), listening

    def cli(self, *words: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """`stepset WORDS --backend kubernetes` as this account, as a program of its own."""
        with self.program(*words) as process:
            out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def program(self, *words: str, kubeconfig: Path | None = None) -> subprocess.Popen[str]:
        """The same, running. Words after `--` stay at the end."""
        flags = ["--backend", "kubernetes", "--namespace", self.namespace]
        flags += ["--kubeconfig", str(kubeconfig or self.kubeconfig)]
        at = words.index("--") if "--" in words else len(words)
        line = [str(STEPSET), *words[:at], *flags, *words[at:]]
        env = {key: value for key, value in os.environ.items() if not key.startswith("STEPSET_")}
        return subprocess.Popen(
            line, cwd=self.directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def job_file(self, text: str | None = None, /, **fields: Any) -> str:
        """Writes job.yaml for the command line; its name."""
        (self.directory / "job.yaml").write_text(yaml.safe_dump(self.job(text, **fields).to_dict()))
        return "job.yaml"

    def get(self, what: str, selector: str = "") -> Any:
        """What an administrator sees: an object ("pod/x") or a list of them ("pods")."""
        return self.cluster.get(what, self.namespace, selector)

    def left(self, kinds: str = KINDS) -> list[str]:
        """Objects that a run left behind; what every namespace has is not counted."""
        found = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in self.get(kinds)["items"]]
        return [name for name in found if not name.endswith(("/kube-root-ca.crt", f"/{ACCOUNT}"))]

    def wait_nothing_left(self, timeout: float = 120.0) -> None:
        """Until the namespace is as it was."""
        for kinds in (*KINDS.split(","), KINDS):  # one after the other: all of them are nine questions to the server
            assert until(lambda kinds=kinds: not self.left(kinds), timeout, 0.3), f"left behind: {self.left()}"

    def pods(self, group: str = "node") -> list[dict[str, Any]]:
        """The pods of a group, by name."""
        found = self.get("pods", f"stepset.dev/group={group}")["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def close(self) -> None:
        """Leaves runs that a failed test did not wait for; the namespace takes them along."""
        for handle in self._handles:
            handle.leave()


@contextmanager
def runs_in(
    cluster: Cluster, namespace: str, directory: Path, target: str = "jobset", gang: str = "kueue"
) -> Iterator[Runs]:
    """An account with the Role that `stepset rbac` prints, and its kubeconfig."""
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}},
        *rbac("cli", target=target, gang=gang, namespace=namespace, accounts=[Account(ACCOUNT)]),
    ]
    for each in objects:
        cluster.objects.create(each, namespace, again=True)
    token = cluster.objects.token(ACCOUNT, namespace, 7200)
    path = directory / "submitter.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig_of(cluster, token, namespace)))
    runs = Runs(cluster, namespace, directory, path, target)
    try:
        yield runs
    finally:
        runs.close()


def kubeconfig_of(cluster: Cluster, token: str, namespace: str) -> dict[str, Any]:
    """A kubeconfig for the cluster's server with a token and nothing of an administrator's."""
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
