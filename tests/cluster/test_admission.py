"""Runs that cannot start: the cause is reported, the run continues when it can, and the wait ends after a timeout."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stepset.errors import BadInputError, InfrastructureError
from stepset.run_status import Failure, FailureKind, Phase
from stepset.watch.advice import ADVICE
from tests.cluster.many import MEET, PAIR, Many, many
from tests.cluster.runs import RecordingListener, Runs
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError

pytestmark = pytest.mark.cluster

NO_TIMEOUT: dict[str, Any] = {"options": {"startup_timeout": None}}
TRAINED = "print('trained')"
JOBS: dict[str, dict[str, Any]] = {
    name: {"text": TRAINED, "owner": f"owner-of-{name}", **NO_TIMEOUT, **PAIR, **fields}
    for name, fields in {
        "image": {"image": "stepset.test/none:1"},
        "registry": {
            "image": "127.0.0.1:1/none:1",
            "pod_template": {"containers": [{"name": "node", "imagePullPolicy": "IfNotPresent"}]},
        },
        "cpus": {"resources_per_node": {"cpu": 1000}},
        "gpus": {"resources_per_node": {"gpus": 8}},
        "secret": {"env": {"TOKEN": {"secret": "hub", "key": "token"}}},
        "account": {"service_account": "not-created"},
        "priority": {"scheduling": {"priority_class": "not-created"}},
    }.items()
}


@pytest.fixture(scope="module")
def stuck(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """The runs of the table, started together."""
    with many(cluster, tmp_path_factory.mktemp("runs"), JOBS) as found:
        yield found


def trouble_of(listener: RecordingListener) -> Failure:
    """Waits until a run has a trouble; returns it."""
    listener.wait_until(lambda: bool(listener.statuses) and listener.statuses[-1].trouble is not None, "trouble")
    trouble = listener.statuses[-1].trouble
    assert trouble is not None
    return trouble


# Run -> reason, kind, and a pattern of the message: the pod, and the cluster's message.
TROUBLES: dict[str, tuple[str, FailureKind, str]] = {
    "registry": ("PullingImage", FailureKind.IMAGE_PULL, r"pod registry-node-0-\d-\w+ .*127\.0\.0\.1:1/none:1"),
    "cpus": ("Unschedulable", FailureKind.UNSCHEDULABLE, r"pod cpus-node-0-\d-\w+.* Insufficient cpu"),
    "gpus": ("Unschedulable", FailureKind.UNSCHEDULABLE, r"pod gpus-node-0-\d-\w+.* Insufficient nvidia.com/gpu"),
    "secret": (
        "Starting",
        FailureKind.REJECTED,
        r"pod secret-node-0-\d-\w+ .* cannot be started: CreateContainerConfigError: secret \"hub\" not found",
    ),
    "account": (
        "Starting",
        FailureKind.REJECTED,
        r"Job account-node-0 .* serviceaccount \"not-created\" not found; create it: kubectl ",
    ),
    "priority": ("Starting", FailureKind.REJECTED, r"Job priority-node-0 .*no PriorityClass with name not-created"),
}


class TestTrouble:
    @pytest.mark.parametrize("run", TROUBLES)
    def test_reports_what_keeps_a_run_from_starting_while_it_waits(self, stuck: Many, run: str) -> None:
        trouble = trouble_of(stuck.listener(run))
        reason, kind, message = TROUBLES[run]
        status = stuck.listener(run).wait_for(Phase.PENDING, reason)
        assert (trouble.kind, trouble.advice) == (kind, ADVICE[kind])
        assert re.search(message, trouble.message), trouble.message
        assert status.failure is None

    def test_fails_at_once_if_waiting_cannot_help_even_without_a_timeout(self, stuck: Many) -> None:
        status = stuck.end("image")
        assert (status.phase, status.trouble) == (Phase.FAILED, None)
        assert status.failure is not None
        assert (status.failure.kind, int(status.exit_code)) == (FailureKind.IMAGE_PULL, 3)
        message = r"pod image-node-0-\d-\w+ .*ErrImageNeverPull: Container image \"stepset.test/none:1\" is not present"
        assert re.search(message, status.failure.message), status.failure.message
        assert status.failure.message.endswith("; waiting cannot resolve this")
        assert stuck.runs.get("jobset/image")["spec"]["suspend"] is True

    @pytest.mark.parametrize("run", ["registry", "gpus", "account"])
    def test_after_the_timeout_the_trouble_is_the_failure(self, stuck: Many, run: str) -> None:
        trouble = trouble_of(stuck.listener(run))
        # The same owner, with a shorter timeout.
        text, fields = JOBS[run]["text"], {key: JOBS[run][key] for key in JOBS[run] if key not in ("text", "options")}
        handle, _ = stuck.runs.start(text, run=run, options={"startup_timeout": 1}, **fields)
        status = handle.wait()
        assert status.failure is not None
        assert (status.phase, status.reason, status.trouble) == (Phase.FAILED, trouble.kind.value, None)
        assert (status.failure.kind, status.failure.pod) == (trouble.kind, trouble.pod)
        assert status.failure.message.endswith("; gave up after 1 s without all pods running")
        assert stuck.end(run) == status
        assert stuck.runs.get(f"jobset/{run}")["spec"]["suspend"] is True
        selector = f"stepset.dev/run={run}"
        stuck.runs.cluster.wait("the end of its pods", lambda: not stuck.runs.get("pods", selector)["items"])


def apply(runs: Runs, *objects: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    runs.cluster.kubectl("apply", "-n", runs.namespace, "-f", "-", text=text)


class TestContinues:
    def test_when_its_secret_is_made_and_its_quota_raised(self, runs: Runs) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pods"},
            "spec": {"hard": {"pods": 1}},
        }
        apply(runs, quota)
        runs.cluster.wait("the quota", lambda: "hard" in runs.get("resourcequota/pods").get("status", {}))
        env = {"TOKEN": {"secret": "hub", "key": "token"}}
        handle, listener = runs.start(MEET + "print(len(os.environ['TOKEN']))", env=env, **PAIR)
        listener.wait_until(lambda: 'secret "hub" not found' in trouble_of(listener).message, "the secret's trouble")
        apply(
            runs,
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": "secret!"}},
        )
        listener.wait_until(lambda: "exceeded quota" in trouble_of(listener).message, "the quota's trouble")
        trouble = trouble_of(listener)
        assert trouble.kind is FailureKind.UNSCHEDULABLE
        assert re.search("exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1", trouble.message)
        apply(runs, {**quota, "spec": {"hard": {"pods": 2}}})
        status = handle.wait()
        assert status.phase is Phase.SUCCEEDED
        assert [listener.texts(f"rank {rank}") for rank in (0, 1)] == [["7"], ["7"]]
        assert not any("secret!" in json.dumps(each.to_dict()) for each in listener.statuses)


class TestPodsThatAreRefused:
    """The server accepts the workload but refuses its pods; only events report that."""

    def test_by_a_limit_range(self, runs: Runs) -> None:
        limits = [{"type": "Container", "max": {"memory": "64Mi"}}]
        meta = {"name": "small"}
        apply(runs, {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": limits}})
        _, listener = runs.start(TRAINED, resources_per_node={"memory": "1Gi"})
        trouble = trouble_of(listener)
        assert trouble.kind is FailureKind.REJECTED
        assert "maximum memory usage per Container is 64Mi, but limit is 1Gi" in trouble.message

    def test_by_pod_security(self, runs: Runs) -> None:
        label = "pod-security.kubernetes.io/enforce=restricted"
        runs.cluster.kubectl("label", "namespace", runs.namespace, label)
        _, listener = runs.start(TRAINED)
        trouble = trouble_of(listener)
        assert trouble.kind is FailureKind.REJECTED
        assert 'violates PodSecurity "restricted:latest"' in trouble.message

    def test_by_a_policy_of_the_cluster(self, runs: Runs) -> None:
        with policy(runs, "", "v1", "pods"):
            _, listener = runs.start(TRAINED)
            trouble = trouble_of(listener)
        assert trouble.kind is FailureKind.REJECTED
        assert "trainings belong elsewhere" in trouble.message


@contextmanager
def policy(runs: Runs, group: str, version: str, resource: str) -> Iterator[None]:
    """A policy that refuses objects of a kind in the namespace, as an admission webhook does, without its server."""
    name, api = runs.namespace, {"apiVersion": "admissionregistration.k8s.io/v1"}
    rules = [{"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]}]
    rule = {"expression": "false", "message": "trainings belong elsewhere"}
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [rule]}
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    bound = {"policyName": name, "validationActions": ["Deny"], "matchResources": selector}
    runs.cluster.apply({**api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec})
    runs.cluster.apply({**api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": bound})
    probes = {
        "pods": {"apiVersion": "v1", "kind": "Pod", "spec": runs.cluster.pod_spec(["true"])},
        "jobsets": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {}},
    }
    probe = json.dumps({**probes[resource], "metadata": {"name": "probe"}})
    try:
        runs.cluster.wait("the policy", lambda: "belong elsewhere" in refusal(runs, probe))
        yield
    finally:
        runs.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)


def refusal(runs: Runs, manifest: str) -> str:
    """Why the server refuses an object; empty if it accepts it."""
    try:
        runs.cluster.kubectl("create", "--dry-run=server", "-n", runs.namespace, "-f", "-", text=manifest)
    except TestbedError as error:
        return str(error)
    return ""


class TestSubmissionsThatAreRefused:
    """They leave nothing behind."""

    def test_by_a_policy_of_the_cluster(self, runs: Runs) -> None:
        with policy(runs, "jobset.x-k8s.io", "v1alpha2", "jobsets"):
            with pytest.raises(BadInputError, match="trainings belong elsewhere"):
                runs.start(TRAINED)
            runs.job_file(TRAINED)
            done = runs.cli("run", "job.yaml")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "trainings belong elsewhere" in done.stderr
        assert runs.left() == []

    def test_because_of_their_number(self, runs: Runs) -> None:
        hard = {"hard": {"count/jobsets.jobset.x-k8s.io": 0}}
        apply(runs, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": hard})
        runs.cluster.wait("the quota", lambda: "hard" in runs.get("resourcequota/none").get("status", {}))
        with pytest.raises(BadInputError, match=r"^JobSet run: .* exceeded quota: none, requested: count/jobsets"):
            runs.start(TRAINED)
        assert runs.left() == []

    def test_because_of_too_much_code(self, runs: Runs) -> None:
        (runs.directory / "src").mkdir()
        (runs.directory / "src" / "weights.bin").write_bytes(os.urandom(1200 * 1024))
        (runs.directory / "src" / "train.py").write_text(TRAINED)
        with pytest.raises(BadInputError, match=r"^code: .* bytes packed; at most 1048576 bytes packed can be shipped"):
            runs.start(code="src", script="train.py")
        assert runs.left() == []

    def test_because_of_too_large_an_environment(self, runs: Runs) -> None:
        with pytest.raises(
            BadInputError,
            match=r"^JobSet run: is larger than the server accepts for one object",
        ):
            # Linux allows at most 128 KiB in one variable.
            runs.start(TRAINED, env={f"BIG_{number}": "x" * 100_000 for number in range(16)})
        assert runs.left() == []

    def test_because_there_is_no_such_namespace(self, runs: Runs) -> None:
        elsewhere = {"namespace": "not-created"}
        with pytest.raises(InfrastructureError, match=r'^rbac: .* in the namespace "not-created"'):
            runs.start(TRAINED, options=elsewhere)
        admin = {**elsewhere, "kubeconfig": runs.cluster.kubeconfig}
        for fields in ({}, {"service_account": "not-created"}):
            with pytest.raises(BadInputError) as raised:
                runs.start(TRAINED, options=admin, **fields)
            assert str(raised.value) == (
                "namespace: 'not-created' does not exist; create it: kubectl create namespace not-created; or give"
                " another one: ClusterOptions(namespace='NAME')"
            )

    def test_because_there_is_no_such_service_account(self, runs: Runs) -> None:
        admin = {"kubeconfig": runs.cluster.kubeconfig}
        for target in ("jobset", "job", "trainjob", "statefulset"):
            with pytest.raises(BadInputError) as raised:
                runs.start(TRAINED, options={**admin, "target": target}, service_account="not-created")
            assert str(raised.value) == (
                f"service_account: 'not-created' does not exist in namespace {runs.namespace}; create it: kubectl"
                f" create serviceaccount not-created -n {runs.namespace}"
            )
        assert runs.left() == []
        assert runs.start(TRAINED, options=admin, service_account="default")[0].wait().phase is Phase.SUCCEEDED


class TestAnAccountWithoutRights:
    def test_gets_the_missing_right_and_the_remedy(self, runs: Runs) -> None:
        runs.cluster.kubectl("delete", "rolebinding", "--all", "-n", runs.namespace)
        runs.job_file(TRAINED)
        done = runs.cli("run", "job.yaml")
        assert done.returncode == 3
        who = f'User "system:serviceaccount:{runs.namespace}:submitter"'
        assert done.stderr == (
            f"stepset: rbac: jobsets.jobset.x-k8s.io is forbidden: {who}"
            f' cannot create resource "jobsets" in API group "jobset.x-k8s.io" in the namespace "{runs.namespace}",'
            " which might not exist (stepset rbac --create-namespace also creates it);"
            f" have an administrator run: stepset rbac --namespace {runs.namespace} --target jobset"
            f" --account {runs.namespace}/submitter | kubectl apply -f -\n"
        )
        assert runs.left() == []

    @pytest.mark.parametrize("kind", ["configmaps"])
    def test_leaves_no_part_of_a_run_behind(self, runs: Runs, kind: str) -> None:
        rules = [rule for rule in runs.get("role/stepset-jobset")["rules"] if rule["resources"] != [kind]]
        patch = json.dumps({"rules": rules})
        runs.cluster.kubectl("patch", "role/stepset-jobset", "-n", runs.namespace, "--type=merge", "-p", patch)
        with pytest.raises(InfrastructureError, match=f'rbac: .* cannot create resource "{kind}"'):
            runs.start(TRAINED)
        runs.wait_nothing_left()

    def test_that_may_submit_but_not_list_pods_gets_an_error(self, runs: Runs) -> None:
        rules = runs.get("role/stepset-jobset")["rules"]
        kept = [{**rule, "verbs": ["create"]} if rule["resources"] == ["pods"] else rule for rule in rules]
        runs.cluster.kubectl(
            "patch", "role/stepset-jobset", "-n", runs.namespace, "--type=merge", "-p", json.dumps({"rules": kept})
        )
        handle, _ = runs.start(TRAINED)
        with pytest.raises(InfrastructureError, match=r'continues: rbac: .* cannot list resource "pods"'):
            handle.wait()
        handle.cancel()
        runs.wait_nothing_left()
