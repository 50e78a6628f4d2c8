"""`stepset doctor`: each problem comes with the command that fixes it, and decides the exit code."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from stepset.cli.output.schema import output_schema
from tests.cli.conftest import Cli
from tests.kubernetes.api_server import ApiServer

NODES = {"items": [{"status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}}} for _ in range(2)]}


@contextmanager
def _cluster(tmp_path: Path, *, denied: tuple[str, ...] = (), absent: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Serves a cluster; yields the flags that select it.

    Args:
        denied: verbs that the cluster denies on pods, and resources on which it denies all verbs.
        absent: parts of the paths that the cluster does not serve.
    """
    loop, server = asyncio.new_event_loop(), ApiServer(lambda *request: _answer(bodies(), *request))

    def bodies() -> list[tuple[str, str, Any]]:
        return server.bodies

    def _answer(sent: list[tuple[str, str, Any]], method: str, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("selfsubjectaccessreviews"):
            wanted = sent[-1][2]["spec"]["resourceAttributes"]
            refused = wanted["resource"] == "pods" and "subresource" not in wanted and wanted["verb"] in denied
            return 201, {"status": {"allowed": not (refused or wanted["resource"] in denied)}}
        if path.endswith("selfsubjectreviews"):
            return 201, {"status": {"userInfo": {"username": "jane"}}}
        if path == "/version":
            return 200, {"gitVersion": "v1.36.0"}
        if path == "/api/v1/nodes":
            return (403, {"message": "forbidden"}) if "nodes" in denied else (200, NODES)
        return (404, {}) if any(group in path for group in absent) else (200, {})

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        }  # fmt: skip
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        yield ["--backend", "kubernetes", "--kubeconfig", str(tmp_path / "kubeconfig")]
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_machine_without_problems(cli: Cli) -> None:
    found = cli("doctor")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("ok: versions: stepset ")
    assert ": frameworks: " in found.out


def test_a_directory_that_cannot_hold_runs_is_a_problem(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STEPSET_HOME", str(tmp_path / "file"))
    found = cli("doctor")
    assert found.code == 1
    assert (
        f"problem: runs: {tmp_path}/file is not a directory that you may write to\n  fix: export STEPSET_HOME=DIR\n"
        in found.out
    )


def test_a_cluster_without_problems(cli: Cli, tmp_path: Path) -> None:
    with _cluster(tmp_path) as flags:
        found = cli("doctor", *flags)
    assert found.code == 0, found
    assert ": frameworks: " not in found.out, "the image of the job contains the framework"
    assert "Kubernetes v1.36.0\n" in found.out and "ok: cluster GPUs: 16 devices nvidia.com/gpu\n" in found.out
    assert "ok: controllers: targets: trainjob, jobset, statefulset, job, volcano\n" in found.out


def test_missing_permissions_and_controllers_have_their_remedies(cli: Cli, tmp_path: Path) -> None:
    with _cluster(tmp_path, denied=("delete", "nodes"), absent=("jobset.x-k8s.io", "volcano")) as flags:
        found = cli("doctor", *flags)
        document = cli("doctor", *flags, "-o", "json")
    assert (found.code, document.code) == (1, 1)
    assert (
        "problem: permissions: jane may not delete pods in namespace ml\n"
        "  fix: stepset rbac --namespace ml --target jobset --user jane | kubectl apply -f -\n"
    ) in found.out
    assert "problem: controllers: JobSet is not installed on this cluster" in found.out
    assert "Volcano" not in found.out and "ok: controllers: targets: trainjob, statefulset, job\n" in found.out
    assert "note: cluster GPUs: you may not list nodes" in found.out
    data = json.loads(document.out)
    Draft202012Validator(output_schema()).validate(data)
    assert data["kind"] == "Diagnosis"
    assert [each["check"] for each in data["items"] if each["state"] == "problem"] == ["permissions", "controllers"]


WRITES = ("create", "patch", "delete", "configmaps", "services")
"""The verbs and resources that the Roles of `stepset rbac --read-only` do not contain."""


def test_an_account_that_only_reads_runs_has_no_problem(cli: Cli, tmp_path: Path) -> None:
    with _cluster(tmp_path, denied=WRITES) as flags:
        assert cli("doctor", *flags).code == 1
        found = cli("doctor", *flags, "--read-only", "--queue", "team-a")
        writer = cli("doctor", *flags, "--queue", "team-a")
    assert (found.code, "problem" in found.out) == (0, False), found
    assert "ok: permissions: all " in found.out
    assert writer.out.count("problem: permissions: ") > 1


def test_the_fix_for_an_account_that_only_reads_runs_is_read_only(cli: Cli, tmp_path: Path) -> None:
    with _cluster(tmp_path, denied=(*WRITES, "watch", "workloads")) as flags:
        found = cli("doctor", *flags, "--read-only", "--queue", "team-a")
    assert found.code == 1
    command = "stepset rbac --namespace ml --target jobset --read-only --gang kueue --user jane"
    fix = f"  fix: {command} | kubectl apply -f -\n"
    assert f"problem: permissions: jane may not watch pods in namespace ml\n{fix}" in found.out
    assert found.out.count(fix) == found.out.count("  fix: stepset rbac") == 2


def test_without_any_permission_to_read_runs_there_is_one_problem(cli: Cli, tmp_path: Path) -> None:
    reads = ("get", "list", "watch", "jobsets", "jobs", "pods", "pods/log", "events")
    with _cluster(tmp_path, denied=(*WRITES, *reads)) as flags:
        found = cli("doctor", *flags, "--read-only")
    assert "problem: permissions: jane may not read runs in namespace 'ml'\n  fix: stepset rbac " in found.out
    assert found.out.count("problem: ") == 1


def test_the_permission_to_read_workloads_of_kueue_is_a_note(cli: Cli, tmp_path: Path) -> None:
    """A submission does not need this permission."""
    with _cluster(tmp_path, denied=("workloads",)) as flags:
        found = cli("doctor", *flags, "--queue", "team-a")
    assert (
        "note: permissions: diagnoses may lack details: jane may not get, list, watch workloads.kueue.x-k8s.io in"
        " namespace ml\n"
        "  fix: stepset rbac --namespace ml --target jobset --gang kueue --user jane | kubectl apply -f -\n"
    ) in found.out
    assert "problem: permissions" not in found.out


def test_a_namespace_that_does_not_exist_is_the_first_problem_of_the_cluster(cli: Cli, tmp_path: Path) -> None:
    with _cluster(tmp_path, denied=("delete",), absent=("/api/v1/namespaces/ml", "volcano")) as flags:
        found = cli("doctor", *flags, "--queue", "team-a")
    assert found.code == 1
    assert "problem: namespace: 'ml' does not exist\n  fix: kubectl create namespace ml\n" in found.out
    assert found.out.count("problem: ") == 1, "permissions and queues depend on the namespace"


def test_a_cluster_that_cannot_be_reached_gives_3(cli: Cli, tmp_path: Path) -> None:
    with _cluster(tmp_path) as flags:
        pass
    found = cli("doctor", *flags)
    assert found.code == 3 and "\nunreachable: cluster: server http://127.0.0.1:" in found.out


def test_without_a_kubeconfig_there_is_one_problem(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    found = cli("doctor", "--backend", "kubernetes")
    assert found.code == 1
    assert found.out.endswith(
        "problem: cluster: no kubeconfig found\n  fix: give --kubeconfig FILE, or set KUBECONFIG\n"
    )


def test_a_kubeconfig_that_impersonates_a_user_is_a_problem(cli: Cli, tmp_path: Path) -> None:
    with _cluster(tmp_path) as flags:
        path = tmp_path / "kubeconfig"
        config = json.loads(path.read_text())
        config["users"][0]["user"]["as"] = "jane"
        path.write_text(json.dumps(config))
        found = cli("doctor", *flags)
    assert found.code == 1
    assert "context 'c': user 'u' has the field 'as', which stepset does not support\n  fix: use a context" in found.out


@pytest.mark.parametrize(
    "words", [("-o", "yaml"), ("--target", "x"), ("--backend", "x"), ("--namespace", "ml"), ("--read-only",)]
)
def test_bad_input_is_one_line(cli: Cli, words: tuple[str, ...]) -> None:
    found = cli("doctor", *words)
    assert (found.code, found.out, len(found.errors)) == (2, "", 1)
