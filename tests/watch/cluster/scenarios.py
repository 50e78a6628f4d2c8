"""The scenarios of the recorded streams: one function per scenario, which runs on a cluster."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

from stepset.targets.names import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY
from stepset.targets.pods.strategic_merge import merge
from tests.cluster.testbed import faults
from tests.cluster.testbed.handle import Cluster
from tests.targets.making import Manifest, rendered

RESULT = "import json, os; open(os.environ['STEPSET_RESULT_FILE'], 'w').write(json.dumps({}))\n"
RANK = "import os, sys, time; rank = int(os.environ['RANK']); attempt = os.environ['STEPSET_ATTEMPT']\n"
TORCH: Manifest = {"kind": "torch", "launcher": "none"}
_QUICK = {"terminationGracePeriodSeconds": 2}
"""For commands that do not end on SIGTERM."""
SLOT = "stepset.test/slot"
"""An extended resource of this test, which no other pods use."""

SCENARIOS: dict[str, Callable[[Stage], None]] = {}


class Stage:
    """A namespace in which a scenario creates and changes a run with the name `run`."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.name = namespace
        self._undo: list[Callable[[], object]] = []

    def start(self, target: str = "jobset", *, image: str = "", policy: str = "", **job: Any) -> None:
        """Renders and applies a job; by default, it has two pods with one rank each."""
        template = merge(self.cluster.pod_template(), {"spec": job.pop("pod_template", {})})
        if policy:
            template["spec"]["containers"][0]["imagePullPolicy"] = policy
        given = {"framework": TORCH, "num_nodes": 2, "procs_per_node": 1, "namespace": self.name, **job}
        objects = rendered(target, name="run", image=image or self.cluster.image, pod_template=template, **given)
        self.apply(*(self._with_keys(each) for each in objects))

    def _with_keys(self, each: Manifest) -> Manifest:
        if each["kind"] != "Secret":
            return each
        with tempfile.TemporaryDirectory() as directory:
            key = Path(directory, "key")
            words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", str(key)]
            subprocess.run(words, check=True)
            public = key.with_suffix(".pub").read_text()
            return {**each, "stringData": {SSH_PRIVATE_KEY: key.read_text(), SSH_PUBLIC_KEY: public}}

    def apply(self, *objects: Manifest) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", "-f", "-", text=text)

    def kubectl(self, *words: str, text: str = "") -> str:
        return self.cluster.kubectl(*words, "-n", self.name, text=text)

    def get(self, what: str, selector: str = "") -> Any:
        return self.cluster.get(what, self.name, selector)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        self.cluster.wait(what, condition)

    def pods(self, group: str = "node") -> list[Manifest]:
        found = self.get("pods", f"stepset.dev/run=run,stepset.dev/group={group}")["items"]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def running(self, count: int = 2) -> None:
        """Waits until `count` pods run."""
        self.wait("running pods", lambda: len(self._running()) == count)
        # Before its agent has started, a pod does not react to SIGTERM.
        for name in self._running():
            self.wait(f"the ranks of {name}", lambda name=name: '"started"' in self.kubectl("logs", name, "-c", "node"))

    def _running(self) -> list[str]:
        pods = self.get("pods")["items"]
        return [each["metadata"]["name"] for each in pods if each["status"]["phase"] == "Running"]

    def conditions(self, kind: str = "jobset") -> dict[str, str]:
        found = self.get(f"{kind}/run").get("status", {}).get("conditions", [])
        return {row["type"]: row["status"] for row in found}

    def over(self, kind: str = "jobset") -> None:
        """Waits until the workload has ended."""
        ends = ("Completed", "Complete", "Failed")
        self.wait(f"the {kind}'s end", lambda: any(self.conditions(kind).get(name) == "True" for name in ends))

    def event(self, reason: str, count: int = 1) -> None:
        """Waits until there are `count` events with a reason."""

        def found() -> int:
            return sum(each["reason"] == reason for each in self.get("events")["items"])

        self.wait(f"event {reason}", lambda: found() >= count)

    def evict(self, pod: str) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.name}}
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        self.cluster.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))

    def patch(self, what: str, change: Manifest) -> None:
        self.kubectl("patch", what, "--type=merge", "--patch", json.dumps(change))

    def afterwards(self, undo: Callable[[], object]) -> None:
        """Registers a function that `close` calls to restore the cluster."""
        self._undo.append(undo)

    def close(self) -> None:
        for undo in reversed(self._undo):
            undo()


def scenario(function: Callable[[Stage], None]) -> Callable[[Stage], None]:
    SCENARIOS[function.__name__] = function
    return function


# --- ends


@scenario
def jobset_succeeds(stage: Stage) -> None:
    code = "import time; time.sleep(1);" + RESULT.format("{'loss': 0.25, 'world': os.environ['WORLD_SIZE']}")
    stage.start(function=code, procs_per_node=2, restart={"max_restarts": 1})
    stage.over()


@scenario
def jobset_fails(stage: Stage) -> None:
    stage.start(function=RANK + "time.sleep(2)\nif rank == 1: raise ValueError('bad learning rate')\ntime.sleep(600)")
    stage.over()


@scenario
def jobset_fails_in_the_aftermath(stage: Stage) -> None:
    """Rank 1 crashes; rank 0 fails because it is connected to rank 1; both end at almost the same time."""
    code = RANK + (
        "import socket, ctypes\n"
        "if rank == 0:\n"
        "    server = socket.create_server(('', 29500)); peer, _ = server.accept()\n"
        "    while peer.recv(10): pass\n"
        "    raise ConnectionResetError(104, 'Connection reset by peer')\n"
        "while True:\n"
        "    try: peer = socket.create_connection((os.environ['MASTER_ADDR'], 29500)); break\n"
        "    except OSError: time.sleep(0.1)\n"
        "peer.send(b'x'); time.sleep(1); ctypes.string_at(0)\n"
    )
    stage.start(function=code)
    stage.over()


@scenario
def jobset_runs_out_of_memory(stage: Stage) -> None:
    code = RANK + "if rank == 1: data = b'x' * (2 << 30)\ntime.sleep(600)"
    stage.start(function=code, resources_per_node={"cpu": "100m", "memory": "300Mi"})
    stage.over()


@scenario
def jobset_is_killed(stage: Stage) -> None:
    stage.start(function=RANK + "import signal\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(600)")
    stage.over()


@scenario
def jobset_exits_with_137(stage: Stage) -> None:
    """Without the agent, so that only the kubelet reports the reason."""
    code = "import os, time\nif os.environ['RANK'] == '1': os._exit(137)\ntime.sleep(600)"
    stage.start(function=code, agent=False, pod_template=_QUICK)
    stage.over()


@scenario
def jobset_without_the_agent_fails(stage: Stage) -> None:
    code = "import os, time\nif os.environ['RANK'] == '1': raise KeyError('lr')\ntime.sleep(600)"
    stage.start(function=code, agent=False, pod_template=_QUICK)
    stage.over()


@scenario
def jobset_without_the_agent_crashes(stage: Stage) -> None:
    code = "import ctypes, os, time\nif os.environ['RANK'] == '1': ctypes.string_at(0)\ntime.sleep(600)"
    stage.start(function=code, agent=False, pod_template=_QUICK)
    stage.over()


@scenario
def jobset_starts_again_and_succeeds(stage: Stage) -> None:
    code = RANK + "time.sleep(1)\nif attempt == '0' and rank == 1: raise ValueError('once')\n" + RESULT.format("1")
    stage.start(function=code, restart={"max_restarts": 2})
    stage.over()


@scenario
def jobset_uses_up_its_restarts(stage: Stage) -> None:
    code = RANK + "time.sleep(1)\nif rank == 1: raise ValueError('attempt ' + attempt)\ntime.sleep(600)"
    stage.start(function=code, restart={"max_restarts": 1})
    stage.over()


@scenario
def jobset_is_evicted_and_starts_again(stage: Stage) -> None:
    stage.start(function=RANK + "time.sleep(600 * (attempt == '0'))\n" + RESULT.format("attempt"))
    stage.running()
    stage.evict(stage.pods()[1]["metadata"]["name"])
    stage.over()


@scenario
def jobset_pod_is_deleted(stage: Stage) -> None:
    stage.start(function="import time; time.sleep(600)")
    stage.running()
    stage.kubectl("delete", "pod", stage.pods()[1]["metadata"]["name"], "--wait=false")
    stage.over()


@scenario
def jobset_is_deleted(stage: Stage) -> None:
    stage.start(function="import time; time.sleep(600)")
    stage.running()
    stage.kubectl("delete", "jobset", "run")


@scenario
def jobset_is_deleted_in_the_foreground(stage: Stage) -> None:
    stage.start(function="import time; time.sleep(600)")
    stage.running()
    stage.kubectl("delete", "jobset", "run", "--cascade=foreground")


@scenario
def jobset_is_suspended_and_resumed(stage: Stage) -> None:
    stage.start(function=RANK + "time.sleep(8)")
    stage.running()
    stage.patch("jobset/run", {"spec": {"suspend": True}})
    stage.wait("its pods' end", lambda: not stage.pods())
    stage.patch("jobset/run", {"spec": {"suspend": False}})
    stage.over()


@scenario
def jobset_takes_too_long(stage: Stage) -> None:
    stage.start(function="import time; time.sleep(600)", deadline="4s", restart={"max_restarts": 2})
    stage.over()


@scenario
def jobset_leaves_too_large_a_result(stage: Stage) -> None:
    stage.start(function=RESULT.format("'x' * 5000"), restart={"max_restarts": 3})
    stage.over()


@scenario
def jobset_fails_before_its_nodes(stage: Stage) -> None:
    role = {"name": "prepare", "before": True, "command": [stage.cluster.python, "-c", "raise OSError('no such data')"]}
    stage.start(function="pass", roles=[role])
    stage.over()


@scenario
def jobset_with_a_role_succeeds(stage: Stage) -> None:
    sleep = [stage.cluster.python, "-c", "import time; time.sleep(600)"]
    roles = [
        {"name": "prepare", "before": True, "command": [stage.cluster.python, "-c", "print('ready')"]},
        {"name": "monitor", "command": sleep},
    ]
    stage.start(function=RANK + "time.sleep(2)\n" + RESULT.format("[1, 2]"), roles=roles)
    stage.over()


@scenario
def jobset_has_failing_sidecars(stage: Stage) -> None:
    mounts = stage.cluster.pod_template()["spec"]["containers"][0]
    fails = "raise SystemExit(5)"
    stopped = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); time.sleep(600)"
    sidecars = [
        {**mounts, "name": name, "image": stage.cluster.image, "command": [stage.cluster.python, "-c", code]}
        for name, code in (("failing", fails), ("stopped", stopped))
    ]
    code = RANK + "time.sleep(16)\n" + RESULT.format("[3]")
    stage.start(function=code, pod_template={"containers": sidecars})
    stage.over()


@scenario
def ended_by_its_node_beside_a_sidecar(stage: Stage) -> None:
    """The rank ends with 0; the pod's own deadline passes while the kubelet waits for the sidecar."""
    mounts = stage.cluster.pod_template()["spec"]["containers"][0]
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    sidecar = {
        **mounts,
        "name": "exporter",
        "image": stage.cluster.image,
        "command": [stage.cluster.python, "-c", ignores],
    }
    template = {"containers": [sidecar], "activeDeadlineSeconds": 15, "terminationGracePeriodSeconds": 30}
    stage.start(function="pass", num_nodes=1, pod_template=template)
    stage.over()


@scenario
def sidecar_never_starts(stage: Stage) -> None:
    mounts = stage.cluster.pod_template()["spec"]["containers"][0]
    code = "raise SystemExit(5)"
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 100}
    sidecar = {
        **mounts,
        "name": "exporter",
        "image": stage.cluster.image,
        "command": [stage.cluster.python, "-c", code],
        "startupProbe": probe,
    }
    stage.start(function="pass", num_nodes=1, pod_template={"containers": [sidecar]})

    def backs_off() -> bool:
        rows = [row for pod in stage.pods() for row in pod["status"].get("initContainerStatuses", ())]
        return any(row["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" for row in rows)

    stage.wait("the back-off of the sidecar", backs_off)


@scenario
def jobset_fails_before_its_containers(stage: Stage) -> None:
    mounts = stage.cluster.pod_template()["spec"]["containers"][0]
    init = {
        **mounts,
        "name": "fetch",
        "image": stage.cluster.image,
        "command": [stage.cluster.python, "-c", "raise SystemExit(4)"],
    }
    stage.start(function="pass", pod_template={"initContainers": [init]})
    stage.over()


# --- what keeps a run from starting


@scenario
def no_room(stage: Stage) -> None:
    stage.start(function="pass", scheduling={"node_selector": {"stepset.test/nowhere": "1"}})
    stage.event("FailedScheduling", 2)


@scenario
def no_image(stage: Stage) -> None:
    stage.start(function="pass", image="registry.invalid/train:1", policy="IfNotPresent")
    stage.wait("the back-off", lambda: "ImagePullBackOff" in json.dumps(stage.pods()))


@scenario
def image_never_pulled(stage: Stage) -> None:
    stage.start(function="pass", image="registry.invalid/train:1", policy="Never")
    stage.wait("the refusal", lambda: json.dumps(stage.pods()).count("ErrImageNeverPull") >= 2)


@scenario
def image_misspelt(stage: Stage) -> None:
    stage.start(function="pass", image="registry.invalid/Train:1", policy="IfNotPresent")
    stage.wait("the refusal", lambda: json.dumps(stage.pods()).count("InvalidImageName") >= 2)


@scenario
def quota_exceeded_for_a_while(stage: Stage) -> None:
    stage.apply(_quota(1))
    stage.start(function="import time; time.sleep(2)")
    stage.event("FailedCreate")
    stage.apply(_quota(4))
    stage.over()


@scenario
def statefulset_exceeds_a_quota(stage: Stage) -> None:
    stage.apply(_quota(1))
    stage.start("statefulset", function="import time; time.sleep(600)")
    stage.event("FailedCreate")


def _quota(pods: int) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": str(pods)}},
    }


@scenario
def pods_refused_by_policy(stage: Stage) -> None:
    stage.cluster.kubectl("label", "namespace", stage.name, "pod-security.kubernetes.io/enforce=restricted")
    stage.start(function="pass")
    stage.event("FailedCreate")


@scenario
def pods_refused_by_a_rule_of_the_clusters(stage: Stage) -> None:
    """An admission policy, which rejects pods as a webhook would, but needs no server."""
    name = stage.name
    group = {"apiVersion": "admissionregistration.k8s.io/v1"}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    policy = {
        **group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "'team' in object.metadata.labels", "message": "every pod names its team"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    binding = {
        **group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    for each in (policy, binding):
        stage.cluster.apply(each)
        stage.afterwards(lambda kind=each["kind"]: stage.cluster.kubectl("delete", kind, name))
    probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": {"a": "b"}}}
    probe["spec"] = {"containers": [{"name": "node", "image": "x"}]}
    stage.wait("the rule", lambda: _refused(stage, probe))
    stage.start(function="pass")
    stage.event("FailedCreate")


def _refused(stage: Stage, pod: Manifest) -> bool:
    from tests.cluster.testbed.layout import TestbedError

    try:
        stage.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(pod))
    except TestbedError:
        return True
    return False


@scenario
def secret_missing_for_a_while(stage: Stage) -> None:
    stage.start(function="pass", env={"HF_TOKEN": {"secret": "hub", "key": "token"}})
    stage.wait("the refusal", lambda: json.dumps(stage.pods()).count("CreateContainerConfigError") >= 2)
    stage.kubectl("create", "secret", "generic", "hub", "--from-literal=token=hush-hush")
    stage.over()


@scenario
def key_missing(stage: Stage) -> None:
    stage.kubectl("create", "secret", "generic", "hub", "--from-literal=password=hush-hush")
    stage.start(function="pass", env={"HF_TOKEN": {"secret": "hub", "key": "token"}})
    stage.wait("the refusal", lambda: json.dumps(stage.pods()).count("CreateContainerConfigError") >= 2)


@scenario
def image_is_roots(stage: Stage) -> None:
    """The job requires a user other than root, and its image runs as root."""
    stage.start(function="pass", pod_template={"securityContext": {"runAsNonRoot": True}})
    stage.wait("the refusal", lambda: json.dumps(stage.pods()).count("CreateContainerConfigError") >= 2)


@scenario
def volume_missing(stage: Stage) -> None:
    volume = {"name": "extra", "configMap": {"name": "nowhere"}}
    mount = {"name": "node", "volumeMounts": [{"name": "extra", "mountPath": "/extra"}]}
    stage.start(function="pass", pod_template={"volumes": [volume], "containers": [mount]})
    stage.event("FailedMount", 2)


@scenario
def claim_missing(stage: Stage) -> None:
    stage.start(function="pass", storage=[{"path": "/data", "claim": "nowhere"}])
    stage.event("FailedScheduling", 2)


@scenario
def service_account_missing(stage: Stage) -> None:
    stage.start(function="pass", service_account="nowhere")
    stage.event("FailedCreate")


@scenario
def command_missing(stage: Stage) -> None:
    stage.start(framework="plain", command=["trainer-of-nowhere"], agent=False)
    stage.over()


@scenario
def command_missing_under_the_agent(stage: Stage) -> None:
    stage.start(framework="plain", command=["trainer-of-nowhere"], agent=True)
    stage.over()


@scenario
def peers_do_not_resolve(stage: Stage) -> None:
    """No node can run the second pod; the first pod's agent waits for its name to resolve."""
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"stepset.dev/run": "run"}},
                    "topologyKey": "kubernetes.io/os",
                    "namespaces": [stage.name],
                }
            ]
        }
    }
    for node in stage.cluster.get("nodes")["items"]:
        assert "kubernetes.io/os" in node["metadata"]["labels"]
    stage.start(function="pass", scheduling={"affinity": affinity})
    stage.event("FailedScheduling")
    stage.wait("the first pod", lambda: "running" in json.dumps(stage.pods()[0]["status"].get("containerStatuses")))


# --- pods that are ended from outside


@scenario
def refused_by_its_node(stage: Stage) -> None:
    """A pod that is assigned to a node without the scheduler, and does not fit there."""
    node = stage.cluster.get("nodes")["items"][0]["metadata"]["name"]
    stage.start(function="pass", num_nodes=1, resources_per_node={"cpu": 500}, pod_template={"nodeName": node})
    stage.over()


@scenario
def evicted_by_its_node(stage: Stage) -> None:
    """The kubelet evicts a pod that writes more than its limit."""
    code = RANK + "if rank == 1: open('/stepset/code/big', 'wb').write(b'x' * (80 << 20))\ntime.sleep(600)"
    limits = {"ephemeral-storage": "20Mi"}
    stage.start(function=code, resources_per_node={"requests": limits, "limits": limits})
    stage.over()


@scenario
def preempted(stage: Stage) -> None:
    assert stage.cluster.choice is not None
    node = stage.cluster.choice.worker_nodes[0]
    faults.set_gpus(stage.cluster.choice, node, 2, SLOT)
    stage.afterwards(lambda: faults.set_gpus(stage.cluster.choice, node, 0, SLOT))
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": stage.name}}
    stage.cluster.apply({**urgent, "value": 1000})
    stage.afterwards(lambda: stage.cluster.kubectl("delete", "priorityclass", stage.name))
    amount = {"requests": {SLOT: 1}, "limits": {SLOT: 1}}
    stage.start(function="import time; time.sleep(600)", resources_per_node=amount)
    stage.running()
    pod = stage.cluster.pod_spec(["sleep", "20"])
    pod["containers"][0]["resources"] = amount
    stage.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "urgent"},
            "spec": {**pod, "priorityClassName": stage.name, "terminationGracePeriodSeconds": 0},
        }
    )
    stage.wait("the restart", lambda: int(stage.get("jobset/run")["status"].get("restarts", 0)) >= 1)
    stage.event("FailedScheduling")


@scenario
def node_lost(stage: Stage) -> None:
    """A node loses power; its pod is deleted, and remains until it is released."""
    choice = stage.cluster.choice
    assert choice is not None
    taint = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
    tolerations = [{"key": f"node.kubernetes.io/{name}", **taint} for name in ("not-ready", "unreachable")]
    stage.start(
        function=RANK + "time.sleep(600 * (attempt == '0'))",
        restart={"lost_node": "release", "lost_node_after": "20s"},
        pod_template={"tolerations": tolerations, "terminationGracePeriodSeconds": 5},
    )
    stage.running()
    pod = stage.pods()[1]
    name = pod["spec"]["nodeName"]
    node = faults.node_named(choice, name)
    faults.power_off(choice, node)
    stage.afterwards(lambda: stage.cluster.kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=120s"))
    stage.afterwards(lambda: faults.start_kubelet(choice, node))
    stage.wait("its end", lambda: any("deletionTimestamp" in each["metadata"] for each in stage.pods()))
    stage.cluster.wait("nothing", lambda: _older_than(stage, 18), timeout=120)
    # A forced deletion alone does not remove the pod: a Job with a podFailurePolicy keeps it until its phase is Failed.
    # The phase alone does not, either: the pod exists until its kubelet, or a forced deletion, removes it. Normally the
    # kubelet does both.
    for each in stage.pods():
        if each["spec"].get("nodeName") == name:
            failed = json.dumps({"status": {"phase": "Failed"}})
            pod = each["metadata"]["name"]
            stage.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
            stage.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "--patch", failed)
    stage.wait("the restart", lambda: int(stage.get("jobset/run")["status"].get("restarts", 0)) >= 1)
    stage.over()


def _older_than(stage: Stage, seconds: float) -> bool:
    """Whether the deletion of a pod is overdue by more than `seconds`; the server's clock is that of this machine."""
    from datetime import datetime

    times = [each["metadata"]["deletionTimestamp"] for each in stage.pods() if "deletionTimestamp" in each["metadata"]]
    now = datetime.now(UTC).timestamp()
    return any(now - datetime.fromisoformat(at).timestamp() > seconds for at in times)


# --- queues


def _queue(stage: Stage, cpus: int) -> None:
    api = "kueue.x-k8s.io/v1beta2"
    flavor = {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": stage.name}}
    stage.cluster.apply(flavor)
    stage.afterwards(lambda: stage.cluster.kubectl("delete", "resourceflavor", stage.name, "--wait=false"))
    stage.apply(_cluster_queue(stage, cpus))
    stage.afterwards(lambda: stage.cluster.kubectl("delete", "clusterqueue", stage.name, "--wait=false"))
    stage.apply(
        {"apiVersion": api, "kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": stage.name}}
    )


def _cluster_queue(stage: Stage, cpus: int) -> Manifest:
    quota = [{"name": stage.name, "resources": [{"name": "cpu", "nominalQuota": cpus}]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": stage.name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quota}]},
    }


def _set_quota(stage: Stage, cpus: int) -> None:
    stage.cluster.kubectl(
        "patch", "clusterqueue", stage.name, "--type=merge", "--patch", json.dumps(_cluster_queue(stage, cpus))
    )


@scenario
def queued_and_let_in(stage: Stage) -> None:
    _queue(stage, 1)
    queue = {"queue_name": "team"}
    stage.start(function=RANK + "time.sleep(3)", scheduling=queue, resources_per_node={"requests": {"cpu": 1}})
    stage.wait("a place in the queue", lambda: "QuotaReserved" in json.dumps(stage.get("workloads")))
    _set_quota(stage, 2)
    stage.over()


@scenario
def sent_back_into_the_queue(stage: Stage) -> None:
    _queue(stage, 2)
    queue = {"queue_name": "team"}
    stage.start(function=RANK + "time.sleep(600)", scheduling=queue, resources_per_node={"requests": {"cpu": "100m"}})
    stage.running()
    name = stage.get("workloads")["items"][0]["metadata"]["name"]
    stage.patch(f"workload/{name}", {"spec": {"active": False}})
    stage.wait("its pods' end", lambda: not stage.pods())


@scenario
def queue_missing(stage: Stage) -> None:
    queue = {"queue_name": "nowhere"}
    stage.start(function="pass", scheduling=queue, resources_per_node={"requests": {"cpu": 1}})
    stage.wait("a place in the queue", lambda: "QuotaReserved" in json.dumps(stage.get("workloads")))


# --- other targets


@scenario
def trainjob_succeeds(stage: Stage) -> None:
    stage.start("trainjob", function=RANK + "time.sleep(1)\n" + RESULT.format("'done'"))
    stage.over("trainjob")


@scenario
def trainjob_fails(stage: Stage) -> None:
    stage.start("trainjob", function=RANK + "if rank == 0: raise ValueError('bad')\ntime.sleep(600)")
    stage.over("trainjob")


@scenario
def trainjob_starts_again_and_succeeds(stage: Stage) -> None:
    code = RANK + "if attempt == '0' and rank == 1: raise ValueError('once')\n"
    stage.start("trainjob", function=code, restart={"max_restarts": 1})
    stage.over("trainjob")


@scenario
def trainjob_cannot_make_its_jobset(stage: Stage) -> None:
    """An admission policy rejects the JobSet that Trainer's controller creates."""
    name = stage.name
    group = {"apiVersion": "admissionregistration.k8s.io/v1"}
    rules = [
        {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["jobsets"]}
    ]
    check = {"expression": "'team' in object.metadata.labels", "message": "every JobSet names its team"}
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [check]}
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    for kind, given in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding)):
        stage.cluster.apply({**group, "kind": kind, "metadata": {"name": name}, "spec": given})
        stage.afterwards(lambda kind=kind: stage.cluster.kubectl("delete", kind, name))
    probe = rendered("jobset", name="probe", image="x")[-1]
    stage.wait("the rule", lambda: _refused(stage, probe))
    stage.start("trainjob", function="pass")
    stage.event("TrainJobResourcesCreationFailed")


@scenario
def job_succeeds(stage: Stage) -> None:
    stage.start("job", function=RANK + "time.sleep(1)\n" + RESULT.format("{'acc': 0.9}"))
    stage.over("job")


@scenario
def job_fails(stage: Stage) -> None:
    stage.start("job", function=RANK + "time.sleep(1)\nif rank == 1: sys.exit(3)\ntime.sleep(600)")
    stage.over("job")


@scenario
def job_takes_too_long(stage: Stage) -> None:
    stage.start("job", function="import time; time.sleep(600)", deadline="4s")
    stage.over("job")


def _ready(stage: Stage, count: int) -> None:
    stage.wait("verdicts", lambda: stage.get("statefulset/run").get("status", {}).get("readyReplicas") == count)


@scenario
def statefulset_succeeds(stage: Stage) -> None:
    stage.start("statefulset", function=RANK + "time.sleep(1 + rank)\n" + RESULT.format("[rank]"))
    _ready(stage, 2)


@scenario
def statefulset_fails(stage: Stage) -> None:
    stage.start("statefulset", function=RANK + "if rank == 1: raise ValueError('bad')\ntime.sleep(600)")
    _ready(stage, 1)


@scenario
def statefulset_starts_one_again(stage: Stage) -> None:
    code = RANK + "time.sleep(2)\nif attempt == '0' and rank == 1: raise ValueError('once')\n"
    stage.start("statefulset", function=code, restart={"max_restarts": 2})
    _ready(stage, 2)


@scenario
def statefulset_is_evicted(stage: Stage) -> None:
    stage.start("statefulset", function="import time; time.sleep(600)")
    stage.running()
    uid = stage.pods()[1]["metadata"]["uid"]
    stage.evict("run-1")
    stage.wait("another", lambda: len(stage.pods()) == 2 and stage.pods()[1]["metadata"]["uid"] != uid)
    stage.running()


@scenario
def statefulset_is_scaled_to_nothing(stage: Stage) -> None:
    stage.start("statefulset", function="import time; time.sleep(600)")
    stage.running()
    stage.kubectl("scale", "statefulset/run", "--replicas=0")
    stage.wait("its pods' end", lambda: not stage.pods())


ELASTIC: Manifest = {"framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}}}


@scenario
def elastic_node_is_evicted(stage: Stage) -> None:
    command = [
        stage.cluster.python,
        "-c",
        "import os, time; time.sleep(12 + 600 * int(os.environ['STEPSET_NODE_RANK']))",
    ]
    stage.start(**ELASTIC, command=command)
    stage.running()
    stage.evict(stage.pods()[1]["metadata"]["name"])
    stage.over()


@scenario
def elastic_nodes_fail_too_often(stage: Stage) -> None:
    code = "import os, time; time.sleep(3 + 600 * (os.environ['STEPSET_NODE_RANK'] == '0')); raise SystemExit(6)"
    stage.start(**ELASTIC, command=[stage.cluster.python, "-c", code], restart={"max_restarts": 1})
    stage.over()


def _mpi(stage: Stage, code: str) -> None:
    program = ["mpirun.openmpi", "--allow-run-as-root", "/usr/bin/python3", "-c", code]
    stage.start(
        framework={"kind": "mpi", "implementation": "openmpi", "ssh_auth_mount_path": "/root/.ssh"},
        agent=True,
        command=program,
        network={"cluster_domain": "cluster.local"},
        env={"OMPI_MCA_mca_base_component_show_load_errors": "0"},
        pod_template={"securityContext": {"runAsUser": 0, "runAsGroup": 0}},
    )
    stage.over()


_MPI_RANK = "import os, time; rank = os.environ['OMPI_COMM_WORLD_RANK']\n"


@scenario
def mpi_succeeds(stage: Stage) -> None:
    _mpi(stage, _MPI_RANK + "time.sleep(1)\nif rank == '0': " + RESULT.format("'mpi'"))


@scenario
def mpi_rank_fails(stage: Stage) -> None:
    _mpi(stage, _MPI_RANK + "time.sleep(1)\nif rank == '1': raise ValueError('bad on 1')\ntime.sleep(600)")
