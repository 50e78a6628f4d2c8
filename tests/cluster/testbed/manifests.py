"""Rendered manifests, changed so that a controller outside the cluster serves their webhooks.

Pure functions of lists of objects; only `load` reads a file.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection
from typing import Any

from .build import component_directory

Object = dict[str, Any]


def load(component: str, name: str) -> list[Object]:
    """The objects of one rendered kustomize directory."""
    objects: list[Object] = json.loads((component_directory(component) / "manifests" / f"{name}.json").read_text())
    return objects


def bundle(objects: list[Object]) -> str:
    """Returns several objects as one document for kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def without_descriptions(value: Any) -> Any:
    """Removes a schema's descriptions: most of a definition, and a third of the API server's work at its start."""
    if isinstance(value, dict):
        # A property named "description" is a mapping, not a text.
        kept = {key: item for key, item in value.items() if key != "description" or not isinstance(item, str)}
        return {key: without_descriptions(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [without_descriptions(item) for item in value]
    return value


def served_at(objects: list[Object], url: str, ca_bundle: str) -> list[Object]:
    """Points every webhook and conversion at a URL instead of a Service in the cluster.

    Args:
        objects: custom resource definitions and webhook configurations.
        url: the controller's address without a path, such as https://127.0.0.1:9443.
        ca_bundle: base64 of the PEM certificate that signed the controller's.
    """
    changed = copy.deepcopy(objects)
    for item in changed:
        clients = [webhook["clientConfig"] for webhook in item.get("webhooks", [])]
        conversion = item.get("spec", {}).get("conversion", {}) if item["kind"] == "CustomResourceDefinition" else {}
        if conversion.get("strategy") == "Webhook":
            clients.append(conversion["webhook"]["clientConfig"])
        for client in clients:
            service = client.pop("service", {})
            client.update(url=url + service.get("path", ""), caBundle=ca_bundle)
    return changed


def aggregated_at(objects: list[Object], port: int) -> list[Object]:
    """The APIServices of a component, each with a Service (and its Namespace) that leads to this machine.

    The API server reaches an aggregated API server through a Service; only a Service of type ExternalName needs no pod.

    Args:
        objects: the component's objects; only APIServices are used.
        port: the port of the component's API server on the API server's loopback.
    """
    services = copy.deepcopy([item for item in objects if item["kind"] == "APIService"])
    places = {(item["spec"]["service"]["namespace"], item["spec"]["service"]["name"]) for item in services}
    for item in services:
        item["spec"]["service"]["port"] = port
    made: list[Object] = []
    for namespace, name in sorted(places):
        made += [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            },
        ]
    return [*made, *services]


def webhook_configurations(objects: list[Object], component: str) -> list[Object]:
    """Only the webhook configurations; names that all kubebuilder projects share are prefixed with the component."""
    kept = copy.deepcopy([item for item in objects if item["kind"].endswith("WebhookConfiguration")])
    for item in kept:
        if not item["metadata"]["name"].endswith("kubeflow.org"):
            item["metadata"]["name"] = f"{component}-{item['metadata']['name']}"
        item["metadata"].pop("namespace", None)
    return kept


def only(objects: list[Object], names: Collection[str]) -> list[Object]:
    """Keeps only the named webhooks of each configuration, and drops configurations without any."""
    kept = []
    for item in objects:
        webhooks = [webhook for webhook in item["webhooks"] if webhook["name"] in names]
        if webhooks:
            kept.append({**item, "webhooks": webhooks})
    return kept
