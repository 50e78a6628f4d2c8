"""`stepset validate JOB --server`: a real API server says what it would refuse, in the job file's words."""

from __future__ import annotations

import base64
import io
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import stepset
from stepset.cli import main
from stepset.targets.pods.strategic_merge import merge
from stepset.targets.rbac import rbac
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.pod import Mount

pytestmark = pytest.mark.cluster

JOB = {"name": "digits", "image": "registry.example/train:1", "script": "train.py", "num_nodes": 2}
STEPSET = Path(sys.executable).parent / "stepset"


@dataclass(frozen=True)
class Asker:
    """Somebody with a kubeconfig who validates jobs in the working directory."""

    directory: Path
    kubeconfig: Path
    namespace: str

    def validate(self, *flags: str, **job: Any) -> tuple[int, list[str]]:
        """Exit code, and the lines of stdout and stderr."""
        (self.directory / "train.py").write_text("print('training')\n")
        (self.directory / "job.yaml").write_text(yaml.safe_dump({**JOB, **job}))
        words = ["validate", "job.yaml", "--server", "--kubeconfig", str(self.kubeconfig)]
        words += [] if "--namespace" in flags else ["--namespace", self.namespace]
        out, err = io.BytesIO(), io.BytesIO()
        with redirect_stdout(io.TextIOWrapper(out)) as said, redirect_stderr(io.TextIOWrapper(err)) as told:
            code = main([*words, *flags])
            said.flush()
            told.flush()
        assert b"Traceback" not in err.getvalue()
        return code, (out.getvalue() + err.getvalue()).decode().splitlines()

    def refused(self, *flags: str, **job: Any) -> list[str]:
        """The problems of a job that is refused."""
        code, lines = self.validate(*flags, **job)
        assert code == 2, lines
        return [line.removeprefix("stepset: job.yaml: ") for line in lines]

    def with_user(self, user: dict[str, Any]) -> Asker:
        """The same with another user; of the kubeconfig only the server stays."""
        content = yaml.safe_load(self.kubeconfig.read_text())
        chosen = next(each for each in content["contexts"] if each["name"] == content["current-context"])
        content["users"] = [{"name": "somebody", "user": user}]
        chosen["context"]["user"] = "somebody"
        path = self.directory / "other.kubeconfig"
        path.write_text(yaml.safe_dump({**content, "contexts": [chosen]}))
        return replace(self, kubeconfig=path)


@pytest.fixture
def admin(cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asker:
    monkeypatch.chdir(tmp_path)
    return Asker(tmp_path, Path(cluster.kubeconfig), namespace)


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
    def test_a_job_in_every_target_and_nothing_is_made(
        self, cluster: Cluster, admin: Asker, target: str, job: dict[str, Any], tried: str
    ) -> None:
        code, lines = admin.validate("--target", target, **job)
        assert (code, lines[0].startswith("job.yaml: valid: digits, ")) == (0, True), lines
        assert lines[1].startswith(f"server {address(admin.kubeconfig)}: accepts it as a {target} in namespace")
        assert f"(dry run of {tried};" in lines[1]
        kinds = "configmaps,secrets,services,pods,jobs,jobsets,trainjobs,trainingruntimes,statefulsets"
        made = [each["metadata"]["name"] for each in cluster.get(kinds, admin.namespace)["items"]]
        assert [name for name in made if name.startswith("digits")] == []

    def test_a_run_of_that_name_that_is_there_already_is_no_problem(self, cluster: Cluster, admin: Asker) -> None:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "digits-agent"}}
        cluster.apply(config, admin.namespace)
        assert admin.validate()[0] == 0

    def test_the_contexts_namespace_is_meant_where_none_is_given(self, admin: Asker) -> None:
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
    def test_without_an_image(self, admin: Asker) -> None:
        assert admin.refused(image=None) == ["image: is missing; pods need one"]

    def test_an_image_that_the_server_refuses(self, admin: Asker) -> None:
        # A JobSet with it is taken; only its pods are refused.
        assert admin.refused(image=" registry.example/train:1") == [
            'image: the server refuses it: Invalid value: " registry.example/train:1": must not have leading or'
            " trailing whitespace"
        ]

    def test_a_namespace_that_is_not_there(self, admin: Asker) -> None:
        assert admin.refused("--namespace", "nowhere") == [
            "namespace: 'nowhere' is not there, or is being deleted; create it, or give --namespace"
        ]

    def test_a_service_account_and_a_priority_class_that_are_not_there(self, admin: Asker) -> None:
        (account,) = admin.refused(service_account="nobody")
        assert account.startswith("service_account: the server refuses it: error looking up service account ")
        (priority,) = admin.refused(scheduling={"priority_class": "soon"})
        assert priority.startswith("scheduling.priority_class: the server refuses it: no PriorityClass with name soon")

    def test_mistakes_in_pod_template_each_at_its_place(self, admin: Asker) -> None:
        node = {"name": "node", "securityContext": {"runAsUser": -3}}
        template = {"dnsPolicy": "Somehow", "tolerations": [{"key": "a b", "operator": "Exists"}], "containers": [node]}
        found = admin.refused(pod_template=template)
        assert {line.partition(": ")[0] for line in found} == {
            "pod_template.dnsPolicy",
            "pod_template.tolerations",
            "pod_template.containers.node.securityContext.runAsUser",
        }
        assert len(found) == 3

    @pytest.mark.parametrize("target", ["jobset", "job"])
    def test_a_field_that_no_pod_has(self, admin: Asker, target: str) -> None:
        template = {"spec": {"containers": [{"name": "node", "securityContext": {"runAsUsr": 3}}]}}
        assert admin.refused("--target", target, pod_template=template) == [
            "pod_template.spec.containers.node.securityContext.runAsUsr: the server refuses it: unknown field"
        ]

    def test_a_value_of_the_wrong_type(self, admin: Asker) -> None:
        template = {"containers": [{"name": "node", "securityContext": {"runAsUser": "me"}}]}
        found = admin.refused("--target", "job", pod_template=template)
        assert found[0].startswith("pod_template.containers.securityContext.runAsUser: the server refuses it: is a str")

    def test_resources_of_a_role(self, cluster: Cluster, admin: Asker) -> None:
        limit = {"type": "Container", "max": {"cpu": "1"}}
        _create(cluster, admin, "LimitRange", {"limits": [limit]})
        role = {"name": "watch", "command": ["watch"], "resources": {"cpu": 3}}
        (found,) = admin.refused(roles=[role], resources_per_node={"cpu": 1})
        assert found == (
            "roles.watch.resources: the server refuses it: maximum cpu usage per Container is 1, but limit is 3; keep"
            " to the namespace's LimitRange"
        )

    def test_a_quota_that_one_pod_exceeds(self, cluster: Cluster, admin: Asker) -> None:
        _create(cluster, admin, "ResourceQuota", {"hard": {"requests.cpu": "1"}})
        cluster.wait("the quota", lambda: "hard" in cluster.get("resourcequota/rule", admin.namespace)["status"])
        (found,) = admin.refused(resources_per_node={"cpu": 4})
        assert found == (
            "resources_per_node: the server refuses it: exceeded quota: rule, requested: requests.cpu=4, used:"
            " requests.cpu=0, limited: requests.cpu=1; fit it into the namespace's quota, or have that raised"
        )
        (silent,) = admin.refused()
        assert "must specify requests.cpu" in silent

    def test_pod_security(self, cluster: Cluster, admin: Asker) -> None:
        cluster.kubectl("label", "namespace", admin.namespace, "pod-security.kubernetes.io/enforce=restricted")
        (found,) = admin.refused()
        assert found.startswith('pod_template.securityContext: the server refuses it: violates PodSecurity "restricted')

    def test_what_is_not_installed(self, cluster: Cluster, admin: Asker) -> None:
        kinds = cluster.kubectl("api-resources", "-o", "name").split()
        if "jobs.batch.volcano.sh" in kinds or "podgroups.scheduling.x-k8s.io" in kinds:
            pytest.skip("this cluster has Volcano or coscheduling, whose absence is tested here")
        assert admin.refused("--target", "volcano") == [
            "target: Volcano is not installed on this cluster (batch.volcano.sh/v1alpha1 is not served); use another"
            " --target, or install it"
        ]
        (found,) = admin.refused(scheduling={"gang": "coscheduling"})
        assert found.startswith("scheduling.gang: scheduler-plugins' coscheduling is not installed on this cluster")

    def test_a_policy_of_the_clusters_own(self, cluster: Cluster, admin: Asker) -> None:
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
    """An object of the whole cluster's, taken away afterwards."""
    cluster.apply(
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **content}
    )
    try:
        yield
    finally:
        cluster.kubectl("delete", kind, name)


def _create(cluster: Cluster, admin: Asker, kind: str, spec: dict[str, Any]) -> None:
    cluster.apply({"apiVersion": "v1", "kind": kind, "metadata": {"name": "rule"}, "spec": spec}, admin.namespace)


class TestPermissions:
    @pytest.fixture
    def nobody(self, cluster: Cluster, admin: Asker) -> Asker:
        """A service account that may do nothing."""
        cluster.kubectl("create", "serviceaccount", "trainer", "-n", admin.namespace)
        token = cluster.kubectl("create", "token", "trainer", "-n", admin.namespace).strip()
        return admin.with_user({"token": token})

    def test_what_is_missing_is_named_with_what_grants_it(self, nobody: Asker) -> None:
        found = nobody.refused()
        who = f"system:serviceaccount:{nobody.namespace}:trainer"
        remedy = (
            f"have an administrator run: stepset rbac --namespace {nobody.namespace} --target jobset --account"
            f" {nobody.namespace}/trainer | kubectl apply -f -"
        )
        where = f"in namespace {nobody.namespace}; {remedy}"
        assert (
            found[0] == f"rbac: {who} may not get, list, watch, create, patch, delete jobsets.jobset.x-k8s.io {where}"
        )
        assert f"rbac: {who} may not get pods/log {where}" in found
        assert f"rbac: {who} may not patch pods/status {where}" in found
        assert len(found) == 8
        assert yaml.safe_load(nobody.kubeconfig.read_text())["users"][0]["user"]["token"] not in "\n".join(found)

    def test_the_role_it_names_is_enough(self, cluster: Cluster, nobody: Asker) -> None:
        words = [STEPSET, "rbac", "--namespace", nobody.namespace, "--account", f"{nobody.namespace}/trainer"]
        role = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        cluster.kubectl("apply", "-f", "-", text=role)
        code, lines = nobody.validate()
        assert code == 0, lines
        assert lines[-1].startswith("note: pods were not tried: you may not create pods")

    def test_one_missing_verb_is_named_alone(self, cluster: Cluster, nobody: Asker) -> None:
        objects = rbac(namespace=nobody.namespace)
        role, binding = objects[-2:]
        for rule in role["rules"]:
            if rule["resources"] == ["pods"]:
                rule["verbs"].remove("delete")
        binding["subjects"] = [{"kind": "ServiceAccount", "name": "trainer", "namespace": nobody.namespace}]
        cluster.kubectl(
            "apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]})
        )
        (found,) = nobody.refused()
        assert " may not delete pods in namespace " in found


class TestInAPod:
    def test_its_service_account_asks_about_its_own_namespace(self, cluster: Cluster, namespace: str) -> None:
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
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asker"}, "spec": spec}, namespace)
        cluster.wait(
            "its end", lambda: cluster.get("pod/asker", namespace)["status"]["phase"] in ("Succeeded", "Failed")
        )
        said = cluster.logs("asker", namespace)
        assert f" rbac: system:serviceaccount:{namespace}:default may not get, " in said
        assert f" jobsets.jobset.x-k8s.io in namespace {namespace}; " in said


class TestUnreachable:
    def _unreachable(self, asker: Asker) -> str:
        code, lines = asker.validate()
        assert (code, len(lines)) == (3, 1), lines
        return lines[0].removeprefix("stepset: ")

    def test_nobody_listens(self, admin: Asker) -> None:
        with socket.socket() as free:  # bound and not listening: connections are refused
            free.bind(("127.0.0.1", 0))
            server = f"https://127.0.0.1:{free.getsockname()[1]}"
            content = yaml.safe_load(admin.kubeconfig.read_text())
            content["clusters"][0]["cluster"]["server"] = server
            path = admin.directory / "gone.kubeconfig"
            path.write_text(yaml.safe_dump(content))
            said = self._unreachable(replace(admin, kubeconfig=path))
        assert said.startswith(f"server {server}: cannot be reached: Failed to establish a new connection: ")
        assert said.endswith("; check the network, or the server's address in the kubeconfig")

    def test_a_server_with_another_certificate(self, admin: Asker) -> None:
        content = yaml.safe_load(admin.kubeconfig.read_text())
        cluster = content["clusters"][0]["cluster"]
        del cluster["certificate-authority-data"]
        path = admin.directory / "other-ca.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        assert "CERTIFICATE_VERIFY_FAILED" in self._unreachable(replace(admin, kubeconfig=path))

    def test_a_webhook_that_does_not_answer(self, cluster: Cluster, admin: Asker) -> None:
        webhook = {
            "name": "gone.example.com",
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
            said = self._unreachable(admin)
        assert "failed with HTTP 500: " in said
        assert 'failed calling webhook "gone.example.com"' in said

    def test_a_token_it_does_not_know(self, admin: Asker) -> None:
        said = self._unreachable(admin.with_user({"token": "no-such-token"}))
        assert said == (
            f"server {address(admin.kubeconfig)}: refuses the credentials; log in again, or check the user of the"
            " kubeconfig's context"
        )

    def test_nobody_at_all(self, admin: Asker) -> None:
        said = self._unreachable(admin.with_user({}))
        assert said.startswith(f"server {address(admin.kubeconfig)}: ")

    def test_a_token_that_cannot_be_sent_is_bad_input_and_not_shown(self, admin: Asker) -> None:
        token = base64.b64encode(b"secret").decode()
        code, lines = admin.with_user({"token": f"{token}\nmore"}).validate()
        assert (code, len(lines)) == (2, 1), lines
        assert token not in lines[0]
