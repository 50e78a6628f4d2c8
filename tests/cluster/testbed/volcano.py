"""Volcano's controller, scheduler and webhooks, which run only during the tests that need them.

While they do not run, the cluster does not serve the kinds of Volcano, so that other tests find a cluster without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import build, controlplane, manifests, pki, process
from .layout import KUBECONFIG, PKI, Choice, TestbedError
from .network import CONTROL

CONTROLLER, SCHEDULER, WEBHOOKS = "vc-controller-manager", "vc-scheduler", "vc-webhook-manager"
"""The names of the processes, as in the images of Volcano."""

_COMPONENT = "volcano"
_PORT = 9447
_BATCH, _SCHEDULING = ("batch.volcano.sh", "v1alpha1"), ("scheduling.volcano.sh", "v1beta1")
# The path of each webhook, its kind, and the operations that it sees (installer/helm/chart/volcano/templates/
# webhooks.yaml). The webhooks of pods are left out: all pods of the cluster would depend on Volcano.
_HOOKS = {
    "/jobs/mutate": (*_BATCH, "jobs", ["CREATE"]),
    "/jobs/validate": (*_BATCH, "jobs", ["CREATE", "UPDATE"]),
    "/podgroups/mutate": (*_SCHEDULING, "podgroups", ["CREATE"]),
    "/queues/mutate": (*_SCHEDULING, "queues", ["CREATE"]),
    "/queues/validate": (*_SCHEDULING, "queues", ["CREATE", "UPDATE", "DELETE"]),
}
# The other controllers need kinds that the chart installs separately (JobFlow and JobTemplate).
_CONTROLLERS = ("gc-controller", "job-controller", "pg-controller", "queue-controller")


@contextmanager
def running(choice: Choice) -> Iterator[None]:
    """Provides Volcano while the block runs; builds its programs if they are not in the cache.

    Args:
        choice: the running cluster's.

    Raises:
        TestbedError: a process died, or the queue `default` did not open.
    """
    build.ensure([f"kubernetes-{choice.kubernetes}", _COMPONENT])
    try:
        _start(choice)
        yield
    finally:
        _remove(choice)


def _start(choice: Choice) -> None:
    definitions = manifests.without_descriptions(manifests.load(_COMPONENT, "crd"))
    # The program of the webhooks exits if their configurations do not exist.
    for objects in (definitions, _webhooks()):
        controlplane.kubectl(choice, "apply", "--server-side", "-f", "-", text=manifests.bundle(objects))
    names = [f"crd/{item['metadata']['name']}" for item in definitions]
    controlplane.kubectl(choice, "wait", "--for=condition=Established", "--timeout=180s", *names)
    client: list[str | Path] = ["--kubeconfig", KUBECONFIG, "--kube-api-qps=500", "--kube-api-burst=500"]
    serving = pki.WEBHOOK_DIRECTORY
    _run(
        WEBHOOKS, "webhook-manager", *client, f"--webhook-url={_url('')}", f"--enabled-admission={','.join(_HOOKS)}",
        "--listen-address=127.0.0.1", f"--port={_PORT}", "--ca-cert-file", PKI / "ca.crt",
        "--tls-cert-file", serving / "tls.crt", "--tls-private-key-file", serving / "tls.key",
    )  # fmt: skip
    controllers = ",".join(f"+{name}" for name in _CONTROLLERS)
    _run(CONTROLLER, "controller-manager", *client, "--leader-elect=false", f"--controllers={controllers}")
    _run(SCHEDULER, "scheduler", *client, "--leader-elect=false")
    # The scheduler creates the queue, through the webhooks, and the controller opens it.
    processes = [CONTROLLER, SCHEDULER, WEBHOOKS]
    process.wait("Volcano's queue `default`", lambda: _state(choice, "default") == "Open", 180, processes)


def _run(name: str, program: str, *arguments: str | Path) -> None:
    process.stop(name)  # a killed test session does not stop it
    process.start(name, [build.binary(_COMPONENT, program), "--logtostderr", *arguments], inside=CONTROL)


def _state(choice: Choice, queue: str) -> str:
    with suppress(TestbedError):
        return controlplane.kubectl(
            choice, "get", "queues.scheduling.volcano.sh", queue, "-o", "jsonpath={.status.state}"
        )
    return ""


def _remove(choice: Choice) -> None:
    """Deletes the webhooks and the definitions, with their objects, and stops the processes."""
    names = ["--ignore-not-found", *(_name(path) for path in _HOOKS)]
    definitions = [item["metadata"]["name"] for item in manifests.load(_COMPONENT, "crd")]
    try:
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            controlplane.kubectl(choice, "delete", kind, *names)
        controlplane.kubectl(choice, "delete", "crds", "--ignore-not-found", "--timeout=120s", *definitions)
    finally:
        for name in (CONTROLLER, SCHEDULER, WEBHOOKS):
            process.stop(name)


def _webhooks() -> list[manifests.Object]:
    return [_webhook(path) for path in _HOOKS]


def _webhook(path: str) -> manifests.Object:
    group, version, resource, operations = _HOOKS[path]
    rule = {"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations}
    webhook = {
        "name": f"{_name(path)}.volcano.sh",
        "clientConfig": {"url": _url(path), "caBundle": pki.authority()},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
    }
    kind = "MutatingWebhookConfiguration" if path.endswith("mutate") else "ValidatingWebhookConfiguration"
    about = {"name": _name(path)}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": about, "webhooks": [webhook]}


def _name(path: str) -> str:
    """The name under which the program of the webhooks looks up a configuration (cmd/webhook-manager/app/util.go)."""
    return f"volcano-admission-service{path.replace('/', '-')}"


def _url(path: str) -> str:
    return f"https://127.0.0.1:{_PORT}{path}"
