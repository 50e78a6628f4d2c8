"""Creates those Kubernetes objects of a KFP installation that are needed to run pipelines.

The endpoints of the Services are processes of this machine.
"""

from __future__ import annotations

from typing import Any

import yaml
from tests.cluster.testbed.layout import CONTROL_ADDRESS

from stepset.targets.rbac import Account, rbac

from . import admission
from .layout import (
    ACCESS_KEY,
    ACCOUNT,
    BUCKET,
    GRPC_PORT,
    HTTP_PORT,
    METADATA_PORT,
    NAMESPACE,
    SECRET_KEY,
    STORAGE_PORT,
)

Object = dict[str, Any]
_SECRET = "mlpipeline-minio-artifact"

CONTROLLER_SETTINGS = {
    # manifests/kustomize/third-party/argo/base/workflow-controller-configmap-patch.yaml of KFP 2.17.0
    "artifactRepository": {
        "archiveLogs": True,
        "s3": {
            "endpoint": f"seaweedfs.{NAMESPACE}.svc:9000",
            "bucket": BUCKET,
            "keyFormat": "private-artifacts/{{workflow.namespace}}/{{workflow.name}}/{{pod.name}}",
            "insecure": True,
            "accessKeySecret": {"name": _SECRET, "key": "accesskey"},
            "secretKeySecret": {"name": _SECRET, "key": "secretkey"},
        },
    },
    "executor": {
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    },
    "workflowDefaults": {
        "spec": {
            "ttlStrategy": {
                "secondsAfterCompletion": 3600,
                "secondsAfterSuccess": 3600,
                "secondsAfterFailure": 3600,
            },
            "templateDefaults": {"retryStrategy": {"limit": "2", "retryPolicy": "OnError"}},
        }
    },
}
CONTROLLER_MAP = "workflow-controller-configmap"


def objects() -> list[Object]:
    """Returns the objects in the order in which they must be created. The namespace is the first object."""
    return [
        _object("v1", "Namespace", NAMESPACE),
        _object("v1", "ServiceAccount", ACCOUNT),
        _object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "pipeline-runner-binding",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            subjects=[{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        ),
        _object("v1", "Secret", _SECRET, stringData={"accesskey": ACCESS_KEY, "secretkey": SECRET_KEY}),
        *_service("ml-pipeline", {"grpc": (GRPC_PORT, GRPC_PORT), "http": (HTTP_PORT, HTTP_PORT)}),
        *_service("metadata-grpc-service", {"grpc": (8080, METADATA_PORT)}),
        *_service("minio-service", {"http": (9000, STORAGE_PORT)}),
        *_service("seaweedfs", {"http": (9000, STORAGE_PORT)}),
        _object(
            "v1",
            "ConfigMap",
            CONTROLLER_MAP,
            data={key: yaml.safe_dump(value, sort_keys=False) for key, value in CONTROLLER_SETTINGS.items()},
        ),
        *rbac("kfp", gang="kueue", mpi=True, orphan=True, namespace=NAMESPACE, accounts=[Account(ACCOUNT)]),
        *admission.policy(),
    ]


def _object(version: str, kind: str, name: str, **content: Any) -> Object:
    where = {} if kind == "Namespace" else {"namespace": NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **where}, **content}


def _service(name: str, ports: dict[str, tuple[int, int]]) -> tuple[Object, Object]:
    """Returns a Service without a selector, and its endpoints with the address of the control plane.

    Args:
        name: the name of the Service.
        ports: a mapping from the name of each port to two numbers: the port of the Service, and the port on which the
            process listens.
    """
    listed = [{"name": port, "port": own, "targetPort": target} for port, (own, target) in ports.items()]
    slices = _object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        f"{name}-1",
        addressType="IPv4",
        ports=[{"name": port, "port": target} for port, (_, target) in ports.items()],
        endpoints=[{"addresses": [CONTROL_ADDRESS]}],
    )
    slices["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    return _object("v1", "Service", name, spec={"ports": listed}), slices
