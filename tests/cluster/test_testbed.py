"""The test cluster works as a real one: nodes, pods, names, webhooks, quotas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice, TestbedError

pytestmark = pytest.mark.cluster


def condition(item: dict[str, Any], kind: str) -> str:
    """The status of one of an object's conditions; empty if it does not have the condition."""
    found = [entry["status"] for entry in item.get("status", {}).get("conditions", []) if entry["type"] == kind]
    return found[0] if found else ""


def jobset(name: str, pod_spec: dict[str, Any], pods: int = 2, labels: dict[str, str] | None = None) -> dict[str, Any]:
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "completionMode": "Indexed"}
    template = {"spec": {**job, "template": {"spec": pod_spec}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"replicatedJobs": [{"name": "node", "template": template}]},
    }


def run_pod(cluster: Cluster, namespace: str, command: list[str]) -> str:
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": cluster.pod_spec(command)}
    cluster.apply(manifest, namespace)
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/one", "-n", namespace, "--timeout=180s")
    return cluster.logs("one", namespace)


class TestNodes:
    @pytest.fixture
    def nodes(self, cluster: Cluster) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.get("nodes", "", "type!=kwok")["items"]
        return found

    def test_every_node_is_ready(self, testbed_choice: Choice, nodes: list[dict[str, Any]]) -> None:
        names = sorted(node["metadata"]["name"] for node in nodes)
        assert names == [worker.name for worker in testbed_choice.worker_nodes]
        assert {condition(node, "Ready") for node in nodes} == {"True"}

    def test_they_run_the_chosen_minor_version(self, testbed_choice: Choice, nodes: list[dict[str, Any]]) -> None:
        versions = {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes}
        assert {version.rpartition(".")[0] for version in versions} == {f"v{testbed_choice.kubernetes}"}


class TestPods:
    def test_a_pod_runs_and_its_log_is_read(self, cluster: Cluster, namespace: str) -> None:
        assert run_pod(cluster, namespace, [cluster.python, "-c", "print(6 * 7)"]) == "42\n"

    def test_a_pod_reaches_the_api_server_by_its_service_name_and_is_refused_requests_without_rights(
        self, cluster: Cluster, namespace: str
    ) -> None:
        script = """
import ssl, urllib.error, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = open(account + "token").read()
context = ssl.create_default_context(cafile=account + "ca.crt")
for path in ("/version", "/api/v1/nodes"):
    url = "https://kubernetes.default.svc" + path
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
    try:
        print(urllib.request.urlopen(request, context=context).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""
        assert run_pod(cluster, namespace, [cluster.python, "-c", script]).split() == ["200", "403"]

    def test_exceeding_the_memory_limit_is_reported_as_oom_killed(self, cluster: Cluster, namespace: str) -> None:
        spec = cluster.pod_spec([cluster.python, "-c", "x = bytearray(200_000_000); print(len(x))"])
        spec["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"}, "spec": spec}, namespace)
        cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/big", "-n", namespace, "--timeout=180s")
        terminated = cluster.get("pod/big", namespace)["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["reason"], terminated["exitCode"]) == ("OOMKilled", 137)


class TestJobSets:
    # Each pod looks up both names until they resolve, and prints the addresses.
    RESOLVE = """
import socket, time
for index in (0, 1):
    name = f"pair-node-0-{index}.pair"
    deadline = time.monotonic() + 120
    while True:
        try:
            print(socket.gethostbyname(name))
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
time.sleep(2)  # the peer may still look up this pod's name, which is removed when the pod ends
"""

    def test_two_pods_resolve_each_others_names(self, cluster: Cluster, namespace: str) -> None:
        cluster.apply(jobset("pair", cluster.pod_spec([cluster.python, "-c", self.RESOLVE])), namespace)
        cluster.kubectl("wait", "--for=condition=Completed", "jobset/pair", "-n", namespace, "--timeout=180s")
        pods = cluster.get("pods", namespace)["items"]
        found = {tuple(cluster.logs(pod["metadata"]["name"], namespace).split()) for pod in pods}
        addresses = {pod["status"].get("podIP") for pod in pods}
        assert len(pods) == 2
        assert len(found) == 1, "both pods see the same two addresses"
        assert set(found.pop()) == addresses

    def test_pods_of_one_jobset_on_two_nodes_reach_each_other(
        self, cluster: Cluster, testbed_choice: Choice, namespace: str
    ) -> None:
        if testbed_choice.nodes < 2:
            pytest.skip("needs two nodes (STEPSET_NODES)")
        script = """
import os, socket, time
if os.environ["JOB_COMPLETION_INDEX"] == "0":
    server = socket.create_server(("", 29500))
    server.settimeout(120)
    print(server.accept()[0].recv(9).decode())
else:
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("far-node-0-0.far", 29500), timeout=2).sendall(b"over")
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
"""
        spec = cluster.pod_spec([cluster.python, "-c", script])
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "far"}},
                "nodeTaintsPolicy": "Honor",
            }
        ]
        cluster.apply(jobset("far", spec), namespace)
        cluster.kubectl("wait", "--for=condition=Completed", "jobset/far", "-n", namespace, "--timeout=180s")
        pods = cluster.get("pods", namespace)["items"]
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
        assert sorted(cluster.logs(pod["metadata"]["name"], namespace) for pod in pods) == ["", "over\n"]

    def test_the_webhook_refuses_a_jobset_whose_names_would_be_too_long(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(TestbedError, match="pod names generated for this JobSet will exceed 63 characters"):
            cluster.apply(jobset("x" * 63, cluster.pod_spec(["true"])), namespace)


class TestTrainer:
    def test_its_webhook_rejects_a_trainjob_whose_runtime_does_not_exist(
        self, cluster: Cluster, namespace: str
    ) -> None:
        trainjob = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "nonsense"},
            "spec": {"runtimeRef": {"name": "no-such-runtime"}},
        }
        with pytest.raises(TestbedError, match="no-such-runtime"):
            cluster.apply(trainjob, namespace)

    def test_a_trainjob_becomes_a_jobset(self, cluster: Cluster, namespace: str) -> None:
        trainjob = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "small"},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True, "trainer": {"numNodes": 3}},
        }
        cluster.apply(trainjob, namespace)
        cluster.kubectl("wait", "--for=create", "jobset/small", "-n", namespace, "--timeout=180s")
        replicated = cluster.get("jobset/small", namespace)["spec"]["replicatedJobs"]
        assert [job["template"]["spec"]["parallelism"] for job in replicated] == [3]


class TestKueue:
    @pytest.fixture
    def queue(self, cluster: Cluster, testbed_choice: Choice, namespace: str) -> Any:
        """A local queue with a quota of one CPU, so that the second of two jobs with one CPU waits."""
        if not testbed_choice.kueue:
            pytest.skip("Kueue is switched off (STEPSET_KUEUE=0)")
        api = "kueue.x-k8s.io/v1beta2"
        quota = [{"name": namespace, "resources": [{"name": "cpu", "nominalQuota": 1}]}]
        groups = [{"coveredResources": ["cpu"], "flavors": quota}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        cluster.apply({"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": namespace}})
        cluster.apply({"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": namespace}, "spec": spec})
        local = {"metadata": {"name": "queue"}, "spec": {"clusterQueue": namespace}}
        cluster.apply({"apiVersion": api, "kind": "LocalQueue", **local}, namespace)
        yield "queue"
        cluster.kubectl("delete", "clusterqueue", namespace, "--wait=false")
        cluster.kubectl("delete", "resourceflavor", namespace, "--wait=false")

    def test_a_jobset_beyond_the_quota_waits_suspended_and_runs_when_there_is_room(
        self, cluster: Cluster, namespace: str, queue: str
    ) -> None:
        def start(name: str, command: list[str]) -> None:
            spec = cluster.pod_spec(command)
            spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
            cluster.apply(jobset(name, spec, pods=1, labels={"kueue.x-k8s.io/queue-name": queue}), namespace)

        def no_room() -> bool:
            workloads = cluster.get("workloads", namespace)["items"]
            return "False" in [condition(each, "QuotaReserved") for each in workloads]

        start("first", ["sleep", "600"])
        cluster.kubectl(
            "wait", "--for=jsonpath={.spec.suspend}=false", "jobset/first", "-n", namespace, "--timeout=180s"
        )
        start("second", ["true"])
        cluster.wait("Kueue to find no room", no_room)
        assert cluster.get("jobset/second", namespace)["spec"]["suspend"] is True
        cluster.kubectl("delete", "jobset/first", "-n", namespace, "--wait=false")
        cluster.kubectl("wait", "--for=condition=Completed", "jobset/second", "-n", namespace, "--timeout=180s")

    def test_fields_newer_than_kueues_own_jobset_types_survive_its_webhook_and_its_admission(
        self, cluster: Cluster, namespace: str, queue: str
    ) -> None:
        claim = {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        }
        spec = cluster.pod_spec(["true"])
        spec["containers"][0].setdefault("volumeMounts", []).append({"name": "data", "mountPath": "/data"})
        manifest = jobset("kept", spec, pods=1, labels={"kueue.x-k8s.io/queue-name": queue})
        # Kueue 0.16 is built with JobSet 0.10's types, which do not have this field.
        manifest["spec"]["volumeClaimPolicies"] = [{"templates": [claim]}]
        cluster.apply(manifest, namespace)
        cluster.kubectl(
            "wait", "--for=jsonpath={.spec.suspend}=false", "jobset/kept", "-n", namespace, "--timeout=180s"
        )
        policies = cluster.get("jobset/kept", namespace)["spec"]["volumeClaimPolicies"]
        assert [template["metadata"]["name"] for template in policies[0]["templates"]] == ["data"]

    def test_a_trainjob_in_a_queue_is_admitted_as_one_workload(
        self, cluster: Cluster, namespace: str, queue: str
    ) -> None:
        trainjob = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "queued", "labels": {"kueue.x-k8s.io/queue-name": queue}},
            "spec": {
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
            },
        }
        cluster.apply(trainjob, namespace)
        cluster.wait("its workload", lambda: bool(cluster.get("workloads", namespace)["items"]))
        workload = cluster.get("workloads", namespace)["items"][0]
        assert [(pods["name"], pods["count"]) for pods in workload["spec"]["podSets"]] == [("node", 2)]
        assert cluster.get("trainjob/queued", namespace)["spec"]["suspend"] is True, "requests 2 CPUs; the quota is 1"
