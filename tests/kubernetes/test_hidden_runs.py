"""Lists of runs by an account that may not list the workloads of every target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepset
from stepset import ClusterOptions, InfrastructureError, RunNotFoundError
from stepset.cli import main
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nowhere import kubeconfig
from tests.kubernetes.serving import serving

REASON = (
    'jobsets.jobset.x-k8s.io is forbidden: User "viewer" cannot list resource "jobsets" in API group "jobset.x-k8s.io"'
)
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "train",
        "uid": "u",
        "namespace": "ns",
        "creationTimestamp": "2026-11-21T03:00:00Z",
        "labels": {"stepset.dev/run": "train", "stepset.dev/job": "train"},
    },
    "spec": {"parallelism": 1},
}
REMEDY = "have an administrator run: stepset rbac --namespace ns --target jobset --user viewer | kubectl apply -f -"
TO_READ = REMEDY.replace("--target jobset", "--target jobset --read-only")


class Viewer:
    """A server that lists Jobs, and denies access to JobSets to the account.

    Attributes:
        denied: the plurals of the kinds to which the server denies access.
        jobs: the Jobs.
        served: whether the server serves JobSets.
    """

    def __init__(self) -> None:
        self.denied = ["jobsets"]
        self.jobs: list[dict[str, Any]] = []
        self.served = True

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path == "/apis/jobset.x-k8s.io/v1alpha2":
            return (200, {}) if self.served else (404, {"kind": "Status", "code": 404})
        if denied := next((each for each in self.denied if each in path.split("/")), ""):
            where = 'in the namespace "ns"' if "/namespaces/" in path else "at the cluster scope"
            verb = "create" if method == "POST" else "list" if path.endswith(denied) else "get"
            reason = REASON.replace("list", verb).replace("jobsets", denied)
            return 403, {"kind": "Status", "code": 403, "message": f"{reason} {where}"}
        items = self.jobs if path.startswith("/apis/batch/v1") and path.endswith("/jobs") else []
        key, _, value = query.get("labelSelector", "").partition("=")
        items = [each for each in items if value in ("", each["metadata"]["labels"].get(key))]
        kind, version = ("JobList", "batch/v1") if items else ("List", "v1")
        return 200, {"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "7"}, "items": items}


@pytest.fixture
def viewer() -> Viewer:
    return Viewer()


@pytest.fixture
def flags(viewer: Viewer, tmp_path: Path) -> Iterator[list[str]]:
    with serving(ApiServer(viewer.answer)) as port:
        yield ["--backend", "kubernetes", "--kubeconfig", kubeconfig(tmp_path, port)]


@pytest.mark.parametrize("command", [["list"], ["list", "-o", "json"], ["status"]])
def test_if_no_run_is_found_the_missing_permission_is_an_error(
    command: list[str], flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *flags, "--namespace", "ns"]) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert f'{REASON} in the namespace "ns"; {TO_READ}' in output.err


@pytest.mark.parametrize(
    "read",
    [
        lambda cluster: stepset.list_runs("kubernetes", cluster=cluster),
        lambda cluster: stepset.status("train", "kubernetes", cluster=cluster),
        lambda cluster: next(stepset.logs("train", "kubernetes", cluster=cluster)),
        lambda cluster: stepset.diagnose("train", "kubernetes", cluster=cluster),
        lambda cluster: stepset.stacks("train", "kubernetes", cluster=cluster),
        lambda cluster: stepset.Run("train", "kubernetes", cluster).wait(),
        lambda cluster: asyncio.run(stepset.aio.status("train", "kubernetes", cluster=cluster)),
        lambda cluster: asyncio.run(stepset.aio.wait("train", "kubernetes", cluster=cluster)),
        lambda cluster: asyncio.run(anext(stepset.aio.logs("train", "kubernetes", cluster=cluster))),
    ],
    ids=["list_runs", "status", "logs", "diagnose", "stacks", "wait", "aio.status", "aio.wait", "aio.logs"],
)
def test_a_function_that_only_reads_requests_only_permissions_to_read(
    read: Callable[[ClusterOptions], object], flags: list[str]
) -> None:
    with pytest.raises(InfrastructureError) as caught:
        read(ClusterOptions(flags[-1], namespace="ns", target="jobset"))
    assert TO_READ in str(caught.value)


@pytest.mark.parametrize("command", ["status", "logs", "wait", "diagnose", "stacks"])
def test_if_a_run_may_be_hidden_the_missing_permission_is_the_error(
    command: str, viewer: Viewer, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The ClusterRole `view` permits reading Jobs and StatefulSets, but not JobSets and TrainJobs."""
    viewer.denied += ["trainjobs"]
    viewer.jobs.append(JOB)
    assert main([command, "digits", *flags, "--namespace", "ns"]) == 3
    reason = f'{REASON.replace("list", "get")} in the namespace "ns"'
    others = "runs with the target trainjob need further permissions"
    assert capsys.readouterr().err == f"stepset: rbac: {reason}; {others}; {TO_READ}\n"


def test_a_run_that_may_be_hidden_is_not_found_for_callers_that_wait_for_it(flags: list[str]) -> None:
    with pytest.raises(RunNotFoundError, match="cannot get resource") as caught:
        stepset.status("digits", "kubernetes", cluster=ClusterOptions(flags[-1], namespace="ns"))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("denied", "served"), [(["trainjobs", "statefulsets"], True), (["jobsets"], False)])
def test_a_run_is_not_found_if_the_default_target_is_readable_or_not_served(
    denied: list[str], served: bool, viewer: Viewer, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The minimal Role of the default target does not permit reading the workloads of other targets."""
    viewer.denied, viewer.served = denied, served
    assert main(["status", "digits", *flags, "--namespace", "ns"]) == 2
    assert capsys.readouterr().err.startswith("stepset: run 'digits' is not in namespace ns, ")


@pytest.mark.parametrize("command", ["cancel train", "delete train", "exec train -- env"])
def test_a_command_that_does_not_only_read_requests_all_permissions(
    command: str, viewer: Viewer, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    viewer.denied += ["trainjobs", "statefulsets", "jobs"]
    name, *words = command.split()
    assert main([name, *flags, "--namespace", "ns", *words]) == 3
    output = capsys.readouterr().err
    assert "stepset rbac --namespace ns --target jobset --user viewer |" in output
    assert "might not exist" not in output, "the account may read the namespace"


def test_prune_without_runs_succeeds_with_a_warning(flags: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Accounts for other targets, such as those of a CronJob, need no permission for JobSets."""
    assert main(["prune", *flags, "--namespace", "ns"]) == 0
    assert [REMEDY in message for message in caplog.messages] == [True]


def test_in_all_namespaces_the_missing_permission_is_an_error(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "-A", *flags]) == 3
    assert "at the cluster scope; list the runs of one namespace instead: --namespace NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "remedy"), [(["list", "-o", "name"], TO_READ), (["prune", "--dry-run"], REMEDY), (["status"], TO_READ)]
)
def test_if_a_run_is_found_the_missing_permission_is_one_warning(
    command: list[str], remedy: str, viewer: Viewer, flags: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    viewer.jobs.append(JOB)
    assert main([*command, *flags, "--namespace", "ns"]) == 0
    expected = f'runs with the target jobset are not listed: rbac: {REASON} in the namespace "ns"; {remedy}'
    assert caplog.messages == [expected]


def test_a_kind_that_the_server_does_not_serve_is_not_reported(
    viewer: Viewer, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    viewer.served = False
    assert main(["list", *flags, "--namespace", "ns"]) == 0
    assert "no runs found in namespace ns; for other namespaces use --all-namespaces" in capsys.readouterr().err


def test_a_list_of_all_namespaces_does_not_advise_to_list_all_namespaces(
    viewer: Viewer, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    viewer.served = False
    assert main(["list", "-A", *flags]) == 0
    assert capsys.readouterr().err == (
        "stepset: no runs found in any namespace; for the runs on this machine use --backend local\n"
    )


def test_the_error_about_a_submission_does_not_state_that_a_readable_namespace_might_not_exist(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["--framework", "plain", "--image", "image", "--command", "--", "true"]
    assert main(["run", *flags, "--namespace", "ns", *job]) == 3
    assert f'{REASON.replace("list", "create")} in the namespace "ns"; {REMEDY}' in capsys.readouterr().err
