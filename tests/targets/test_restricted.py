"""`security: restricted`: every pod of every target is admitted, and values that contradict are errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.rendering import render
from stepset.spec import TrainingJob, parse_job
from stepset.targets.kinds import TARGETS
from stepset.targets.validation.preflight import check
from stepset.targets.validation.restricted import restricted_problems
from tests.strategies import jobs
from tests.targets.making import IMAGE, container, pod, rendered, request
from tests.targets.pod_security import pod_templates, violations

ROLES = [
    {"name": "prepare", "before": True, "command": ["fetch"]},
    {"name": "watch", "command": ["watch"], "image": "watch:1"},
]
MORE = {"storage": [{"path": "/ckpt", "claim": "checkpoints"}], "num_nodes": 2, "procs_per_node": 2}
SIDECARS = {
    "initContainers": [{"name": "fetch", "image": "fetch:1"}],
    "containers": [{"name": "proxy", "image": "proxy:1", "securityContext": {"runAsUser": 7}}],
}
# target, job: pods with all that stepset mounts, and of all groups that the target has.
CASES: list[tuple[str, dict[str, Any]]] = [
    *((target, {}) for target in TARGETS),
    *((target, {"roles": ROLES}) for target in ("jobset", "trainjob")),
    ("volcano", {"roles": ROLES[1:]}),
    *((target, {"framework": "mpi"}) for target in ("jobset", "trainjob", "volcano")),
    ("jobset", {"framework": {"kind": "mpi", "run_launcher_as_node": True}}),
    ("jobset", {"framework": {"kind": "mpi", "implementation": "mpich", "run_launcher_as_node": True}}),
    *((target, {"pod_template": SIDECARS}) for target in TARGETS),
    ("jobset", {"command": ["/opt/train"], "agent": False, "framework": "plain", "procs_per_node": 1}),
]


@pytest.mark.parametrize(("target", "job"), CASES)
def test_every_pod_is_admitted(target: str, job: dict[str, Any]) -> None:
    given_job = {**MORE, **job, "security": "restricted"}
    objects = render(request(namespace="ml", **given_job), target)
    templates = [template for each in objects for template in pod_templates(each)]
    assert templates
    assert [violations(each) for each in templates] == [[]] * len(templates)
    without = render(request(namespace="ml", **{**given_job, "security": None}), target)
    assert all(violations(template) for each in without for template in pod_templates(each))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs(), st.sampled_from(sorted(TARGETS)))
def test_every_pod_of_any_job_is_admitted(job: TrainingJob, target: str) -> None:
    job = job.model_copy(update={"security": "restricted", "image": IMAGE})
    try:
        given_request = request(**job.to_dict())
        check(given_request.job, given_request.plan, target)
    except BadInputError:
        return
    for each in TARGETS[target].render(given_request):
        for template in pod_templates(each):
            assert violations(template) == []


def test_the_ssh_keys_are_readable_for_the_group_of_the_pod() -> None:
    for group in ("node", "launcher"):
        context = pod(rendered(framework="mpi", security="restricted", **MORE), group)["spec"]["securityContext"]
        assert context["fsGroup"] == 1000


def test_values_that_do_not_contradict_remain() -> None:
    context = {"runAsUser": 1234, "fsGroup": 5, "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"}}
    node = {"name": "node", "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}, "runAsGroup": 6}}
    objects = rendered(security="restricted", pod_template={"securityContext": context, "containers": [node]})
    assert pod(objects)["spec"]["securityContext"] == {**context, "runAsNonRoot": True}
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        "runAsGroup": 6,
    }


@pytest.mark.parametrize(
    "template",
    [
        {"securityContext": None},
        {"securityContext": {"runAsNonRoot": None, "seccompProfile": None}},
        {"securityContext": {"$patch": "replace"}},
        {"containers": [{"name": "node", "securityContext": {"allowPrivilegeEscalation": None, "capabilities": {}}}]},
    ],
)
def test_a_template_cannot_remove_what_is_required(template: dict[str, Any]) -> None:
    assert violations(pod(rendered(security="restricted", pod_template=template))) == []


NODE = "containers.node"
# pod_template -> field of the error, its value, and the remedy.
CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"hostNetwork": True}, "hostNetwork: True", "leave it out"),
    ({"hostPID": True}, "hostPID: True", "leave it out"),
    ({"hostIPC": True}, "hostIPC: True", "leave it out"),
    ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser: 0", "give the number of a user other"),
    ({"securityContext": {"runAsNonRoot": False}}, "securityContext.runAsNonRoot: False", "leave it out"),
    (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "securityContext.seccompProfile.type: 'Unconfined'",
        "use RuntimeDefault or Localhost",
    ),
    (
        {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
        "securityContext.appArmorProfile.type: 'Unconfined'",
        "use RuntimeDefault or Localhost",
    ),
    (
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        "securityContext.sysctls: 'kernel.msgmax'",
        "leave it out",
    ),
    (
        {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
        "securityContext.seLinuxOptions.type: 'spc_t'",
        "use one of container_t",
    ),
    (
        {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]},
        "volumes.data.hostPath: {'path': '/data'}",
        "use a PersistentVolumeClaim",
    ),
    ({"volumes": [{"name": "nfs", "nfs": {"server": "a", "path": "/"}}]}, "volumes.nfs.nfs: {", "use a Persistent"),
    *(
        ({"containers": [{"name": "node", **fields}]}, f"{NODE}.{where}", remedy)
        for fields, where, remedy in (
            ({"securityContext": {"privileged": True}}, "securityContext.privileged: True", "leave it out"),
            (
                {"securityContext": {"allowPrivilegeEscalation": True}},
                "securityContext.allowPrivilegeEscalation: True",
                "leave it out",
            ),
            (
                {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}},
                "securityContext.capabilities.add: ['IPC_LOCK']",
                "only NET_BIND_SERVICE may be added",
            ),
            (
                {"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}},
                "securityContext.capabilities.drop: ['NET_RAW']",
                "drop ALL, or leave it out",
            ),
            ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser: 0", "give the number of a user"),
            ({"securityContext": {"procMount": "Unmasked"}}, "securityContext.procMount: 'Unmasked'", "leave it out"),
            ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "ports.hostPort: 80", "leave it out"),
            (
                {"livenessProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}},
                "livenessProbe.httpGet.host: '10.0.0.1'",
                "leave it out",
            ),
        )
    ),
    (
        {"initContainers": [{"name": "mount", "image": "x", "securityContext": {"privileged": True}}]},
        "initContainers.mount.securityContext.privileged: True",
        "leave it out",
    ),
]


def problems(template: dict[str, Any], target: str = "jobset", **fields: Any) -> list[str]:
    job = parse_job({"name": "digits", "image": IMAGE, "command": ["train"], "pod_template": template, **fields})
    try:
        check(job, make_plan(job), target)
    except BadInputError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(("template", "begin", "remedy"), CONTRADICTIONS)
def test_a_value_that_contradicts_is_an_error_with_field_and_remedy(
    template: dict[str, Any], begin: str, remedy: str
) -> None:
    (line,) = problems(template, security="restricted")
    field, value = begin.split(": ", 1)
    assert line.startswith(f"pod_template.{field}: {value}")
    assert f" contradicts security: restricted; {remedy}" in line and line.endswith(", or leave security out")
    assert problems(template) == []
    whole = problems({"spec": template}, security="restricted")
    assert whole == [line.replace("pod_template.", "pod_template.spec.", 1)]


def test_an_annotation_that_contradicts_is_an_error() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/node"
    template = {"metadata": {"annotations": {key: "unconfined"}}, "spec": {}}
    (line,) = problems(template, security="restricted")
    assert line.startswith(f"pod_template.metadata.annotations.{key}: 'unconfined' contradicts security: restricted;")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
CONTEXT = ANYTHING | st.dictionaries(
    st.sampled_from(["capabilities", "sysctls", "seccompProfile", "seLinuxOptions", "runAsUser", "windowsOptions"]),
    ANYTHING | st.dictionaries(st.sampled_from(["add", "drop", "type", "user", "name"]), ANYTHING),
)
ROWS = ANYTHING | st.lists(
    st.fixed_dictionaries(
        {"name": ANYTHING},
        optional=dict.fromkeys(("securityContext", "ports", "lifecycle", "livenessProbe", "hostPath"), CONTEXT),
    ),
    max_size=2,
)


@given(
    st.fixed_dictionaries(
        {}, optional={"containers": ROWS, "initContainers": ROWS, "volumes": ROWS, "securityContext": CONTEXT}
    )
)
def test_values_of_any_type_are_judged_without_an_internal_error(spec: dict[str, Any]) -> None:
    assert all(line.startswith("pod_template.") for line in restricted_problems({"spec": spec}, "pod_template"))
