"""The cluster's API over one connection, for tests with hundreds of requests; each kubectl would be a process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubernetes import client, config

from tests.cluster.testbed.handle import Cluster

Manifest = dict[str, Any]

_PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "PodGroup": "podgroups",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "StatefulSet": "statefulsets",
    "Job": "jobs",
    "JobSet": "jobsets",
    "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
}


class Api:
    """Requests in one namespace.

    Args:
        cluster: the cluster.
        namespace: the namespace of the objects.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.namespace = namespace
        settings = client.Configuration()
        config.load_kube_config(cluster.kubeconfig, client_configuration=settings)
        self._client = client.ApiClient(settings)
        self._served: frozenset[str] = frozenset()

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def serves(self, version: str) -> bool:
        """Whether the server has the kinds of an API version, such as `batch/v1`."""
        if not self._served:
            groups = self._request("GET", "/apis")[1]["groups"]
            self._served = frozenset(each["groupVersion"] for group in groups for each in group["versions"])
        return version in self._served

    def refused(self, manifest: Mapping[str, Any], *, dry_run: bool = True) -> str | None:
        """Creates an object; returns why the server or a webhook refused it, or None.

        Unknown fields are errors. An object that exists already counts as accepted.
        """
        status, reply = self._send(manifest, dry_run)
        return None if status < 300 or reply.get("reason") == "AlreadyExists" else str(reply.get("message"))

    def completed(self, manifest: Mapping[str, Any]) -> Manifest:
        """Returns the object with the server's defaults, by a dry run.

        Raises:
            AssertionError: the server refused.
        """
        status, reply = self._send(manifest, dry_run=True)
        assert status < 300, reply
        return reply

    def items(self, version: str, kind: str) -> list[Manifest]:
        """All objects of a kind.

        Raises:
            AssertionError: the server refused.
        """
        status, reply = self._request("GET", self._path(version, kind))
        assert status == 200, reply
        # The items of a list have no apiVersion and kind.
        return [{"apiVersion": version, "kind": kind, **each} for each in reply["items"]]

    def find(self, version: str, kind: str, name: str) -> Manifest | None:
        """Returns an object; None if there is none.

        Raises:
            AssertionError: the server refused.
        """
        status, reply = self._request("GET", f"{self._path(version, kind)}/{name}")
        assert status in (200, 404), reply
        return reply if status == 200 else None

    def delete(self, version: str, kind: str, name: str) -> None:
        """Deletes an object; a missing object is no error.

        Raises:
            AssertionError: the server refused.
        """
        status, reply = self._request("DELETE", f"{self._path(version, kind)}/{name}")
        assert status < 300 or status == 404, reply

    def _send(self, manifest: Mapping[str, Any], dry_run: bool) -> tuple[int, Manifest]:
        query = "?fieldManager=tests&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return self._request("POST", self._path(manifest["apiVersion"], manifest["kind"]) + query, manifest)

    def _path(self, version: str, kind: str) -> str:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{root}/namespaces/{self.namespace}/{_PLURALS[kind]}"

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Manifest]:
        settings = self._client.configuration
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        reply = self._client.rest_client.pool_manager.request(
            method,
            f"{settings.host}{path}",
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            timeout=60,
        )
        return reply.status, json.loads(reply.data)
