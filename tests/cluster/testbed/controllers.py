"""JobSet, Kubeflow Trainer and Kueue as processes beside the control plane, which also serve their webhooks.

The order of a start: the definitions (the controllers watch them), the controllers, and then their webhook
configurations, so that no request is refused because a webhook is not listening yet.
"""

from __future__ import annotations

import http.client
import json
import shutil
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import manifests, pki, process
from .build import binary
from .controlplane import kubectl
from .layout import CONFIG, CONTROL_ADDRESS, KUBECONFIG, STATE, Choice
from .network import CONTROL

# controller-runtime's default directory for certificates, below the temporary directory; Trainer cannot change it.
TEMPORARY = STATE / "controllers"
CERTIFICATES = TEMPORARY / "k8s-webhook-server" / "serving-certs"

_KUEUE_ROOT = STATE / "kueue"
"""Kueue's root directory (chroot): Kueue expects its certificates at fixed paths, as in its image."""
_KUEUE_CERTIFICATES = ("webhook", "etc/kueue/metrics/certs", "visibility")
"""Its directories of certificates, set by the configuration here, cmd/kueue/main.go and pkg/visibility/server.go."""
_VISIBILITY_PORT = 9446


@dataclass(frozen=True)
class Controller:
    """A controller: its program, its ports and its configuration.

    Args:
        component: the component of its binary and manifests.
        program: name of the binary.
        webhook_port: port on the control plane's loopback; only the API server calls it.
        health_port: port on the bridge, where the host can reach it.
        config: its configuration file, without the parts common to all controllers.
        webhooks: the webhooks to register; empty: all.
    """

    component: str
    program: str
    webhook_port: int
    health_port: int
    config: dict[str, Any]
    webhooks: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.webhook_port}"


def selected(choice: Choice) -> tuple[Controller, ...]:
    """The controllers of a cluster, in the order in which they start."""
    jobset = Controller(
        component=f"jobset-{choice.jobset}",
        program="jobset",
        webhook_port=9443,
        health_port=8081,
        config={
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 500, "burst": 500},
        },
    )
    trainer = Controller(
        component="trainer",
        program="trainer",
        webhook_port=9444,
        health_port=8082,
        config={
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "certManagement": {"enable": False},
            "clientConnection": {"qps": 500, "burst": 500},
            "statusServer": {"port": 10443},
        },
    )
    kueue = Controller(
        component="kueue",
        program="kueue",
        webhook_port=9445,
        health_port=8083,
        config={
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 500, "burst": 500},
            "manageJobsWithoutQueueName": False,
            "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": _VISIBILITY_PORT},
            "integrations": {
                "frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"],
            },
        },
        # The other webhooks (pods, deployments, other operators' jobs) would make those objects depend on Kueue.
        webhooks=(
            "mjob.kb.io", "vjob.kb.io", "mjobset.kb.io", "vjobset.kb.io", "mtrainjob.kb.io", "vtrainjob.kb.io",
            "mclusterqueue.kb.io", "vclusterqueue.kb.io", "vcohort.kb.io", "mresourceflavor.kb.io",
            "vresourceflavor.kb.io", "mworkload.kb.io", "vworkload.kb.io",
        ),
    )  # fmt: skip
    return (jobset, trainer, kueue) if choice.kueue else (jobset, trainer)


def install(choice: Choice) -> None:
    """Starts the controllers: definitions, processes, webhooks, and Trainer's runtimes.

    Raises:
        TestbedError: a controller died or was not ready in time, or the API server refused a manifest.
    """
    controllers, authority = selected(choice), pki.authority()
    definitions: list[manifests.Object] = []
    for controller in controllers:
        found = manifests.without_descriptions(manifests.load(controller.component, "crd"))
        definitions += manifests.served_at(found, controller.url, authority)
    _create(choice, definitions)
    names = [f"crd/{item['metadata']['name']}" for item in definitions]
    kubectl(choice, "wait", "--for=condition=Established", "--timeout=180s", *names)
    CERTIFICATES.mkdir(parents=True)
    for suffix in ("crt", "key"):
        shutil.copy(pki.WEBHOOK_DIRECTORY / f"tls.{suffix}", CERTIFICATES)
    if choice.kueue:
        _make_kueues_root()
    for controller in controllers:
        start(controller)
    for controller in controllers:
        process.wait(f"{controller.program} to be ready", partial(is_ready, controller), 180, [controller.program])
    hooks: list[manifests.Object] = []
    for controller in controllers:
        found = manifests.webhook_configurations(manifests.load(controller.component, "webhook"), controller.component)
        found = manifests.only(found, controller.webhooks) if controller.webhooks else found
        hooks += manifests.served_at(found, controller.url, authority)
    _create(choice, hooks)
    if choice.kueue:
        _serve_visibility(choice)
    # These pass through Trainer's validating webhook, so their creation proves that it answers.
    _create(choice, manifests.load("trainer", "runtimes"))


def start(controller: Controller) -> None:
    """Start one controller's process."""
    content = {
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{CONTROL_ADDRESS}:{controller.health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": controller.webhook_port, "host": "127.0.0.1"},
        "leaderElection": {"leaderElect": False},
        **controller.config,
    }
    if controller.program == "kueue":
        _start_kueue(content)
        return
    path = CONFIG / f"{controller.program}.json"
    path.write_text(json.dumps(content, indent=1))
    program = binary(controller.component, controller.program)
    environment = {"KUBECONFIG": str(KUBECONFIG), "TMPDIR": str(TEMPORARY)}
    process.start(controller.program, [program, f"--config={path}"], inside=CONTROL, extra=environment)


def _start_kueue(content: dict[str, Any]) -> None:
    content["webhook"]["certDir"] = f"/{_KUEUE_CERTIFICATES[0]}"
    (_KUEUE_ROOT / "config.json").write_text(json.dumps(content, indent=1))
    # --kubeconfig, because Kueue's API server does not read KUBECONFIG.
    words = ["chroot", _KUEUE_ROOT, "/manager", "--config=/config.json", "--kubeconfig=/kubeconfig"]
    process.start("kueue", words, inside=CONTROL, extra={"TMPDIR": "/tmp"})


def is_ready(controller: Controller) -> bool:
    """Whether the controller's /readyz answers 200, which implies that its webhook server listens."""
    connection = http.client.HTTPConnection(CONTROL_ADDRESS, controller.health_port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _create(choice: Choice, objects: list[manifests.Object]) -> None:
    # The server validates the objects; kubectl's own validation would first fetch and parse every schema.
    kubectl(choice, "create", "--validate=false", "-f", "-", text=manifests.bundle(objects))


def _make_kueues_root() -> None:
    """Creates Kueue's root directory; its program is mounted in the control plane's mount namespace only."""
    for directory in _KUEUE_CERTIFICATES:
        shutil.copytree(CERTIFICATES, _KUEUE_ROOT / directory)
    (_KUEUE_ROOT / "tmp").mkdir()
    shutil.copy(KUBECONFIG, _KUEUE_ROOT / "kubeconfig")
    (_KUEUE_ROOT / "manager").touch()
    process.run(["mount", "--bind", binary("kueue", "kueue"), _KUEUE_ROOT / "manager"], inside=CONTROL)


def _serve_visibility(choice: Choice) -> None:
    """Registers Kueue's API server, which serves the positions in queues."""
    objects = manifests.aggregated_at(manifests.load("kueue", "visibility"), _VISIBILITY_PORT)
    _create(choice, objects)
    names = [f"apiservice/{each['metadata']['name']}" for each in objects if each["kind"] == "APIService"]
    # While an aggregated API is unavailable, namespaces cannot be deleted.
    kubectl(choice, "wait", "--for=condition=Available", "--timeout=180s", *names)
