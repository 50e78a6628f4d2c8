"""A request that an account may not send, and the command of its error message, which the administrator pastes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepset.targets.rbac import Account, rbac
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError
from tests.cluster.testbed.objects import Objects
from tests.waiting import until

_COMMAND = re.compile(r"have an administrator run: (stepset rbac .*? \| kubectl apply -f -)")
_BYSTANDER = Account("bystander")

Attempt = Callable[[], str]
"""Sends the request; returns the text that the user sees if it is refused, empty if it succeeds."""


@dataclass(frozen=True)
class Requester:
    """The account that sends the request.

    Args:
        cluster: the cluster.
        namespace: the namespace of the runs.
        words: how `stepset rbac` names the account.
        kubeconfig: the account's kubeconfig; None: the account is one of pods.
    """

    cluster: Cluster
    namespace: str
    words: tuple[str, str]
    kubeconfig: Path | None = None

    def take_rights(self, *roles: str) -> None:
        """Deletes the account's RoleBindings of some Roles, such as `stepset-mpi`; default: of all."""
        name = self.words[1].rpartition("/")[2] if self.words[0] == "--account" else self.words[1]
        for each in self._listed("rolebindings"):
            bound = any(subject["name"] == name for subject in each["subjects"])
            if bound and (not roles or each["roleRef"]["name"] in roles):
                self.cluster.objects.delete(f"rolebinding/{each['metadata']['name']}", self.namespace)
        if self.kubeconfig is not None and not roles:
            own = Objects(str(self.kubeconfig))
            assert until(lambda: _is_refused(own, self.namespace)), "the API server still admits the account"

    def rights(self) -> dict[tuple[str, str], Any]:
        """What the Roles and RoleBindings of the namespace grant, by kind and name."""
        return {
            (kind, each["metadata"]["name"]): each.get("rules") or (each["roleRef"], each["subjects"])
            for kind in ("roles", "rolebindings")
            for each in self._listed(kind)
        }

    def _listed(self, kind: str) -> Iterable[Mapping[str, Any]]:
        items: list[Mapping[str, Any]] = self.cluster.get(kind, self.namespace)["items"]
        return items


def succeeds_after_its_remedy(
    account: Requester,
    attempt: Attempt,
    *options: str,
    targets: Iterable[str] = ("jobset",),
    backend: str = "cli",
    takes: Iterable[str] = (),
) -> None:
    """Checks a request that the account may not send: its remedy is what was requested, and makes it succeed.

    Another account keeps the rights that it had, and this account those that the request does not need.

    Args:
        account: the account.
        attempt: sends the request.
        options: the options of `stepset rbac` for rights that only some runs need.
        targets: the targets that the request names, in any order.
        backend: the interface that sends the request: cli, airflow or kfp.
        takes: the Roles whose rights the account loses before; default: all.
    """
    for each in rbac("cli", targets=["statefulset", "jobset"], namespace=account.namespace, accounts=[_BYSTANDER]):
        account.cluster.objects.create(each, account.namespace, exist_ok=True)
    account.take_rights(*takes)
    before, refused = account.rights(), attempt()
    command = remedy(refused)
    words = shlex.split(command.removesuffix("| kubectl apply -f -"))
    given = [words[at + 1] for at, word in enumerate(words) if word == "--target"]
    assert sorted(given) == sorted(targets), command
    others = [word for at, word in enumerate(words[2:], 2) if "--target" not in (word, words[at - 1])]
    interface = [] if backend == "cli" else ["--backend", backend]
    assert others == [*interface, "--namespace", account.namespace, *options, *account.words], command
    paste(account.cluster, command)
    assert before.items() <= account.rights().items()
    assert attempt() == ""


def remedy(text: str) -> str:
    """The only command that a text recommends; it may recommend it several times."""
    found = {each[1] for each in _COMMAND.finditer(text)}
    assert len(found) == 1, text
    return found.pop()


def paste(cluster: Cluster, command: str) -> None:
    """Runs a command in a shell as the administrator."""
    path = os.pathsep.join((str(Path(sys.executable).parent), str(Path(cluster.program).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "KUBECONFIG": cluster.kubeconfig}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@contextmanager
def reading_classes(cluster: Cluster, namespace: str, account: str, command: str = "") -> Iterator[None]:
    """Permits a service account to read the priority classes of the cluster, until the end of the block.

    Args:
        command: the command that grants the permission; default: that of `stepset rbac`.
    """
    words = f"stepset rbac --namespace {namespace} --with priorities --account {namespace}/{account}"
    with granted(cluster, namespace, account, command or f"{words} | kubectl apply -f -"):
        yield


@contextmanager
def granted(cluster: Cluster, namespace: str, account: str, command: str) -> Iterator[None]:
    """Runs a command that grants permissions to a service account, and deletes its ClusterRoleBindings afterwards."""
    try:
        paste(cluster, command)
        yield
    finally:  # the ClusterRoles are the same for all namespaces, so they remain
        for role in ("stepset-priorities", "stepset-quotas"):
            binding = f"{role}:{namespace}:{namespace}:{account}"
            cluster.kubectl("delete", "clusterrolebinding", binding, "--ignore-not-found")


def installed_targets(cluster: Cluster) -> list[str]:
    """The targets whose kinds the cluster serves."""
    groups = {"jobset": "jobset.x-k8s.io", "trainjob": "trainer.kubeflow.org", "volcano": "batch.volcano.sh"}
    served = cluster.kubectl("api-versions").split()
    installed = {name for name, group in groups.items() if any(each.startswith(f"{group}/") for each in served)}
    return sorted({"job", "statefulset", *installed})


def _is_refused(objects: Objects, namespace: str) -> bool:
    try:
        objects.get("pods", namespace)
    except TestbedError as error:
        return "(Forbidden)" in str(error)
    return False
