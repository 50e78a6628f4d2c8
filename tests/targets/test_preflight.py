"""The preflight reports, with the fields of the job file, what a cluster would reject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.rendering import render
from stepset.spec import parse_job
from stepset.targets.kinds import TARGETS
from stepset.targets.validation.preflight import CONFIG_MAP_LIMIT, check, check_sizes
from tests.targets.cases import CASES
from tests.targets.making import IMAGE, rendered, request

BEFORE = {"before": True, "command": ["x"]}
LAUNCHER = {"framework": "mpi", "procs_per_node": 1}
ELASTIC = {"framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 1}}, "procs_per_node": 1}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _problems(target: str = "jobset", run: str | None = None, **job: Any) -> list[str]:
    parsed = parse_job({"name": "digits", "image": IMAGE, "command": ["train"], "agent": True, **job})
    try:
        check(parsed, make_plan(parsed), target, run)
    except BadInputError as error:
        return list(error.problems)
    return []


class TestNames:
    @pytest.mark.parametrize(
        ("target", "nodes", "budget"),
        [(name, *each) for name, case in CASES.items() for each in case.name_budgets.items()],
    )
    def test_each_target_has_its_budget(self, target: str, nodes: int, budget: int) -> None:
        job = parse_job({"name": "digits", "image": IMAGE, "command": ["train"], "num_nodes": nodes})
        assert TARGETS[target].name_budget(make_plan(job)) == budget
        assert _problems(target, "a" * budget, num_nodes=nodes) == []
        (line,) = _problems(target, "a" * (budget + 1), num_nodes=nodes)
        assert line == (
            f"the run's name: {'a' * (budget + 1)!r} has {budget + 1} characters; target {target} allows {budget} with"
            " these pod groups; shorten it"
        )

    def test_a_long_group_name_shortens_the_budget(self) -> None:
        initializer = {"name": "dataset-initializer", **BEFORE}
        assert _problems(run="a" * 33, roles=[initializer]) == []
        assert "allows 33" in _problems(run="a" * 34, roles=[initializer])[0]

    @pytest.mark.parametrize("run", ["1abc", "a.b", "Ab", "a-", "a_b"])
    def test_a_run_is_a_dns_1035_label(self, run: str) -> None:
        assert _problems(run=run) == [
            f"the run's name: {run!r} is not a DNS-1035 label; use lower-case letters, digits and '-', starting with a"
            " letter"
        ]

    def test_a_name_of_48_characters_is_valid_for_a_statefulset(self) -> None:
        assert _problems("statefulset", name="a" * 47)[:1] == []
        assert _problems("statefulset", run=None, name="a" * 48)[:1] == []


# Fields of a job -> the start of the line.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *(
        (f"no training container: {patch}", {"pod_template": patch}, "pod_template: removes the container 'node'")
        for patch in (
            {"spec": None},
            {"containers": None},
            {"spec": {"$patch": "delete"}},
            {"spec": {"$patch": "replace"}},
            {"containers": [{"name": "node", "$patch": "delete"}]},
            {"containers": [{"$patch": "replace"}]},
        )
    ),
    (
        "a merge key of another type",
        {"pod_template": {"containers": [{"name": "node", "env": [{"name": ["a"], "value": "1"}]}]}},
        "pod_template.containers.node.env.0: has no name; entries are merged by it",
    ),
    (
        "no training container in a role",
        {"pod_template": {"containers": None}, "roles": [{"name": "r", "command": ["x"]}]},
        "pod_template: removes the container 'node'",
    ),
    ("no image", {"image": None}, "image: is missing"),
    ("no image for a role", {"image": None, "roles": [{"name": "r", "command": ["x"]}]}, "roles.r.image: is missing"),
    ("label key", {"labels": {"a b": "c"}}, "labels: 'a b' is not a label key"),
    ("label value", {"labels": {"a": "b c"}}, "labels.a: 'b c' is not a label value"),
    ("long label value", {"labels": {"a": "b" * 64}}, "labels.a: "),
    ("stepset's label", {"labels": {"stepset.dev/run": "x"}}, "labels.stepset.dev/run: is reserved"),
    ("annotation key", {"annotations": {"/x": "y"}}, "annotations: '/x' is not a label key"),
    ("annotations' size", {"annotations": {"a": "x" * 300_000}}, "annotations: 300001 bytes"),
    ("node selector", {"scheduling": {"node_selector": {"a": "b/c"}}}, "scheduling.node_selector.a: 'b/c'"),
    (
        "six dependencies",
        {"roles": [{"name": f"r{n}", **BEFORE} for n in range(6)]},
        "roles: 6 roles must complete before the nodes start; JobSet allows 5",
    ),
    ("too many pods", {"num_nodes": 100_001}, "num_nodes: 100001 pods; a Job allows 100000"),
    ("a label's key with a line end", {"labels": {"a\n": "b"}}, "labels: 'a\\n' is not a label key"),
    ("a label's value with a line end", {"labels": {"a": "b\n"}}, "labels.a: 'b\\n' is not a label value"),
    ("kueue without queue", {"scheduling": {"gang": "kueue"}}, "scheduling.gang: kueue needs a queue"),
    (
        "a queue without effect",
        {"scheduling": {"gang": "coscheduling", "queue_name": "q"}},
        "scheduling.queue_name: has no effect with gang: coscheduling",
    ),
    ("queue name", {"scheduling": {"queue_name": "Team A"}}, "scheduling.queue_name: 'Team A' is not a name"),
    (
        "a queue's name over the length of a label",
        {"scheduling": {"queue_name": "q" * 64}},
        f"scheduling.queue_name: {'q' * 64!r} is not a label value",
    ),
    ("priority class", {"scheduling": {"priority_class": "a_b"}}, "scheduling.priority_class: 'a_b' is not a name"),
    (
        "role's node selector",
        {"roles": [{"name": "r", "command": ["x"], "scheduling": {"node_selector": {"a": "b/c"}}}]},
        "roles.r.scheduling.node_selector.a: 'b/c'",
    ),
    (
        "launcher's toleration",
        {"framework": "mpi", "scheduling": {"launcher": {"tolerations": [{"value": "x"}]}}},
        "scheduling.launcher.tolerations.0: has no key",
    ),
    (
        "no launcher",
        {"scheduling": {"launcher": {"node_selector": {"a": "b"}}}},
        "scheduling.launcher: this job has no launcher besides its nodes",
    ),
    ("affinity", {"scheduling": {"affinity": {"nodeAfinity": {}}}}, "scheduling.affinity: unknown field 'nodeAfinity'"),
    (
        "affinity's rules",
        {"scheduling": {"affinity": {"podAffinity": {"required": []}}}},
        "scheduling.affinity.podAffinity: unknown field 'required'; known keys: preferredDuring",
    ),
    ("min_member without gang", {"scheduling": {"min_member": 1}}, "scheduling.min_member: has no effect"),
    (
        "min_member above all",
        {"scheduling": {"gang": "volcano", "min_member": 3}, "num_nodes": 2},
        "scheduling.min_member: 3 is more than the gang's pods (2)",
    ),
    ("service account", {"service_account": "A_b"}, "service_account: 'A_b' is not a name"),
    ("claim", {"storage": [{"path": "/d", "claim": "My_Claim"}]}, "storage.0.claim: 'My_Claim' is not a name"),
    (
        "one path twice",
        {"storage": [{"path": "/d", "claim": "a"}, {"path": "/d/", "claim": "b"}]},
        "storage.1.path: /d is mounted twice",
    ),
    (
        "stepset's path",
        {"storage": [{"path": "/stepset/run", "claim": "a"}]},
        "storage.0.path: /stepset/run is reserved by stepset",
    ),
    (
        "another path than stepset's",
        {"storage": [{"path": "/data/../dev/shm", "claim": "a"}]},
        "storage.0.path: /dev/shm is reserved by stepset",
    ),
    (
        "where the hostfile is",
        {**LAUNCHER, "storage": [{"path": "/etc/mpi", "claim": "a"}]},
        "storage.0.path: /etc/mpi is the directory of /etc/mpi/hostfile; give another",
    ),
    (
        "where the ssh keys are",
        {
            "framework": {"kind": "mpi", "ssh_auth_mount_path": "/root/.ssh"},
            "procs_per_node": 1,
            "storage": [{"path": "/root/.ssh/", "claim": "a"}],
        },
        "storage.0.path: /root/.ssh is the directory of the ssh keys; give another",
    ),
    (
        "keys in stepset's place",
        {"framework": {"kind": "mpi", "ssh_auth_mount_path": "/etc/mpi"}, "procs_per_node": 1},
        "framework.ssh_auth_mount_path: /etc/mpi is the directory of /etc/mpi/hostfile",
    ),
    ("root", {"storage": [{"path": "/", "claim": "a"}]}, "storage.0.path: '/' cannot be a mount path"),
    (
        "out of the volume",
        {"storage": [{"path": "/d", "claim": "a", "sub_path": "../x"}]},
        "storage.0.sub_path: '../x' is outside the volume",
    ),
    (
        "request above limit",
        {"resources_per_node": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
        "resources_per_node: the request cpu: 2 is more than the limit 1",
    ),
    (
        "accelerators cannot be overcommitted",
        {"resources_per_node": {"requests": {"nvidia.com/gpu": "2"}}, "procs_per_node": 1},
        "resources_per_node: nvidia.com/gpu cannot be overcommitted",
    ),
    (
        "half a device",
        {"resources_per_node": {"requests": {"a.example/nic": "1.5"}, "limits": {"a.example/nic": "1.5"}}},
        "resources_per_node: a.example/nic: 1.5 is not a whole number",
    ),
    (
        "a quota's name",
        {"resources_per_node": {"requests.a.example/nic": 1, "cpu": 1}},
        "resources_per_node: 'requests.a.example/nic' is not a resource name that Kubernetes accepts",
    ),
    (
        "huge pages that are not a multiple",
        {"resources_per_node": {kind: {"hugepages-2Mi": "3Mi", "cpu": 1} for kind in ("requests", "limits")}},
        "resources_per_node: hugepages-2Mi: 3Mi is not a multiple of the page size",
    ),
    (
        "huge pages alone",
        {"resources_per_node": {kind: {"hugepages-2Mi": "2Mi"} for kind in ("requests", "limits")}},
        "resources_per_node: huge pages require cpu or memory",
    ),
    (
        "huge pages without a size",
        {"resources_per_node": {kind: {"hugepages-x": "2Mi", "cpu": 1} for kind in ("requests", "limits")}},
        "resources_per_node: 'hugepages-x' does not contain the size of the pages",
    ),
    (
        "huge pages over-committed",
        {"resources_per_node": {"requests": {"hugepages-2Mi": "2Mi", "cpu": 1}}},
        "resources_per_node: hugepages-2Mi cannot be overcommitted",
    ),
    ("secret's name", {"env": {"A": {"secret": "S_x", "key": "k"}}}, "env.A.secret: 'S_x' is not a name"),
    ("secret's key", {"env": {"A": {"secret": "s", "key": "a b"}}}, "env.A.key: 'a b' is not a key"),
    ("the parent directory as key", {"env": {"A": {"secret": "s", "key": "..a"}}}, "env.A.key: '..a' is not a key"),
    (
        "a label that cannot be",
        {"env": {"A": {"field": "metadata.labels['A/b']"}}},
        "env.A.field: \"metadata.labels['A/b']\" is not a field of a pod",
    ),
    ("field", {"env": {"A": {"field": "status.phase"}}}, "env.A.field: 'status.phase' is not a field of a pod"),
    (
        "code without agent",
        {"code": "src", "agent": False, "command": ["x"]},
        "code: only stepset's agent unpacks it",
    ),
    (
        "template's field",
        {"pod_template": {"nodeSelctor": {}}},
        "pod_template: unknown field 'nodeSelctor'; did you mean",
    ),
    (
        "container's field",
        {"pod_template": {"spec": {"containers": [{"name": "node", "imagePullPolcy": "Always"}]}}},
        "pod_template.spec.containers.node: unknown field 'imagePullPolcy'; did you mean 'imagePullPolicy'?",
    ),
    (
        "another container without image",
        {"pod_template": {"containers": [{"name": "sidecar"}]}},
        "pod_template.containers.sidecar: a container needs an image",
    ),
    (
        "an entry without its key",
        {"pod_template": {"volumes": [{"emptyDir": {}}]}},
        "pod_template.volumes.0: has no name; entries are merged by it",
    ),
    (
        "a mount without its key",
        {"pod_template": {"containers": [{"name": "node", "volumeMounts": [{"name": "x"}]}]}},
        "pod_template.containers.node.volumeMounts.0: has no mountPath",
    ),
    ("restart policy", {"pod_template": {"restartPolicy": "Always"}}, "pod_template.restartPolicy: a gang"),
    ("host name", {"pod_template": {"hostname": "x"}}, "pod_template.hostname: pods find each other by"),
]
# A toleration -> the message about it.
TOLERATIONS: list[tuple[dict[str, Any], str]] = [
    ({"key": "a b"}, "'a b' is not the key of a taint"),
    ({"key": "a", "operator": "Nope"}, "operator 'Nope' is not known; use one of Equal, Exists, Gt, Lt"),
    ({"key": "a", "operator": "Gt", "value": "0950"}, "operator Gt compares whole numbers; write value as one"),
    ({"key": "a", "operator": "Lt"}, "operator Lt compares whole numbers"),
    ({"key": "a", "operator": "Lt", "value": str(2**63)}, "operator Lt compares whole numbers"),
    ({"operator": "Gt", "value": "1"}, "has no key"),
    ({"key": "a", "operator": "Exists", "value": "b"}, "operator Exists takes no value; leave out 'b'"),
    ({"key": "a", "value": "b c"}, "'b c' is not the value of a taint"),
    ({"value": "b"}, "has no key: a toleration without a key matches every taint"),
    ({"key": "a", "effect": "NoRun"}, "effect 'NoRun' is not known; use one of NoSchedule, "),
    ({"key": "a", "tolerationSeconds": 3}, "tolerationSeconds is valid only with effect: NoExecute"),
    ({"key": "a", "effect": "NoExecute", "tolerationSeconds": "3"}, "tolerationSeconds '3' is not a whole number"),
    ({"key": ["a"]}, "key must be text; put it in quotes"),
    ({"key": "a", "efect": "NoExecute"}, "unknown field 'efect'; did you mean 'effect'?"),
]
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("jobset", {}),
    ("jobset", LAUNCHER),
    ("trainjob", {"restart": {"max_restarts": 3, "user_errors": "fail"}, "deadline": "1h", "ttl": "1h"}),
    ("job", {**ELASTIC, "restart": {"max_restarts": 2}}),
    ("statefulset", {"restart": {"max_restarts": 2}}),
    ("volcano", {"scheduling": {"queue_name": "q", "min_member": 1}}),
    ("volcano", LAUNCHER),
    ("jobset", {"resources_per_node": {"cpu": 4, "gpus": 2, "memory": "1Gi"}, "labels": {"a.b/c": "", "d": "E_1.f"}}),
    ("jobset", {"pod_template": {"metadata": {"labels": {"a": "b"}}, "spec": {"hostNetwork": True}}}),
    ("jobset", {"pod_template": {"containers": [{"name": "node", "env": [{"$patch": "replace"}]}]}}),
    ("statefulset", {"num_nodes": 100_001}),
    ("jobset", {"resources_per_node": {kind: {"hugepages-2Mi": "4Mi", "cpu": 1} for kind in ("requests", "limits")}}),
    ("jobset", {"scheduling": {"tolerations": [{"operator": "Exists"}, {"key": "a/b", "effect": "NoSchedule"}]}}),
    ("jobset", {"scheduling": {"affinity": {"podAntiAffinity": {PREFERRED: []}}}}),
    ("jobset", {"env": {"A": {"field": "metadata.labels['x']"}, "B": {"field": "status.podIPs"}}}),
    ("jobset", {"pod_template": {"containers": [{"$patch": "replace"}, {"name": "node", "image": "x"}]}}),
    ("jobset", {"pod_template": {"volumes": None, "tolerations": None}}),
]


@pytest.mark.parametrize(("job", "start"), [pytest.param(job, text, id=name) for name, job, text in REFUSED])
def test_rejects_with_field_reason_and_remedy(job: dict[str, Any], start: str) -> None:
    lines = [line for line in _problems(**job) if line.startswith(start)]
    assert len(lines) == 1, _problems(**job)
    assert "\n" not in lines[0]


@pytest.mark.parametrize(("toleration", "start"), TOLERATIONS)
def test_an_invalid_toleration_is_rejected(toleration: dict[str, Any], start: str) -> None:
    (line,) = _problems(scheduling={"tolerations": [toleration]})
    assert line.startswith(f"scheduling.tolerations.0: {start}")


@pytest.mark.parametrize(
    ("target", "job", "start"), [(name, *refusal) for name, case in CASES.items() for refusal in case.refused]
)
def test_unsupported_fields_of_a_target_are_rejected(target: str, job: Mapping[str, Any], start: str) -> None:
    assert any(line.startswith(start) for line in _problems(target, **job))
    assert not any(line.startswith(start) for line in _problems("jobset", **job))


@pytest.mark.parametrize(("target", "job"), ACCEPTED)
def test_valid_jobs_are_accepted(target: str, job: dict[str, Any]) -> None:
    assert _problems(target, **job) == []


def test_all_problems_are_reported_together_and_once() -> None:
    lines = _problems("statefulset", image=None, deadline="1h", labels={"a": "b c"})
    assert [line.split(":")[0] for line in lines] == ["image", "labels.a", "deadline"]


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInputError, match=r"^target: 'swarm' is not known; use one of jobset, trainjob,"):
        render(request(), "swarm")


def test_every_render_runs_the_preflight() -> None:
    with pytest.raises(BadInputError, match=r"^deadline: a StatefulSet has none"):
        render(request(deadline="1h"), "statefulset")


def test_hydra_needs_the_namespace() -> None:
    mpich = {"framework": {"kind": "mpi", "implementation": "mpich"}, "procs_per_node": 1}
    with pytest.raises(BadInputError, match=r"^framework\.implementation: .* give the namespace$"):
        render(request(**mpich))
    assert render(request(namespace="ml", **mpich))


def test_a_namespace_is_a_name() -> None:
    with pytest.raises(BadInputError, match=r"^namespace: 'My NS' is not a name"):
        render(request(namespace="My NS"))


def test_a_configmap_over_the_api_servers_limit_is_refused() -> None:
    largest = replace(request(), agent="x" * CONFIG_MAP_LIMIT)
    with pytest.raises(BadInputError, match=rf"^ConfigMap digits-agent: \d+ bytes; at most {CONFIG_MAP_LIMIT} can be"):
        render(largest)
    check_sizes(rendered())


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (
            {"env": [{"name": "A", "valuefrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
            "env.A: unknown field 'valuefrom'; did you mean 'valueFrom'?",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyref": {"name": "a", "key": "b"}}}]},
            "env.A.valueFrom: unknown field 'secretKeyref'; did you mean 'secretKeyRef'?",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldpath": "metadata.name"}}}]},
            "env.A.valueFrom.fieldRef: unknown field 'fieldpath'; did you mean 'fieldPath'?",
        ),
        (
            {"volumeMounts": [{"name": "dshm", "mountpath": "/x", "mountPath": "/y"}]},
            "volumeMounts.dshm: unknown field 'mountpath'; did you mean 'mountPath'?",
        ),
        (
            {"volumeMounts": [{"name": "cache", "mountPath": "/x"}]},
            "volumeMounts.cache: no volume has this name; add it to pod_template.volumes, or use one of dshm, scratch,"
            " storage-0",
        ),
    ],
)
def test_an_entry_that_the_server_would_drop_or_refuse_late_is_an_error(
    container: dict[str, Any], message: str
) -> None:
    template = {"volumes": [{"name": "scratch", "emptyDir": {}}], "containers": [{"name": "node", **container}]}
    with pytest.raises(BadInputError) as caught:
        render(request(pod_template=template, storage=[{"path": "/data", "claim": "data"}]), "jobset")
    assert str(caught.value) == f"pod_template.containers.node.{message}"
