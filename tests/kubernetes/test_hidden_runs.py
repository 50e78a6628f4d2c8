"""Lists of runs by an account that may not list the workloads of every target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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


class Viewer:
    """A server that lists Jobs, and denies lists of JobSets to the account.

    Attributes:
        jobs: the Jobs.
        served: whether the server serves JobSets.
    """

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.served = True

    def answer(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path == "/apis/jobset.x-k8s.io/v1alpha2":
            return (200, {}) if self.served else (404, {"kind": "Status", "code": 404})
        if path.endswith("/jobsets"):
            where = 'in the namespace "ns"' if "/namespaces/" in path else "at the cluster scope"
            reason = REASON.replace("list", "create") if method == "POST" else REASON
            return 403, {"kind": "Status", "code": 403, "message": f"{reason} {where}"}
        items = self.jobs if path.startswith("/apis/batch/v1") and path.endswith("/jobs") else []
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
    assert f'{REASON} in the namespace "ns"; {REMEDY}' in output.err


def test_prune_without_runs_succeeds_with_a_warning(flags: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Accounts for other targets, such as those of a CronJob, need no permission for JobSets."""
    assert main(["prune", *flags, "--namespace", "ns"]) == 0
    assert [REMEDY in message for message in caplog.messages] == [True]


def test_in_all_namespaces_the_missing_permission_is_an_error(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "-A", *flags]) == 3
    assert "at the cluster scope; list the runs of one namespace instead: --namespace NAME" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["list", "-o", "name"], ["prune", "--dry-run"], ["status"]])
def test_if_a_run_is_found_the_missing_permission_is_one_warning(
    command: list[str], viewer: Viewer, flags: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    viewer.jobs.append(JOB)
    assert main([*command, *flags, "--namespace", "ns"]) == 0
    expected = f'runs with the target jobset are not listed: rbac: {REASON} in the namespace "ns"; {REMEDY}'
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
