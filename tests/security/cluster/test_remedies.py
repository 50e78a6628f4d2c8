"""An account without rights gets a command; once an administrator has run it, the same request succeeds."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import stepset
from stepset import ClusterOptions, InfrastructureError, Phase
from stepset.backends.kubernetes.api.namespaced import NamespacedClient
from stepset.backends.kubernetes.api.portal import connect
from stepset.backends.kubernetes.api.resources import WORKLOADS
from stepset.backends.kubernetes.stop import release_pod
from stepset.backends.kubernetes.submit.access_review import grant_of, missing_of, required_by
from tests.cluster.remedies import Requester, installed_targets, paste, remedy, succeeds_after_its_remedy
from tests.cluster.runs import ACCOUNT, VOLCANO, Runs, kubeconfig_of, runs_in
from tests.cluster.stage import Stage
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import Choice
from tests.cluster.users import kubeconfig_of_user
from tests.waiting import until

pytestmark = pytest.mark.cluster

READS = ("list", "status run", "logs run", "diagnose run", "wait run --timeout 1s")


def requester(runs: Runs) -> Requester:
    return Requester(runs.cluster, runs.namespace, ("--account", f"{runs.namespace}/{ACCOUNT}"), runs.kubeconfig)


def cli(runs: Runs, *words: str, code: int = 0) -> str:
    """What `stepset WORDS` prints if the account may not do it; empty if it exits with `code`."""
    done = runs.cli(*words)
    assert done.returncode in (3, code), (words, done.stdout, done.stderr)
    return done.stderr if done.returncode == 3 else ""


def test_the_remedy_grants_what_a_target_needs_that_is_not_installed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The server denies access before it checks whether it serves a kind, and reviews access to any kind."""
    if "volcano" in installed_targets(cluster):
        pytest.skip("this cluster has Volcano, whose absence is tested here")
    with runs_in(cluster, namespace, tmp_path, "volcano") as runs:
        _grants_what_volcano_needs(runs)


def _grants_what_volcano_needs(runs: Runs) -> None:
    job = runs.job_file("pass")

    def attempt() -> str:
        # The account is not refused any more if the error is that Volcano is missing.
        done = runs.cli("run", job, "--target", "volcano", "--detach")
        assert done.returncode == 3 or "target: Volcano is not installed on this cluster" in done.stderr
        return done.stderr if done.returncode == 3 else ""

    succeeds_after_its_remedy(requester(runs), attempt, targets=["volcano"])
    with connect(str(runs.kubeconfig)) as connection:
        needed = required_by(grant_of(runs.job("pass"), "volcano", "cli"))
        assert connection.call(missing_of, connection.client, needed, runs.namespace) == []


@pytest.mark.parametrize("runs", ["jobset", "trainjob", "statefulset", "job", VOLCANO], indirect=True)
def test_a_submission_succeeds(runs: Runs, stage: Stage) -> None:
    job = runs.job_file(**stage.job("count_until('end')", num_nodes=1))
    words = ("run", job, "--target", runs.target, "--detach")
    succeeds_after_its_remedy(requester(runs), lambda: cli(runs, *words), targets=[runs.target])


@pytest.mark.parametrize("interface", ["stepset.run", "stepset.aio.run"])
def test_a_run_of_the_python_api_succeeds(runs: Runs, interface: str) -> None:
    options = ClusterOptions(kubeconfig=str(runs.kubeconfig), namespace=runs.namespace, target="job")

    def attempt() -> str:
        try:
            if interface == "stepset.run":
                status = stepset.run(runs.job("pass"), "kubernetes", cluster=options)
            else:
                status = asyncio.run(stepset.aio.run(runs.job("pass"), "kubernetes", cluster=options))
        except InfrastructureError as error:
            return str(error)
        assert status.phase is Phase.SUCCEEDED
        return ""

    succeeds_after_its_remedy(requester(runs), attempt, targets=["job"])


@pytest.mark.parametrize("runs", ["jobset"], indirect=True)
def test_commands_that_find_runs_of_all_kinds_name_the_default_target(runs: Runs, stage: Stage) -> None:
    job = runs.job_file(**stage.job("count_until('end')", num_nodes=1))
    run = runs.cli("run", job, "--target", runs.target, "--name", "run", "--detach").stdout.strip()
    commands = [[run if word == "run" else word for word in line.split()] for line in READS]

    def attempt() -> str:
        """Sends the requests of all commands; all are refused with the same remedy, or all succeed."""
        # The run still counts, so the wait takes too long.
        return "\n".join(filter(None, (cli(runs, *words, code=4 * (words[0] == "wait")) for words in commands)))

    succeeds_after_its_remedy(requester(runs), attempt, "--read-only")
    succeeds_after_its_remedy(requester(runs), lambda: cli(runs, "cancel", run))


def test_the_error_for_a_run_that_is_not_found_names_the_targets_whose_runs_are_hidden(runs: Runs) -> None:
    """The account has the rights of `stepset rbac` for one target, and the run may have another one."""
    others = [each for each in WORKLOADS if each in installed_targets(runs.cluster) and each != "jobset"]
    hidden = [each for each in others if each != "job"]  # the Role for JobSets permits reading their Jobs
    refused = runs.cli("status", "run")
    assert refused.stderr == (
        f"stepset: run 'run' is not in namespace {runs.namespace}, or was deleted, for example after it failed in a"
        f" queue, or has a target whose runs this account may not read ({', '.join(hidden)}); list the runs of this"
        " namespace to see their names\n"
    )
    requester(runs).take_rights()
    more = f"; runs with the target {' or '.join(others)} need further permissions; have an administrator run: "
    assert more in runs.cli("status", "run").stderr


@pytest.mark.parametrize("runs", ["job", "jobset"], indirect=True)
def test_the_handle_of_a_submitted_run_needs_permissions_for_its_target_only(runs: Runs) -> None:
    target = None if runs.target == "jobset" else runs.target
    options = ClusterOptions(kubeconfig=str(runs.kubeconfig), namespace=runs.namespace, target=target)
    run = stepset.submit(runs.job("pass"), "kubernetes", cluster=options)

    def attempt() -> str:
        try:
            run.status()
        except InfrastructureError as error:
            assert "further permissions" not in str(error)
            return str(error)
        return ""

    succeeds_after_its_remedy(requester(runs), attempt, "--read-only", targets=[runs.target])


@pytest.mark.parametrize("runs", ["statefulset"], indirect=True)
def test_a_request_for_a_run_that_was_found_names_its_kind(runs: Runs, stage: Stage) -> None:
    """The account may read the workload, but not its pods."""
    job = runs.job_file(**stage.job("count_until('end')", num_nodes=1))
    runs.cli("run", job, "--target", runs.target, "--name", "run", "--detach")
    account = requester(runs)
    account.take_rights()
    grant_reading(runs, "apps", "statefulsets")
    for line, more in (("logs run", " --read-only"), ("logs -f run", " --read-only"), ("cancel run", "")):
        refused = runs.cli(*line.split())
        assert refused.returncode == 3, (line, refused.stdout)
        assert f" --target statefulset{more} --account " in remedy(refused.stderr), line


def grant_reading(runs: Runs, group: str, plural: str) -> None:
    about = {"name": "reader", "namespace": runs.namespace}
    rules = [{"apiGroups": [group], "resources": [plural], "verbs": ["get", "list", "watch"]}]
    kind = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": runs.namespace}
    role: dict[str, Any] = {"apiVersion": f"{kind}/v1", "kind": "Role", "metadata": about, "rules": rules}
    reference = {"apiGroup": kind, "kind": "Role", "name": "reader"}
    binding = {"apiVersion": f"{kind}/v1", "kind": "RoleBinding", "metadata": about, "roleRef": reference}
    for each in (role, {**binding, "subjects": [subject]}):
        runs.cluster.objects.create(each, runs.namespace)


def test_a_reader_of_the_python_api_that_names_its_target_gets_that_target_only(runs: Runs) -> None:
    options = ClusterOptions(kubeconfig=str(runs.kubeconfig), namespace=runs.namespace, target="job")

    def attempt() -> str:
        try:
            asyncio.run(stepset.aio.status("run", "kubernetes", cluster=options))
        except InfrastructureError as error:
            return str(error)
        except stepset.RunNotFoundError:
            return ""
        raise AssertionError("there is no run")

    succeeds_after_its_remedy(requester(runs), attempt, "--read-only", targets=["job"])


@pytest.mark.gate
def test_the_namespace_and_the_service_account_are_created_with_their_rights(runs: Runs, tmp_path: Path) -> None:
    made = f"{runs.namespace}-made"
    words = ["rbac", "--namespace", made, "--account", "trainer", "--create-namespace", "--create-service-account"]
    command = shlex.join(["stepset", *words]) + " | kubectl apply -f -"
    try:
        paste(runs.cluster, command)
        paste(runs.cluster, command)
        path = tmp_path / "made.kubeconfig"
        path.write_text(
            yaml.safe_dump(kubeconfig_of(runs.cluster, runs.cluster.objects.token("trainer", made, 3600), made))
        )
        assert replace(runs, namespace=made, kubeconfig=path).cli("list").returncode == 0
    finally:
        runs.cluster.kubectl("delete", "namespace", made, "--wait=false")


class TestRightsThatOnlySomeRunsNeed:
    """The account keeps its other rights, and gets the missing ones."""

    def test_mpi(self, runs: Runs) -> None:
        job = runs.job_file("pass", framework={"kind": "mpi"}, num_nodes=2)
        attempt = lambda: cli(runs, "run", job, "--detach")  # noqa: E731
        succeeds_after_its_remedy(requester(runs), attempt, "--mpi", takes=["stepset-mpi"])
        jobsets = lambda: [each["metadata"]["name"] for each in runs.get("jobsets")["items"]]  # noqa: E731
        assert until(lambda: len(jobsets()) == 1), "the refused submission leaves no object"
        assert [each["metadata"]["name"] for each in runs.get("secrets")["items"]] == [f"{jobsets()[0]}-mpi-ssh-auth"]

    def test_network_policies(self, runs: Runs) -> None:
        job = runs.job_file("pass", network={"policy": True})
        attempt = lambda: cli(runs, "run", job, "--detach")  # noqa: E731
        succeeds_after_its_remedy(requester(runs), attempt, "--network-policy", takes=["stepset-network-policy"])

    @pytest.mark.parametrize("runs", ["jobset", "statefulset"], indirect=True)
    def test_commands_beside_a_rank(self, runs: Runs, stage: Stage) -> None:
        job = runs.job_file(**stage.job("count_until('end')"))
        name = runs.cli("run", job, "--target", runs.target, "--detach").stdout.strip()
        assert until(lambda: "[rank 1] line 0" in runs.cli("logs", name).stdout)
        attempt = lambda: cli(runs, "exec", name, "--ranks", "1", "--", "true")  # noqa: E731
        account, targets = requester(runs), [runs.target]
        succeeds_after_its_remedy(account, attempt, "--with", "exec", targets=targets, takes=["stepset-exec"])

    def test_pods_of_lost_nodes(self, runs: Runs) -> None:
        spec = {**runs.cluster.pod_spec(["true"]), "nodeSelector": {"no": "such-node"}}
        runs.cluster.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lost"}, "spec": spec}, runs.namespace
        )
        uid = runs.get("pod/lost")["metadata"]["uid"]

        def attempt() -> str:
            with connect(str(runs.kubeconfig)) as connection:
                try:
                    connection.call(release_pod, NamespacedClient(connection.client, runs.namespace), "lost", uid)
                except InfrastructureError as error:
                    return str(error)
            return ""

        succeeds_after_its_remedy(requester(runs), attempt, "--lost-node", takes=["stepset-lost-node"])
        assert runs.get("pods")["items"] == []


ODD_USER = 'https://login.example/#O\'Brien "J  & <K>" \\ $HOME `id` é'
"""The name of a user as an identity provider may form it; the certificate of a user allows 64 characters."""


@contextmanager
def odd_namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace whose name is a number in YAML."""
    name = f"{secrets.randbelow(10**8) + 10**8}e2"
    cluster.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield name
    finally:
        cluster.objects.delete(f"namespace/{name}")


def test_names_that_are_numbers_in_yaml(cluster: Cluster, tmp_path: Path) -> None:
    with odd_namespace(cluster) as namespace:
        about = {"name": "1e3", "namespace": namespace}
        cluster.objects.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}, namespace)
        path = tmp_path / "kubeconfig"
        token = cluster.objects.token("1e3", namespace, 3600)
        path.write_text(yaml.safe_dump(kubeconfig_of(cluster, token, namespace)))
        runs = Runs(cluster, namespace, tmp_path, path)
        account = Requester(cluster, namespace, ("--account", f"{namespace}/1e3"), path)
        succeeds_after_its_remedy(account, lambda: cli(runs, "list"), "--read-only")


def test_a_service_account_of_another_namespace(runs: Runs, tmp_path: Path) -> None:
    with odd_namespace(runs.cluster) as home:
        about = {"name": "trainer", "namespace": home}
        runs.cluster.objects.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}, home)
        path = tmp_path / "other.kubeconfig"
        token = runs.cluster.objects.token("trainer", home, 3600)
        path.write_text(yaml.safe_dump(kubeconfig_of(runs.cluster, token, home)))
        other, job = replace(runs, kubeconfig=path), runs.job_file("pass")
        account = Requester(runs.cluster, runs.namespace, ("--account", f"{home}/trainer"), path)
        succeeds_after_its_remedy(account, lambda: cli(other, "run", job, "--target", "jobset", "--detach"))


def test_a_user_whose_name_needs_quoting(runs: Runs, testbed_choice: Choice, tmp_path: Path) -> None:
    """In the shell, in YAML, in the server's message and in the path of a RoleBinding."""
    path = tmp_path / "user.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig_of_user(runs.cluster, ODD_USER, runs.namespace)))
    other, job = replace(runs, kubeconfig=path), runs.job_file("pass")
    account = Requester(runs.cluster, runs.namespace, ("--user", ODD_USER), path)
    succeeds_after_its_remedy(account, lambda: cli(other, "run", job, "--target", "jobset", "--detach"))
