"""`stepset validate JOB --server`: problems that a real API server reports, with the fields of the job file."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import stepset
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.rbac import rbac
from tests.cluster.remedies import paste, remedy
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.pod import Mount
from tests.cluster.validator import Validator

pytestmark = pytest.mark.cluster

STEPSET = Path(sys.executable).parent / "stepset"


@pytest.fixture
def admin(cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validator:
    monkeypatch.chdir(tmp_path)
    return Validator(tmp_path, Path(cluster.kubeconfig), namespace)


def address(kubeconfig: Path) -> str:
    content = yaml.safe_load(kubeconfig.read_text())
    return str(content["clusters"][0]["cluster"]["server"])


class TestAccepted:
    @pytest.mark.parametrize(
        ("target", "job", "tried"),
        [
            ("jobset", {}, "3 objects, 1 pod"),
            ("trainjob", {}, "4 objects, 1 pod"),
            ("statefulset", {}, "4 objects, 1 pod"),
            ("job", {}, "4 objects, 1 pod"),
            ("jobset", {"framework": "mpi"}, "6 objects, 2 pods"),
        ],
    )
    def test_a_job_is_accepted_in_every_target_and_nothing_is_created(
        self, cluster: Cluster, admin: Validator, target: str, job: dict[str, Any], tried: str
    ) -> None:
        code, lines = admin.validate("--target", target, **job)
        assert (code, lines[0].startswith("job.yaml: valid: digits, ")) == (0, True), lines
        assert lines[1].startswith(f"server {address(admin.kubeconfig)}: accepts the job as a {target} in namespace")
        assert f"(dry run of {tried};" in lines[1]
        kinds = "configmaps,secrets,services,pods,jobs,jobsets,trainjobs,trainingruntimes,statefulsets"
        made = [each["metadata"]["name"] for each in cluster.get(kinds, admin.namespace)["items"]]
        assert [name for name in made if name.startswith("digits")] == []

    def test_an_existing_run_of_that_name_is_no_problem(self, cluster: Cluster, admin: Validator) -> None:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "digits-agent"}}
        cluster.apply(config, admin.namespace)
        assert admin.validate()[0] == 0

    def test_uses_the_contexts_namespace_by_default(self, admin: Validator) -> None:
        content = yaml.safe_load(admin.kubeconfig.read_text())
        content["contexts"][0]["context"]["namespace"] = admin.namespace
        path = admin.directory / "own.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        done = subprocess.run(
            [STEPSET, "validate", "train.py", "--image", "a:1", "--server", "--kubeconfig", path],
            cwd=_with_script(admin.directory), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert f"in namespace {admin.namespace} " in done.stdout, done.stderr


def _with_script(directory: Path) -> Path:
    (directory / "train.py").write_text("print('training')\n")
    return directory


class TestRefused:
    def test_without_an_image(self, admin: Validator) -> None:
        assert admin.refused(image=None) == ["image: is missing; pods need one"]

    def test_an_image_that_the_server_refuses_in_pods_only(self, admin: Validator) -> None:
        """The server accepts a JobSet with this image and refuses its pods, so stepset refuses it before."""
        (line,) = admin.refused(image=" registry.example/train:1")
        assert line.startswith("image: ' registry.example/train:1' begins or ends with white space")

    def test_a_namespace_that_does_not_exist(self, admin: Validator) -> None:
        assert admin.refused("--namespace", "nowhere") == [
            "namespace: 'nowhere' does not exist; create it: kubectl create namespace nowhere; or give another one:"
            " --namespace NAME"
        ]

    def test_a_service_account_and_a_priority_class_that_do_not_exist(self, admin: Validator) -> None:
        (account,) = admin.refused(service_account="missing")
        assert account.startswith("service_account: the server refuses it: error looking up service account ")
        assert account.endswith(f"; create it: kubectl create serviceaccount missing -n {admin.namespace}")
        (priority,) = admin.refused(scheduling={"priority_class": "soon"})
        assert priority.startswith("scheduling.priority_class: the server refuses it: no PriorityClass with name soon")

    def test_errors_in_pod_template_are_reported_with_their_fields(self, admin: Validator) -> None:
        node = {"name": "node", "securityContext": {"runAsUser": -3}}
        template = {"dnsPolicy": "Somehow", "hostAliases": [{"ip": "nowhere"}], "containers": [node]}
        found = admin.refused(pod_template=template)
        assert {line.partition(": ")[0] for line in found} == {
            "pod_template.dnsPolicy",
            "pod_template.hostAliases.0.ip",
            "pod_template.containers.node.securityContext.runAsUser",
        }
        assert len(found) == 3

    @pytest.mark.parametrize("target", ["jobset", "job"])
    def test_a_field_that_no_pod_has(self, admin: Validator, target: str) -> None:
        template = {"spec": {"containers": [{"name": "node", "securityContext": {"runAsUsr": 3}}]}}
        assert admin.refused("--target", target, pod_template=template) == [
            "pod_template.spec.containers.node.securityContext.runAsUsr: the server refuses it: unknown field"
        ]

    def test_a_value_of_the_wrong_type(self, admin: Validator) -> None:
        template = {"containers": [{"name": "node", "securityContext": {"runAsUser": "me"}}]}
        found = admin.refused("--target", "job", pod_template=template)
        assert found[0].startswith("pod_template.containers.securityContext.runAsUser: the server refuses it: is a str")

    def test_resources_of_a_role(self, cluster: Cluster, admin: Validator) -> None:
        limit = {"type": "Container", "max": {"cpu": "1"}}
        _create(cluster, admin, "LimitRange", {"limits": [limit]})
        role = {"name": "watch", "command": ["watch"], "resources": {"cpu": 3}}
        (found,) = admin.refused(roles=[role], resources_per_node={"cpu": 1})
        assert found == (
            "roles.watch.resources: the server refuses it: maximum cpu usage per Container is 1, but limit is 3; stay"
            " within the namespace's LimitRange"
        )

    def test_a_quota_that_all_pods_exceed_together(self, cluster: Cluster, admin: Validator) -> None:
        """The server checks one pod of each group. The LimitRange sets the requests of the second job."""
        limits = {"type": "Container", "defaultRequest": {"cpu": "600m"}}
        _create(cluster, admin, "LimitRange", {"limits": [limits]})
        _create(cluster, admin, "ResourceQuota", {"hard": {"requests.cpu": "1", "count/configmaps": "9"}})
        cluster.wait("the quota", lambda: "hard" in cluster.get("resourcequota/rule", admin.namespace)["status"])
        begin = "ResourceQuota rule: all pods of the run need requests.cpu "
        never = "so some pods can never start; request less, or have the quota raised"
        for job, needed in (({"resources_per_node": {"requests": {"cpu": "700m"}}}, "1400m"), ({}, "1200m")):
            assert admin.refused(**job) == [f"{begin}{needed} together, but the quota is 1, {never}"]
        elastic = {"framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}}}
        code, lines = admin.validate(**elastic)
        assert (code, lines[2:]) == (0, [f"note: {begin}1200m together, but the quota is 1, {never}"])
        container = {"name": "other", "image": "registry.example/other:1"}
        pod = {"containers": [{**container, "resources": {"requests": {"cpu": "400m"}}}]}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": pod}, admin.namespace)
        code, lines = admin.validate(resources_per_node={"requests": {"cpu": "400m"}})
        later = "600m of 1 is free, so some pods start only after other pods have been deleted"
        assert (code, lines[2:]) == (0, [f"note: {begin}800m together, and {later}"])
        assert len(admin.validate(resources_per_node={"requests": {"cpu": "300m"}})[1]) == 2

    def test_a_quota_that_one_pod_exceeds(self, cluster: Cluster, admin: Validator) -> None:
        _create(cluster, admin, "ResourceQuota", {"hard": {"requests.cpu": "1"}})
        cluster.wait("the quota", lambda: "hard" in cluster.get("resourcequota/rule", admin.namespace)["status"])
        (found,) = admin.refused(resources_per_node={"cpu": 4})
        assert found == (
            "resources_per_node: the server refuses it: exceeded quota: rule, requested: requests.cpu=4, used:"
            " requests.cpu=0, limited: requests.cpu=1; stay within the namespace's quota, or have it raised"
        )
        (silent,) = admin.refused()
        assert "must specify requests.cpu" in silent

    def test_pod_security(self, cluster: Cluster, admin: Validator) -> None:
        cluster.kubectl("label", "namespace", admin.namespace, "pod-security.kubernetes.io/enforce=restricted")
        (found,) = admin.refused()
        assert found.startswith('security: the server refuses it: violates PodSecurity "restricted')
        assert found.endswith("; set `security: restricted` in the job")
        code, _ = admin.validate(security="restricted")
        assert code == 0

    def test_controllers_that_are_not_installed(self, cluster: Cluster, admin: Validator) -> None:
        kinds = cluster.kubectl("api-resources", "-o", "name").split()
        if "jobs.batch.volcano.sh" in kinds or "podgroups.scheduling.x-k8s.io" in kinds:
            pytest.skip("this cluster has Volcano or coscheduling, whose absence is tested here")
        assert admin.refused("--target", "volcano") == [
            "target: Volcano is not installed on this cluster (batch.volcano.sh/v1alpha1 is not served); use"
            " --target job, or install it"
        ]
        (found,) = admin.refused(scheduling={"gang": "coscheduling"})
        assert found.startswith("scheduling.gang: scheduler-plugins' coscheduling is not installed on this cluster")

    def test_a_policy_of_the_clusters_own(self, cluster: Cluster, admin: Validator) -> None:
        name = admin.namespace
        here = {"matchLabels": {"kubernetes.io/metadata.name": name}}
        rule = {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}
        policy = {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
            "validations": [{"expression": "'team' in object.metadata.labels", "message": "runs belong to a team"}],
        }
        binding = {"policyName": name, "validationActions": ["Deny"]}
        with (
            _made(cluster, "ValidatingAdmissionPolicy", name, {"spec": policy}),
            _made(cluster, "ValidatingAdmissionPolicyBinding", name, {"spec": binding}),
        ):
            cluster.wait("the policy", lambda: admin.validate()[0] == 2)
            (found,) = admin.refused()
            assert found.startswith(f"JobSet digits: the server refuses it: ValidatingAdmissionPolicy '{name}'")
            assert found.endswith("runs belong to a team")
            assert admin.validate(labels={"team": "a"})[0] == 0


@contextmanager
def _made(cluster: Cluster, kind: str, name: str, content: dict[str, Any]) -> Iterator[None]:
    """Creates a cluster-scoped object, and deletes it afterwards."""
    cluster.apply(
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **content}
    )
    try:
        yield
    finally:
        cluster.kubectl("delete", kind, name)


def _create(cluster: Cluster, admin: Validator, kind: str, spec: dict[str, Any]) -> None:
    cluster.apply({"apiVersion": "v1", "kind": kind, "metadata": {"name": "rule"}, "spec": spec}, admin.namespace)


class TestPermissions:
    @pytest.fixture
    def unprivileged(self, cluster: Cluster, admin: Validator) -> Validator:
        """A service account without rights."""
        cluster.kubectl("create", "serviceaccount", "trainer", "-n", admin.namespace)
        token = cluster.kubectl("create", "token", "trainer", "-n", admin.namespace).strip()
        return admin.with_user({"token": token})

    def test_an_account_without_any_permission_gets_one_line_with_the_command(self, unprivileged: Validator) -> None:
        found = unprivileged.refused()
        who = f"system:serviceaccount:{unprivileged.namespace}:trainer"
        remedy = (
            f"have an administrator run: stepset rbac --namespace {unprivileged.namespace} --target jobset --account"
            f" {unprivileged.namespace}/trainer | kubectl apply -f -"
        )
        create = "which might not exist (stepset rbac --create-namespace also creates it)"
        where = f"in namespace {unprivileged.namespace!r}, {create}; {remedy}"
        assert found == [f"rbac: {who} may not create, read or delete runs {where}"]
        assert yaml.safe_load(unprivileged.kubeconfig.read_text())["users"][0]["user"]["token"] not in "\n".join(found)

    def test_a_mistyped_namespace_is_one_line(self, unprivileged: Validator) -> None:
        """The server does not tell this account whether the namespace exists."""
        (found,) = unprivileged.refused("--namespace", "nowhere")
        where = "in namespace 'nowhere', which might not exist (stepset rbac --create-namespace also creates it); "
        assert f"may not create, read or delete runs {where}" in found

    def test_the_role_of_that_command_is_sufficient(self, cluster: Cluster, unprivileged: Validator) -> None:
        namespace = unprivileged.namespace
        words = [STEPSET, "rbac", "--namespace", namespace, "--account", f"{namespace}/trainer"]
        role = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        cluster.kubectl("apply", "-f", "-", text=role)
        code, lines = unprivileged.validate()
        assert code == 0, lines
        assert lines[1].startswith(
            f"server {address(unprivileged.kubeconfig)}: accepts the objects of the job as a jobset in namespace"
            f" {namespace}, but the pods were not checked (dry run of 3 objects; "
        )
        assert lines[-1].startswith(
            "note: the pods were not checked against quotas, limit ranges, pod security, service accounts and priority"
            f" classes, because that needs the permission to create pods in namespace {namespace}; to check them, have"
            " an administrator run: "
        )
        command = remedy(lines[-1])
        given = f"--target jobset --with validate --account {namespace}/trainer"
        assert command == f"stepset rbac --namespace {namespace} {given} | kubectl apply -f -"
        paste(cluster, command)
        code, lines = unprivileged.validate()
        assert (code, len(lines)) == (0, 2), lines
        assert "(dry run of 3 objects, 1 pod;" in lines[1]
        (found,) = unprivileged.refused(service_account="missing")
        assert found.startswith("service_account: the server refuses it: error looking up service account ")

    def test_a_single_missing_verb_is_reported(self, cluster: Cluster, unprivileged: Validator) -> None:
        objects = rbac(namespace=unprivileged.namespace)
        role, binding = objects[-2:]
        for rule in role["rules"]:
            if rule["resources"] == ["pods"]:
                rule["verbs"].remove("delete")
        binding["subjects"] = [{"kind": "ServiceAccount", "name": "trainer", "namespace": unprivileged.namespace}]
        cluster.kubectl(
            "apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]})
        )
        (found,) = unprivileged.refused()
        assert " may not delete pods in namespace " in found


class TestInAPod:
    def test_checks_the_rights_of_its_service_account_in_its_namespace(self, cluster: Cluster, namespace: str) -> None:
        if cluster.choice is None:
            pytest.skip("only on the cluster of `make cluster`, whose pods have this machine's Python and stepset")
        source = str(Path(stepset.__file__).parents[1])
        code = (
            f"import os, sys; sys.path.insert(0, {source!r}); os.chdir('/tmp'); open('train.py', 'w').close();"
            " from stepset.cli import main; sys.exit(main(['validate', 'train.py', '--image', 'a:1', '--server']))"
        )
        spec = merge(
            cluster.pod_spec([cluster.python, "-c", code]), cluster.pod_template("node", [Mount(source)])["spec"]
        )
        spec = {**spec, "restartPolicy": "Never", "automountServiceAccountToken": True}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "validator"}, "spec": spec}, namespace)
        cluster.wait(
            "its end", lambda: cluster.get("pod/validator", namespace)["status"]["phase"] in ("Succeeded", "Failed")
        )
        log = cluster.logs("validator", namespace)
        assert f" rbac: system:serviceaccount:{namespace}:default may not create, read or delete runs in " in log
        create = "which might not exist (stepset rbac --create-namespace also creates it)"
        assert f" in namespace {namespace!r}, {create}; " in log


class TestUnreachable:
    def _unreachable(self, validator: Validator) -> str:
        code, lines = validator.validate()
        assert (code, len(lines)) == (3, 1), lines
        return lines[0].removeprefix("stepset: ")

    def test_a_port_without_a_listener(self, admin: Validator) -> None:
        with socket.socket() as free:  # bound and not listening: connections are refused
            free.bind(("127.0.0.1", 0))
            server = f"https://127.0.0.1:{free.getsockname()[1]}"
            content = yaml.safe_load(admin.kubeconfig.read_text())
            content["clusters"][0]["cluster"]["server"] = server
            path = admin.directory / "unreachable.kubeconfig"
            path.write_text(yaml.safe_dump(content))
            message = self._unreachable(replace(admin, kubeconfig=path))
        assert message.startswith(f"server {server}: cannot be reached: Failed to establish a new connection: ")
        assert message.endswith("; check the network, or the server's address in the kubeconfig")

    def test_a_server_with_another_certificate(self, admin: Validator) -> None:
        content = yaml.safe_load(admin.kubeconfig.read_text())
        cluster = content["clusters"][0]["cluster"]
        del cluster["certificate-authority-data"]
        path = admin.directory / "other-ca.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        assert "CERTIFICATE_VERIFY_FAILED" in self._unreachable(replace(admin, kubeconfig=path))

    def test_a_webhook_that_does_not_answer(self, cluster: Cluster, admin: Validator) -> None:
        webhook = {
            "name": "unreachable.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": admin.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        with _made(cluster, "ValidatingWebhookConfiguration", admin.namespace, {"webhooks": [webhook]}):
            cluster.wait("the webhook", lambda: admin.validate()[0] == 3)
            message = self._unreachable(admin)
        assert "failed with HTTP 500: " in message
        assert 'failed calling webhook "unreachable.example.com"' in message

    def test_an_unknown_token(self, admin: Validator) -> None:
        message = self._unreachable(admin.with_user({"token": "no-such-token"}))
        assert message == (
            f"server {address(admin.kubeconfig)}: refuses the credentials; log in again, or check the user of the"
            " kubeconfig's context"
        )

    def test_no_credentials(self, admin: Validator) -> None:
        message = self._unreachable(admin.with_user({}))
        assert message.startswith(f"server {address(admin.kubeconfig)}: ")

    def test_a_token_that_cannot_be_sent_is_bad_input_and_not_shown(self, admin: Validator) -> None:
        token = base64.b64encode(b"secret").decode()
        code, lines = admin.with_user({"token": f"{token}\nmore"}).validate()
        assert (code, len(lines)) == (2, 1), lines
        assert token not in lines[0]
