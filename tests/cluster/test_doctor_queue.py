"""`stepset doctor --queue`: a LocalQueue of a real Kueue, its ClusterQueue, and the permissions of an account."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.cluster.queues import apply_objects, queue
from tests.cluster.runs import ACCOUNT, STEPSET, Runs
from tests.cluster.testbed.handle import Cluster

pytestmark = pytest.mark.cluster


def finding_of(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    """What the administrator's `stepset doctor --queue` finds about a queue."""
    words = [
        str(STEPSET),
        "doctor",
        "--backend",
        "kubernetes",
        "--kubeconfig",
        cluster.kubeconfig,
        "--namespace",
        namespace,
    ]
    done = subprocess.run([*words, "--queue", name, "-o", "json"], capture_output=True, text=True, timeout=120)
    (found,) = [each for each in json.loads(done.stdout)["items"] if each["check"] == "queue"]
    assert isinstance(found, dict)
    assert done.returncode == 1 or found["state"] != "problem", done.stderr
    return found


def apply_fix(cluster: Cluster, command: str) -> None:
    """Runs the command of a finding as the administrator."""
    env = {**os.environ, "KUBECONFIG": cluster.kubeconfig}
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=60, env=env)


def test_each_problem_has_the_command_that_fixes_it(cluster: Cluster, namespace: str) -> None:
    with queue(cluster, namespace, 1) as name:
        active = f"LocalQueue {name} and its ClusterQueue {namespace} are active"
        cluster.wait("an active queue", lambda: finding_of(cluster, namespace, name)["text"] == active)
        for kind, of in (("localqueue", ["-n", namespace]), ("clusterqueue", [])):
            queue_name = name if of else namespace
            cluster.kubectl("patch", kind, queue_name, *of, "--type=merge", "-p", '{"spec": {"stopPolicy": "Hold"}}')
            cluster.wait("the stop", lambda: finding_of(cluster, namespace, name)["state"] == "problem")
            stopped = finding_of(cluster, namespace, name)
            assert "stopped" in stopped["text"].lower()
            apply_fix(cluster, stopped["fix"])
            cluster.wait("the fix", lambda: finding_of(cluster, namespace, name)["text"] == active)
        missing = finding_of(cluster, namespace, "nope")
        assert (
            missing["text"] == f"LocalQueue nope does not exist in namespace {namespace}; use one that exists: {name}"
        )
        apply_fix(cluster, missing["fix"].replace("CLUSTER_QUEUE", namespace))
        cluster.wait("the new queue", lambda: finding_of(cluster, namespace, "nope")["state"] == "ok")
        local = {"kind": "LocalQueue", "metadata": {"name": "without"}, "spec": {"clusterQueue": f"{namespace}-none"}}
        apply_objects(cluster, namespace, local)
        assert finding_of(cluster, namespace, "without")["text"].endswith("of LocalQueue without does not exist")


def test_an_account_with_the_role_of_a_queue_reads_only_the_local_queue(runs: Runs) -> None:
    with queue(runs.cluster, runs.namespace, 1) as name:
        runs.cluster.wait("the queue", lambda: "Ready" in json.dumps(runs.get("localqueue")))
        done = runs.cli("doctor", "--queue", name)
        assert f"ok: queue: LocalQueue {name} is active; you may not read its ClusterQueue" in done.stdout
        words = ["-n", runs.namespace, "--type=json", "-p", '[{"op": "replace", "path": "/rules", "value": []}]']
        runs.cluster.kubectl("patch", "role", "stepset-kueue", *words)
        runs.cluster.wait("the revocation", lambda: "you may not read" in runs.cli("doctor", "--queue", "nope").stdout)
        done = runs.cli("doctor", "--queue", name)
        assert (
            f"note: queue: you may not read LocalQueue {name}, so it was not checked\n  fix: stepset rbac --namespace"
            f" {runs.namespace} --target jobset --gang kueue --account {runs.namespace}/{ACCOUNT} | kubectl apply -f -"
        ) in done.stdout
        assert "may not get, list, watch workloads.kueue.x-k8s.io" in done.stdout and "--gang kueue" in done.stdout
        assert done.returncode == 0


def test_a_missing_resource_flavor_has_the_command_that_creates_it(cluster: Cluster, namespace: str) -> None:
    if cluster.choice is None or not cluster.choice.kueue:
        pytest.skip("needs the test cluster with Kueue (STEPSET_KUEUE=1)")
    flavor = {"name": namespace, "resources": [{"name": "cpu", "nominalQuota": 1}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
    apply_objects(
        cluster,
        namespace,
        {"kind": "ClusterQueue", "metadata": {"name": namespace}, "spec": spec},
        {"kind": "LocalQueue", "metadata": {"name": "team-a"}, "spec": {"clusterQueue": namespace}},
    )
    try:
        cluster.wait("Kueue's condition", lambda: "FlavorNotFound" in finding_of(cluster, namespace, "team-a")["text"])
        apply_fix(cluster, finding_of(cluster, namespace, "team-a")["fix"])
        cluster.wait("the fix", lambda: finding_of(cluster, namespace, "team-a")["state"] == "ok")
    finally:
        cluster.kubectl("delete", "clusterqueue,resourceflavor", namespace, "--wait=false", "--ignore-not-found")
