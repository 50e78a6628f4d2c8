"""The faults that other cluster tests inject have the described effect, and end without a trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.testbed import faults
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice, Node, TestbedError

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive]

# A node is Unknown after 12 s without a heartbeat; the rest is a margin for a busy machine.
NODE_LOST = 120.0


def readiness(cluster: Cluster, node: Node) -> str:
    conditions = cluster.get(f"node/{node.name}")["status"]["conditions"]
    return next(str(entry["status"]) for entry in conditions if entry["type"] == "Ready")


def start_sleeper(cluster: Cluster, namespace: str, node: Node) -> None:
    """Runs a pod on one node that counts seconds until it is killed."""
    script = "import itertools, time\nfor i in itertools.count():\n    print(i, flush=True)\n    time.sleep(1)"
    spec = {**cluster.pod_spec([cluster.python, "-c", script]), "nodeSelector": {"kubernetes.io/hostname": node.name}}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper"}, "spec": spec}, namespace)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "-n", namespace, "--timeout=180s")


def log_lines(cluster: Cluster, namespace: str) -> list[str]:
    try:
        return cluster.logs("sleeper", namespace).split()
    except TestbedError:
        return []


@pytest.fixture
def victim(cluster: Cluster, testbed_choice: Choice) -> Iterator[Node]:
    """The last node; it is repaired and Ready after the test."""
    node = testbed_choice.worker_nodes[-1]
    yield node
    faults.join_network(testbed_choice, node)
    faults.stop_kubelet(testbed_choice, node)
    faults.start_kubelet(testbed_choice, node)
    cluster.wait(f"{node.name} to be Ready again", lambda: readiness(cluster, node) == "True", NODE_LOST)


def test_a_killed_kubelet_makes_its_node_unknown_while_its_containers_continue(
    cluster: Cluster, testbed_choice: Choice, namespace: str, victim: Node
) -> None:
    start_sleeper(cluster, namespace, victim)
    faults.stop_kubelet(testbed_choice, victim)
    cluster.wait(f"{victim.name} to be Unknown", lambda: readiness(cluster, victim) == "Unknown", NODE_LOST)
    faults.start_kubelet(testbed_choice, victim)
    cluster.wait(f"{victim.name} to be Ready", lambda: readiness(cluster, victim) == "True", NODE_LOST)
    # A kubelet that has just started reports its node before it has found its pods; until then it has no logs.
    cluster.wait("the kubelet to serve logs", lambda: bool(log_lines(cluster, namespace)), NODE_LOST)
    assert len(log_lines(cluster, namespace)) > 12, "it counted while the kubelet was down"
    assert cluster.get("pod/sleeper", namespace)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_cut_network_makes_a_node_unknown_until_it_is_joined_again(
    cluster: Cluster, testbed_choice: Choice, victim: Node
) -> None:
    faults.cut_network(testbed_choice, victim)
    cluster.wait(f"{victim.name} to be Unknown", lambda: readiness(cluster, victim) == "Unknown", NODE_LOST)
    faults.join_network(testbed_choice, victim)
    cluster.wait(f"{victim.name} to be Ready", lambda: readiness(cluster, victim) == "True", NODE_LOST)


def test_a_power_failure_ends_the_nodes_containers(
    cluster: Cluster, testbed_choice: Choice, namespace: str, victim: Node
) -> None:
    start_sleeper(cluster, namespace, victim)
    faults.power_off(testbed_choice, victim)
    faults.start_kubelet(testbed_choice, victim)
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/sleeper", "-n", namespace, "--timeout=180s")


def test_counted_gpus_are_allocated_up_to_their_number(
    cluster: Cluster, testbed_choice: Choice, namespace: str
) -> None:
    node = testbed_choice.worker_nodes[0]
    faults.set_gpus(testbed_choice, node, 2, "example.com/gpu")
    for name, count in (("fits", 2), ("waits", 1)):
        spec = cluster.pod_spec(["sleep", "30"])
        spec["containers"][0]["resources"] = {"limits": {"example.com/gpu": count}}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, namespace)
        reason = "PodScheduled" if name == "fits" else "PodScheduled=false"
        cluster.kubectl("wait", f"--for=condition={reason}", f"pod/{name}", "-n", namespace, "--timeout=180s")
    conditions = cluster.get("pod/waits", namespace)["status"]["conditions"]
    assert "Insufficient example.com/gpu" in conditions[0]["message"]


def test_an_unknown_node_is_named_with_the_existing_ones(testbed_choice: Choice) -> None:
    with pytest.raises(TestbedError, match="no node 'node-z'; there are node-a"):
        faults.node_named(testbed_choice, "node-z")
