"""The environments and command lines that the real kubelet gives to generated containers, many in each pod."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster.testbed.handle import Cluster
from tests.targets.making import Manifest

PROGRAM = "import json, os, sys; print(json.dumps([dict(os.environ), sys.orig_argv]))"
"""Prints the environment and the command line of its process."""
POD_NAME = "<pod>"
"""Replaces the name of the pod in what its containers get."""
_PER_POD = 25
_AT_ONCE = 6
"""Pods that run at the same time; each container takes 0.3 s of CPU time to start."""


@dataclass(frozen=True)
class Started:
    """What a container's process got.

    Args:
        env: its environment.
        words: its command line.
        image: the image of its container.
    """

    env: Mapping[str, str]
    words: Sequence[str]
    image: str = ""


def started(text: str, image: str = "") -> Started:
    """Reads a line that PROGRAM has printed."""
    env, words = json.loads(text)
    return Started(env, words, image)


def run_all(
    cluster: Cluster, namespace: str, name: str, metadata: Manifest, specs: Sequence[Manifest]
) -> list[Started]:
    """Runs the containers of pod specs, many in each pod, and returns what each has got.

    Args:
        cluster: the cluster.
        namespace: the namespace of the pods.
        name: the prefix of the pods' names, which end with `-1`.
        metadata: the other metadata of the pods.
        specs: pod specs whose only container runs PROGRAM.
    """
    found: list[Started] = []
    parts = [specs[first : first + _PER_POD] for first in range(0, len(specs), _PER_POD)]
    pods = [_pod(f"{name}-{number}-1", metadata, part) for number, part in enumerate(parts)]
    for first in range(0, len(pods), _AT_ONCE):
        wave = pods[first : first + _AT_ONCE]
        for pod in wave:
            cluster.apply(pod, namespace)
        for pod in wave:
            found += _outputs(cluster, namespace, pod)
        for pod in wave:
            cluster.objects.delete(f"pod/{pod['metadata']['name']}", namespace)
    return found


def _pod(name: str, metadata: Manifest, specs: Sequence[Manifest]) -> Manifest:
    """Returns a pod with the containers and volumes of all specs."""
    parts = [_renamed(spec, f"c{index}") for index, spec in enumerate(specs)]
    merged = {field: [row for part in parts for row in part[field]] for field in ("containers", "volumes")}
    spec = {**specs[0], **merged, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": name}, "spec": spec}


def _renamed(spec: Manifest, prefix: str) -> dict[str, list[Any]]:
    (container,) = spec["containers"]
    container = {key: value for key, value in container.items() if key not in ("readinessProbe", "ports")}
    mounts = [{**mount, "name": f"{prefix}-{mount['name']}"} for mount in container.get("volumeMounts", [])]
    volumes = [{**volume, "name": f"{prefix}-{volume['name']}"} for volume in spec.get("volumes", [])]
    return {"containers": [{**container, "name": prefix, "volumeMounts": mounts}], "volumes": volumes}


def _outputs(cluster: Cluster, namespace: str, pod: Manifest) -> Iterator[Started]:
    name = pod["metadata"]["name"]
    containers = {each["name"]: each["image"] for each in pod["spec"]["containers"]}

    def ended() -> bool:
        phase = cluster.get(f"pod/{name}", namespace)["status"].get("phase")
        assert phase != "Failed", [cluster.logs(name, namespace, each) for each in containers]
        return phase == "Succeeded"

    cluster.wait(f"the end of pod {name}", ended, timeout=900)
    for container, image in containers.items():
        yield started(cluster.logs(name, namespace, container).replace(name, POD_NAME), image)
