"""The parts of the test bed that need no cluster: choices, manifests, pod templates, the error without a cluster."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.testbed import borrow, build, cgroups, components, debian, handle, layout, manifests, pod
from tests.cluster.testbed.layout import Choice, TestbedError

REPOSITORY = Path(__file__).resolve().parents[2]


class TestChoice:
    def test_the_defaults_are_the_newest_versions_two_nodes_and_kueue(self) -> None:
        assert Choice.from_environment({}) == Choice("1.36", "0.12", 2, True)

    @pytest.mark.parametrize("kubernetes", layout.KUBERNETES)
    @pytest.mark.parametrize("jobset", layout.JOBSET)
    def test_every_component_of_every_choice_has_a_pinned_module(self, kubernetes: str, jobset: str) -> None:
        choice = Choice.from_environment({"STEPSET_K8S": kubernetes, "STEPSET_JOBSET": jobset})
        for name in choice.components:
            assert (layout.GO_MODULES / components.COMPONENTS[name].source / "go.mod").is_file()

    def test_an_unsupported_version_is_refused_with_the_supported_ones(self) -> None:
        with pytest.raises(TestbedError, match=r"STEPSET_K8S='1\.20' is not supported; use one of 1\.36, 1\.35"):
            Choice.from_environment({"STEPSET_K8S": "1.20"})

    def test_without_kueue_its_module_is_not_needed(self) -> None:
        assert "kueue" not in Choice.from_environment({"STEPSET_KUEUE": "0"}).components


class TestNumber:
    """Several clusters on one machine."""

    def test_is_0_by_default(self) -> None:
        assert layout.number_from({}) == 0

    def test_each_cluster_has_its_own_directory_networks_and_processes(self) -> None:
        script = (
            "from tests.cluster.testbed import layout as l; n = l.Node(l.MAX_NODES - 1);"
            "print(l.STATE, l.LOCK, l.HOST_LINK, l.API_URL, l.POD_NET, n.address, n.pod_net, n.cgroup)"
        )
        found = [of_cluster(number, script).stdout.split() for number in ("", "1", "15")]
        assert found[0][:2] == ["/var/lib/stepset-cluster", "/run/lock/stepset-cluster.lock"]
        assert found[1][4:7] == ["10.245.16.0/20", "10.98.1.18", "10.245.24.0/24"]
        assert [len(set(values)) for values in zip(*found, strict=True)] == [3] * 8

    def test_an_invalid_number_is_refused_in_one_line(self) -> None:
        refused = of_cluster("16", "import tests.cluster.testbed.layout")
        assert refused.returncode == 1
        assert refused.stderr.startswith("testbed: STEPSET_CLUSTER_NUMBER='16' is not supported; use one of 0, 1, ")


def of_cluster(number: str, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with the number of one of this machine's clusters."""
    environment = {**os.environ, layout.NUMBER_VARIABLE: number}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create cgroups")
def test_a_frozen_process_is_killed_too() -> None:
    name = f"stepset-test-{os.getpid()}"
    unified = cgroups.is_unified()
    groups = [top / name for top in ([cgroups.ROOT] if unified else [cgroups.ROOT / "pids", cgroups.ROOT / "freezer"])]
    with subprocess.Popen(["sleep", "600"]) as process:
        for group in groups:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(process.pid))
        (groups[-1] / ("cgroup.freeze" if unified else "freezer.state")).write_text("1" if unified else "FROZEN")
        try:
            assert cgroups.kill(name) == 1
        finally:
            process.wait(60)
            for group in groups:
                group.rmdir()


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no Debian")
class TestDebianPackages:
    """apt-get with its own lists and sources: it changes nothing on the machine, and sends no request."""

    @pytest.fixture(autouse=True)
    def lists(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        lists, settings = tmp_path / "lists", tmp_path / "apt.conf"
        (lists / "partial").mkdir(parents=True)
        settings.write_text(
            f'Dir::State::lists "{lists}"; Dir::Cache "{tmp_path}";\n'
            f'Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";\n'
        )
        monkeypatch.setenv("APT_CONFIG", str(settings))
        return lists

    def test_waits_while_another_process_updates_the_lists(self, lists: Path) -> None:
        with (lists / "lock").open("w") as lock, ThreadPoolExecutor() as pool:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            update = pool.submit(debian.apt_get, "update")
            with pytest.raises(NotYetError):
                update.result(2)
            fcntl.lockf(lock, fcntl.LOCK_UN)
            update.result(60)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can lock the package database")
    def test_an_error_of_apt_get_is_reported_in_one_line(self) -> None:
        with pytest.raises(TestbedError, match="apt-get install failed: E: Unable to locate package no-such-thing"):
            debian.apt_get("install", "--yes", "no-such-thing")

    def test_only_what_is_not_installed_is_missing(self) -> None:
        assert debian.missing(("apt", "no-such-thing")) == ["no-such-thing"]


class TestTheSuitesCluster:
    """The cluster that `make test-all` borrows."""

    @pytest.mark.parametrize("required", [False, True])
    def test_no_cluster_is_started_if_kubeconfig_names_one(
        self, monkeypatch: pytest.MonkeyPatch, required: bool
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", "other.kubeconfig")
        monkeypatch.delenv("STEPSET_TEST_IMAGE", raising=False)
        with pytest.raises(handle.NoClusterError, match="STEPSET_TEST_IMAGE is not"), borrow.borrowed(required):
            raise AssertionError("a cluster was provided")

    def test_finds_components_that_are_not_built_without_building_them(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        names = Choice().components
        assert build.missing(names) == list(names)
        build.component_directory("etcd").mkdir(parents=True)
        assert set(names) - set(build.missing(names)) == {"etcd"}


class TestManifests:
    def test_a_webhook_is_called_at_the_controllers_url_instead_of_its_service(self) -> None:
        service = {"name": "webhook-service", "namespace": "system", "path": "/mutate"}
        hook: dict[str, Any] = {
            "kind": "MutatingWebhookConfiguration",
            "webhooks": [{"clientConfig": {"service": service}}],
        }
        changed = manifests.served_at([hook], "https://127.0.0.1:9443", "Q0E=")
        assert changed[0]["webhooks"][0]["clientConfig"] == {"url": "https://127.0.0.1:9443/mutate", "caBundle": "Q0E="}
        assert "service" in hook["webhooks"][0]["clientConfig"], "the input is not changed"

    def test_a_conversion_webhook_is_called_there_too(self) -> None:
        conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"path": "/convert"}}}}
        definition = {"kind": "CustomResourceDefinition", "spec": {"conversion": conversion}}
        changed = manifests.served_at([definition], "https://127.0.0.1:9443", "Q0E=")
        client = changed[0]["spec"]["conversion"]["webhook"]["clientConfig"]
        assert client == {"url": "https://127.0.0.1:9443/convert", "caBundle": "Q0E="}

    def test_removes_descriptions_but_not_a_property_named_description(self) -> None:
        schema = {"description": "prose", "properties": {"description": {"type": "string", "description": "prose"}}}
        assert manifests.without_descriptions(schema) == {"properties": {"description": {"type": "string"}}}

    def test_an_aggregated_api_is_served_on_this_machine(self) -> None:
        service = {"namespace": "kueue-system", "name": "visibility-server"}
        services = [{"kind": "APIService", "metadata": {"name": v}, "spec": {"service": dict(service)}} for v in "ab"]
        changed = manifests.aggregated_at([*services, {"kind": "RoleBinding"}], 9446)
        assert [each["kind"] for each in changed] == ["Namespace", "Service", "APIService", "APIService"]
        assert changed[1]["metadata"] == service
        assert changed[1]["spec"] == {"type": "ExternalName", "externalName": "localhost"}
        assert [each["spec"]["service"] for each in changed[2:]] == [{**service, "port": 9446}] * 2
        assert services[0]["spec"] == {"service": service}, "the input is not changed"

    def test_names_that_two_projects_share_are_prefixed_with_the_component(self) -> None:
        hook = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "validating-webhook-configuration"}}
        names = [manifests.webhook_configurations([hook], part)[0]["metadata"]["name"] for part in ("jobset", "kueue")]
        assert names == ["jobset-validating-webhook-configuration", "kueue-validating-webhook-configuration"]


class TestPodTemplate:
    def test_it_mounts_the_machines_programs_and_this_python_read_only(self) -> None:
        mounts = {mount.path: mount.read_only for mount in pod.host_programs()}
        assert mounts["/usr"] is True
        assert any(Path(sys.prefix).is_relative_to(path) for path in mounts)
        assert all(mounts.values())

    def test_on_other_clusters_it_mounts_nothing(self) -> None:
        assert pod.template("node", []) == {
            "spec": {"containers": [{"name": "node", "imagePullPolicy": "IfNotPresent"}]}
        }


class TestFindingACluster:
    def run_one_test(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a test that needs a cluster in a new process, with only these cluster variables."""
        test = "tests/cluster/test_testbed.py::TestPods::test_a_pod_runs_and_its_log_is_read"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSET_", "KUBECONFIG"))}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        return subprocess.run(
            command, cwd=REPOSITORY, env={**kept, **environment}, capture_output=True, text=True, timeout=120
        )

    def test_without_a_cluster_a_test_is_skipped_with_the_remedy(self) -> None:
        done = self.run_one_test(KUBECONFIG="other.kubeconfig")
        assert done.returncode == 0
        assert "1 skipped" in done.stdout
        assert "KUBECONFIG is set, STEPSET_TEST_IMAGE is not" in done.stdout

    def test_without_a_required_cluster_a_test_fails(self) -> None:
        done = self.run_one_test(KUBECONFIG="other.kubeconfig", STEPSET_CLUSTER="required")
        assert done.returncode == 1
        assert "STEPSET_CLUSTER=required, but KUBECONFIG is set, STEPSET_TEST_IMAGE is not" in done.stdout

    def test_a_named_cluster_without_kubectl_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        monkeypatch.setenv("STEPSET_TEST_IMAGE", "train:1")
        with pytest.raises(TestbedError, match="kubectl is not on PATH"):
            handle.find()
