"""A cluster's objects, read and written over one connection; kubectl would start a process for each request.

Objects have kubectl's names: `pods`, `pod/x`, `jobsets`.
"""

from __future__ import annotations

import json
from functools import cached_property
from http.client import CONFLICT, INTERNAL_SERVER_ERROR, NOT_FOUND, TOO_MANY_REQUESTS
from typing import Any
from urllib.parse import urlencode

from tests.waiting import attempts

from .layout import TestbedError

_KINDS = {
    "v1": "ConfigMap Event Namespace Node Pod ResourceQuota Secret Service ServiceAccount",
    "apps/v1": "StatefulSet",
    "batch/v1": "Job",
    "jobset.x-k8s.io/v1alpha2": "JobSet",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding",
    "trainer.kubeflow.org/v1alpha1": "TrainJob TrainingRuntime",
}
_KNOWN = {f"{kind.lower()}s": (version, kind) for version, kinds in _KINDS.items() for kind in kinds.split()}
_WITHOUT_NAMESPACE = ("namespaces", "nodes")
ATTEMPTS_FOR = 120.0
"""Seconds for which a request is repeated that a server did not receive, or that a busy server did not complete."""
_RUNNING = ("jobsets", "trainjobs", "statefulsets", "jobs", "pods")  # owners first: they would replace their pods


def known(what: str) -> bool:
    """Whether `Objects` supports these kinds; kubectl supports all."""
    return all(_plural(each) in _KNOWN for each in what.partition("/")[0].split(","))


class Objects:
    """A client of one cluster's API.

    Args:
        kubeconfig: a path, or several as in KUBECONFIG.
    """

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig

    def get(self, what: str, namespace: str = "", selector: str = "") -> dict[str, Any]:
        """Reads an object ("pod/x") or a list ("pods"), each item with its apiVersion and kind.

        Args:
            what: an object, or one or more kinds separated by commas.
            namespace: the namespace; empty: all.
            selector: a label selector.

        Returns:
            The object, or the list with the metadata of the last kind's list.

        Raises:
            TestbedError: the server refused the request.
        """
        kinds, _, name = what.partition("/")
        if name:
            return self._request("GET", _path(kinds, namespace, name))
        items: list[dict[str, Any]] = []
        about: dict[str, Any] = {}
        for each in kinds.split(","):
            version, kind = _KNOWN[_plural(each)]
            query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
            found = self._request("GET", _path(each, namespace) + query)
            about = found["metadata"]
            items += ({"apiVersion": version, "kind": kind, **item} for item in found["items"])
        return {"apiVersion": "v1", "kind": "List", "metadata": about, "items": items}

    def create(self, manifest: dict[str, Any], namespace: str = "", *, exist_ok: bool = False) -> None:
        """Creates an object; a field that its kind does not have is an error.

        Args:
            manifest: the object with apiVersion and kind.
            namespace: the namespace.
            exist_ok: whether an existing object is no error.

        Raises:
            TestbedError: the server refused the request.
        """
        try:
            self._request("POST", _path(manifest["kind"].lower(), namespace) + "?fieldValidation=Strict", manifest)
        except TestbedError as error:
            if not (exist_ok and "(AlreadyExists)" in str(error)):
                raise

    def delete(self, what: str, namespace: str = "") -> None:
        """Deletes an object ("pod/x") without waiting for the deletion.

        Raises:
            TestbedError: the server refused the request.
        """
        kind, _, name = what.partition("/")
        self._request("DELETE", _path(kind, namespace, name))

    def send(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Sends a request for which there is no other method, such as an eviction.

        Raises:
            TestbedError: the server refused the request.
        """
        self._request(method, path, body)

    def end_pods(self, namespace: str) -> None:
        """Deletes the workloads and pods in a namespace, without waiting for the deletion.

        Raises:
            TestbedError: the server refused the request.
        """
        for kind in _RUNNING:
            self._request("DELETE", _path(kind, namespace) + "?propagationPolicy=Background")

    def logs(self, pod: str, namespace: str, container: str = "") -> str:
        """The whole log of a pod's container; without `container`, of its only one.

        Raises:
            TestbedError: the server refused the request, as it does before the container has started.
        """
        query = f"?container={container}" if container else ""
        return self._send("GET", f"{_path('pods', namespace, pod)}/log{query}").decode("utf-8", "replace")

    def token(self, account: str, namespace: str, seconds: int) -> str:
        """Creates a token of a service account.

        Raises:
            TestbedError: the server refused the request.
        """
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        answer = self._request("POST", _path("serviceaccount", namespace, account) + "/token", wanted)
        return str(answer["status"]["token"])

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._send(method, path, body))
        return found

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        from urllib3.exceptions import HTTPError

        client = self._client
        headers = {
            each["key"]: each["value"] for each in client.configuration.auth_settings().values() if each["value"]
        }
        data = None if body is None else json.dumps(body)
        again = False
        for last in attempts(ATTEMPTS_FOR):
            try:
                answer = client.rest_client.pool_manager.request(
                    method,
                    client.configuration.host + path,
                    body=data,
                    headers={**headers, "Content-Type": "application/json"},
                    timeout=60.0,
                    retries=False,  # urllib3 would hide that an attempt without a reply has deleted the object
                )
            except HTTPError as error:
                if last:
                    raise TestbedError(f"{method} {path}: {error}") from error
            else:
                # 429: too many requests, or a server that has just started and reads its custom resources ("storage is
                # (re)initializing"); for an eviction, a PodDisruptionBudget forbids it. 500: etcd's "request timed out"
                # and "leader changed", or a webhook that does not answer.
                busy = answer.status == TOO_MANY_REQUESTS and not path.endswith("/eviction")
                if last or not (busy or answer.status >= INTERNAL_SERVER_ERROR):
                    break
            again = True
        if again and answer.status == {"DELETE": NOT_FOUND, "POST": CONFLICT}.get(method):
            return b"{}"  # an earlier attempt has deleted or created it
        if answer.status >= 400:
            found = json.loads(answer.data)
            raise TestbedError(f"{method} {path}: Error from server ({found.get('reason')}): {found.get('message')}")
        return bytes(answer.data)

    @cached_property
    def _client(self) -> Any:
        from kubernetes import config

        return config.new_client_from_config(config_file=self._kubeconfig)


def _plural(name: str) -> str:
    return name if name.endswith("s") else f"{name}s"


def _path(kind: str, namespace: str, name: str = "") -> str:
    plural = _plural(kind)
    version, _ = _KNOWN[plural]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    where = f"/namespaces/{namespace}" if namespace and plural not in _WITHOUT_NAMESPACE else ""
    return f"{root}{where}/{plural}" + (f"/{name}" if name else "")
