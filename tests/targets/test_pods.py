"""What every pod gets in every target: variables, ports, volumes, the agent, and protection from other services."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stepset.rendering import render
from stepset.targets.companions import config_map
from stepset.targets.request import TARGET_NAMES
from stepset.targets.validation.preflight import content_size
from tests.targets.making import IMAGE, agent_config, container, env, of_kind, pod, rendered, request, workload

ALL = ("jobset", "trainjob", "statefulset", "job", "volcano")


class TestVariables:
    def test_stepsets_variables_are_first_so_that_the_jobs_can_use_them(self) -> None:
        names = list(env(rendered(num_nodes=2, procs_per_node=2, env={"A": "$(PET_NNODES)"})))
        assert names.index("A") == len(names) - 1

    def test_a_secret_is_a_reference_without_its_value(self) -> None:
        rows = container(rendered(env={"TOKEN": {"secret": "hub", "key": "token"}}))["env"]
        assert rows[-1] == {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}

    def test_a_field_of_the_pod_is_a_field_reference(self) -> None:
        assert env(rendered(env={"HOST_IP": {"field": "status.hostIP"}}))["HOST_IP"] == "status.hostIP"

    def test_the_rank_is_the_jobs_completion_index(self) -> None:
        assert env(rendered(num_nodes=2))["PET_NODE_RANK"] == (
            "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        )

    @pytest.mark.parametrize(
        ("target", "attempt"),
        [
            ("jobset", "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"),
            ("trainjob", None),
            ("volcano", "metadata.annotations['volcano.sh/job-retry-count']"),
            ("job", "0"),
        ],
    )
    def test_the_attempt_is_the_controllers_restart_count(self, target: str, attempt: str | None) -> None:
        objects = rendered(target)
        if target == "trainjob":
            rows = workload(objects)["spec"]["trainer"]["env"]
            row = next(row for row in rows if row["name"] == "STEPSET_ATTEMPT")
            assert "restart-attempt" in row["valueFrom"]["fieldRef"]["fieldPath"]
        else:
            assert env(objects)["STEPSET_ATTEMPT"] == attempt

    def test_the_agent_sets_variables_that_only_it_can_determine(self) -> None:
        objects = rendered(framework={"kind": "torch", "launcher": "none"}, num_nodes=2, procs_per_node=2)
        assert {"RANK", "LOCAL_RANK"}.isdisjoint(env(objects))
        assert agent_config(objects)["process_env"] == {"RANK": "{rank}", "LOCAL_RANK": "{local_rank}"}

    def test_an_elastic_worlds_first_node_hosts_the_store(self) -> None:
        elastic = {"min_nodes": 1, "max_nodes": 2, "rdzv_conf": {"read_timeout": 90}}
        objects = rendered(framework={"kind": "torch", "elastic": elastic}, num_nodes=2, procs_per_node=1)
        assert env(objects)["PET_RDZV_CONF"] == "read_timeout=90"
        assert agent_config(objects)["process_env"] == {"PET_RDZV_CONF": "is_host={first},read_timeout=90"}

    def test_roles_get_only_their_own_variables(self) -> None:
        role = {"name": "monitor", "command": ["watch"], "env": {"A": "1"}}
        assert env(rendered(roles=[role]), "monitor") == {"A": "1"}


class TestNames:
    @pytest.mark.parametrize(
        ("target", "host"),
        [
            ("jobset", "digits-node-0-0.digits"),
            ("job", "digits-0.digits"),
            ("volcano", "digits-node-0.digits"),
        ],
    )
    def test_the_masters_name_is_the_targets_pod_name(self, target: str, host: str) -> None:
        assert env(rendered(target, num_nodes=2))["PET_MASTER_ADDR"] == host

    def test_the_masters_name_contains_the_subdomain_and_the_run(self) -> None:
        from stepset.targets.kinds import jobset

        objects = jobset.render(request(run="digits-ab12", num_nodes=2, network={"subdomain": "ring"}))
        assert env(objects)["PET_MASTER_ADDR"] == "digits-ab12-node-0-0.ring"
        assert workload(objects)["spec"]["network"]["subdomain"] == "ring"

    def test_volcano_names_pods_job_task_index(self) -> None:
        # Vectors volcano.pytorch.* and volcano.mpi.host_list_comma_no_trailing of the conformance data.
        from stepset.targets.kinds import volcano

        request_ = request(run="test-mpi-valid-worker", framework="mpi", num_nodes=2, procs_per_node=1)
        hosts = of_kind_named(volcano.render(request_), "test-mpi-valid-worker-mpi-hostfile")["data"]["hostfile"]
        assert hosts.split()[::2] == [
            "test-mpi-valid-worker-node-0.test-mpi-valid-worker",
            "test-mpi-valid-worker-node-1.test-mpi-valid-worker",
        ]

    def test_the_agent_waits_for_the_names_of_the_peers(self) -> None:
        config = agent_config(rendered("job", num_nodes=3))
        assert config["peers"] == [{"pattern": "digits-{index}.digits", "count": 3}]

    def test_in_a_large_world_the_agent_waits_only_for_the_first_node(self) -> None:
        assert agent_config(rendered(num_nodes=65))["peers"][0]["count"] == 1


class TestAgent:
    def test_the_agent_precedes_the_command_and_gets_its_length(self) -> None:
        objects = rendered(args=["--epochs", "3"])
        found = container(objects)
        at = found["command"].index("--") + 1
        assert found["command"][at:] == ["torchrun", "/stepset/code/train.py"]
        assert found["args"] == ["--epochs", "3"]
        config = agent_config(objects)
        assert config["command_len"] == 2
        assert config["launcher"] == ["torchrun", "--no-python"]
        assert config["program"] == ["python3", "-u", "/stepset/code/train.py"]

    @pytest.mark.parametrize("target", TARGET_NAMES)
    def test_the_agent_of_the_world_knows_the_times_of_a_hang(self, target: str) -> None:
        prepare = {"name": "prepare", "image": "i", "command": ["true"]}
        roles = {} if target in ("job", "statefulset") else {"roles": [prepare]}
        configs = [
            json.loads(text)
            for each in rendered(target, num_nodes=2, hang={"after": "90s"}, **roles)
            if each["kind"] == "ConfigMap"
            for key, text in each.get("data", {}).items()
            if key.endswith(".json")
        ]
        assert configs
        for config in configs:
            assert config.get("hang") == ({"after": 90, "first": 1800} if config["in_world"] else None)
        assert "hang" not in agent_config(rendered(target, num_nodes=2, hang="off", **roles))

    def test_the_agent_knows_which_variables_are_secret(self) -> None:
        hub = {"secret": "hub", "key": "token"}
        reference = {"name": "DB", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
        template = {"containers": [{"name": "node", "env": [reference, {"name": "PLAIN", "value": "x"}]}]}
        objects = rendered(env={"TOKEN": hub, "LR": "0.1"}, pod_template=template)
        assert agent_config(objects)["secrets"] == ["DB", "TOKEN"]
        assert "secrets" not in agent_config(rendered(env={"LR": "0.1"}))

    def test_of_mpi_jobs_the_agent_also_knows_the_private_key(self) -> None:
        objects = rendered(framework="mpi", num_nodes=2, procs_per_node=1)
        assert agent_config(objects, "launcher")["secret_files"] == ["/home/mpiuser/.ssh/id_rsa"]

    def test_the_random_rendezvous_id_is_secret(self) -> None:
        elastic = {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}}
        assert agent_config(rendered(framework=elastic, num_nodes=2))["secrets"] == ["PET_RDZV_ID"]

    def test_without_the_agent_the_users_command_runs(self) -> None:
        objects = rendered(command=["/opt/train"], agent=False, args=["x"])
        assert (container(objects)["command"], container(objects)["args"]) == (["/opt/train"], ["x"])
        assert [each["kind"] for each in objects] == ["JobSet"]

    @pytest.mark.parametrize("target", TARGET_NAMES)
    def test_a_run_that_continues_an_earlier_run_continues_its_count(self, target: str) -> None:
        assert "attempt" not in agent_config(render(request(), target))
        assert agent_config(render(replace(request(), attempt=2), target))["attempt"] == 2

    def test_ranks_of_the_agent_are_distinguished_from_a_launcher(self) -> None:
        assert agent_config(rendered(framework="jax"))["processes"] == 1
        assert "processes" not in agent_config(rendered(framework="torch"))
        assert "processes" not in agent_config(rendered(command=["torchrun", "train.py"]))

    def test_the_code_has_time_for_a_checkpoint_before_the_pod_is_killed(self) -> None:
        objects = rendered()
        assert agent_config(objects)["grace"] < pod(objects)["spec"]["terminationGracePeriodSeconds"]
        objects = rendered(pod_template={"terminationGracePeriodSeconds": 300})
        assert (agent_config(objects)["grace"], pod(objects)["spec"]["terminationGracePeriodSeconds"]) == (290, 300)
        objects = rendered(termination_grace_period="2m")
        assert (agent_config(objects)["grace"], pod(objects)["spec"]["terminationGracePeriodSeconds"]) == (110, 120)
        objects = rendered(termination_grace_period="2m", pod_template={"terminationGracePeriodSeconds": 12})
        assert (agent_config(objects)["grace"], pod(objects)["spec"]["terminationGracePeriodSeconds"]) == (6, 12)

    def test_the_verdict_or_the_last_lines_are_the_termination_message(self) -> None:
        assert container(rendered())["terminationMessagePolicy"] == "FallbackToLogsOnError"


class TestCode:
    def test_a_script_is_copied_to_a_writable_directory(self) -> None:
        objects = rendered()
        assert of_kind_named(objects, "digits-code")["data"] == {"train.py": "print('training')\n"}
        config = agent_config(objects)
        assert config["files"] == [
            {"source": "/stepset/source/train.py", "path": "/stepset/code/train.py", "mode": "0644"}
        ]
        assert config["work_dir"] == "/stepset/code"

    def test_a_code_directory_is_unpacked(self) -> None:
        objects = rendered(code="src", script="src/train.py")
        assert "code.tar.gz" in of_kind_named(objects, "digits-code")["binaryData"]
        config = agent_config(objects)
        assert config["code_archive"] == "/stepset/source/code.tar.gz"
        assert config["code_dir"] == config["work_dir"] == "/stepset/code"

    def test_a_function_is_a_program(self) -> None:
        objects = rendered(function="print('hi')\n")
        assert of_kind_named(objects, "digits-code")["data"] == {"stepset_main.py": "print('hi')\n"}

    def test_without_the_agent_a_script_is_mounted_at_its_path(self) -> None:
        objects = rendered(agent=False)
        assert container(objects)["command"] == ["torchrun", "/stepset/code/train.py"]
        assert container(objects)["workingDir"] == "/stepset/code"
        mounts = {mount["mountPath"]: mount["name"] for mount in container(objects)["volumeMounts"]}
        volume = next(v for v in pod(objects)["spec"]["volumes"] if v["name"] == mounts["/stepset/code"])
        assert volume["configMap"]["items"] == [{"key": "train.py", "path": "train.py"}]

    def test_a_file_name_that_a_configmap_rejects_gets_another_key(self) -> None:
        objects = rendered(script="treino ção.py")
        assert list(of_kind_named(objects, "digits-code")["data"]) == ["main.py"]
        assert agent_config(objects)["files"][0]["path"] == "/stepset/code/treino ção.py"

    def test_the_size_of_a_binary_configmap_is_its_bytes(self) -> None:
        made = config_map(request(), "x", data={"a": "é"}, binary={"b": "AAAA"})
        assert content_size(made) == 2 + 3


class TestVolumes:
    def test_shared_memory_has_the_requested_size(self) -> None:
        assert _volume("dshm")["emptyDir"] == {"medium": "Memory"}
        sized = _volume("dshm", resources_per_node={"memory": "8Gi", "shm": "2Gi"})
        assert sized["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}

    def test_storage_is_mounted_in_every_pod_and_each_claim_is_one_volume(self) -> None:
        storage = [
            {"path": "/data", "claim": "team", "sub_path": "data", "read_only": True},
            {"path": "/ckpt", "claim": "team"},
        ]
        objects = rendered(storage=storage, roles=[{"name": "prepare", "before": True, "command": ["fetch"]}])
        for group in ("node", "prepare"):
            claims = [v for v in pod(objects, group)["spec"]["volumes"] if "persistentVolumeClaim" in v]
            assert claims == [{"name": "storage-0", "persistentVolumeClaim": {"claimName": "team"}}]
            mounts = [m for m in container(objects, group)["volumeMounts"] if m["name"] == "storage-0"]
            assert mounts == [
                {"name": "storage-0", "mountPath": "/data", "subPath": "data", "readOnly": True},
                {"name": "storage-0", "mountPath": "/ckpt"},
            ]

    @pytest.mark.parametrize("target", ALL)
    def test_every_mount_has_its_volume_and_every_volume_its_object(self, target: str) -> None:
        objects = rendered(target, framework={"kind": "deepspeed", "launcher": "deepspeed"}, num_nodes=2)
        made = {each["metadata"]["name"] for each in objects}
        volumes = {v["name"]: v for v in pod(objects)["spec"]["volumes"]}
        assert {m["name"] for m in container(objects)["volumeMounts"]} == set(volumes)
        assert {v["configMap"]["name"] for v in volumes.values() if "configMap" in v} <= made


class TestProtection:
    @pytest.mark.parametrize("target", ALL)
    def test_no_token_is_mounted_unless_the_job_has_an_account(self, target: str) -> None:
        spec = pod(rendered(target))["spec"]
        assert spec["automountServiceAccountToken"] is False
        spec = pod(rendered(target, service_account="trainer"))["spec"]
        assert spec["serviceAccountName"] == "trainer"
        assert "automountServiceAccountToken" not in spec

    @pytest.mark.parametrize("target", ALL)
    def test_no_variables_of_services_and_no_istio_sidecar(self, target: str) -> None:
        template = pod(rendered(target))
        assert template["spec"]["enableServiceLinks"] is False
        assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"


class TestIdentity:
    def test_labels_state_run_job_spec_and_group(self) -> None:
        from stepset.targets.kinds import jobset

        objects = jobset.render(request(run="digits-ab12", owner="f00", namespace="ml"))
        for each in objects:
            assert each["metadata"]["namespace"] == "ml"
            labels = each["metadata"]["labels"]
            assert (labels["stepset.dev/run"], labels["stepset.dev/job"]) == ("digits-ab12", "digits")
            assert labels["stepset.dev/owner-hash"] == "f00"
            assert len(each["metadata"]["annotations"]["stepset.dev/spec-hash"]) == 64
        assert pod(objects)["metadata"]["labels"]["stepset.dev/group"] == "node"

    def test_manifests_have_no_namespace_unless_given(self) -> None:
        assert all("namespace" not in each["metadata"] for each in rendered())

    def test_the_spec_hash_changes_with_the_job_and_its_code_only(self) -> None:

        one = request()
        assert one.spec_hash == request(run="other", owner="x", namespace="y").spec_hash
        assert one.spec_hash != request(num_nodes=2).spec_hash
        assert one.spec_hash != replace(one, sources=replace(one.sources, script=b"other")).spec_hash

    def test_the_jobs_labels_cannot_replace_stepsets(self) -> None:
        metadata = pod(rendered(labels={"team": "vision"}, annotations={"note": "a b"}))["metadata"]
        assert metadata["labels"]["team"] == "vision"
        assert metadata["annotations"]["note"] == "a b"


class TestScheduling:
    def test_every_pod_has_the_scheduling_fields(self) -> None:
        scheduling: dict[str, Any] = {
            "priority_class": "high",
            "node_selector": {"gpu": "h200"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        }
        spec = pod(rendered(scheduling=scheduling))["spec"]
        assert spec["priorityClassName"] == "high"
        assert spec["nodeSelector"] == scheduling["node_selector"]
        assert spec["tolerations"] == scheduling["tolerations"]
        assert spec["affinity"] == scheduling["affinity"]

    def test_on_the_hosts_network_cluster_names_still_resolve(self) -> None:
        # Vector mpiop.launcher.intel_overrides of the conformance data.
        assert pod(rendered(pod_template={"hostNetwork": True}))["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


class TestSsh:
    def test_nodes_run_an_ssh_server_with_a_startup_probe_only(self) -> None:
        objects = rendered(framework="mpi", num_nodes=2, procs_per_node=1)
        assert container(objects)["command"][-1].endswith("exec /usr/sbin/sshd -De -f /stepset/ssh/sshd_config")
        assert container(objects)["startupProbe"]["tcpSocket"] == {"port": 2222}
        assert "readinessProbe" not in container(objects)
        assert container(objects)["ports"] == [{"containerPort": 2222}]

    def test_the_port_is_the_jobs(self) -> None:
        objects = rendered(framework={"kind": "mpi", "ssh_port": 22}, num_nodes=1, procs_per_node=1)
        config = of_kind_named(objects, "digits-ssh-config")["data"]
        assert "Port 22\n" in config["sshd_config"]
        assert "Port 22\n" in config["ssh_config"]

    def test_keys_are_placeholders_that_the_agent_copies_with_mode_600(self) -> None:
        objects = rendered(framework="mpi", num_nodes=1, procs_per_node=1)
        secret = of_kind(objects, "Secret")
        assert set(secret["stringData"]) == {"ssh-privatekey", "ssh-publickey", "ssh-known-hosts"}
        assert all(text.startswith("<") for text in secret["stringData"].values())
        key, known_hosts = agent_config(objects)["files"][-2:]
        assert key == {"source": "/home/mpiuser/.ssh/id_rsa", "path": "/stepset/run/ssh/id_rsa", "mode": "0600"}
        assert (known_hosts["path"], known_hosts["prefix"]) == ("/stepset/run/ssh/known_hosts", "* ")
        client = of_kind_named(objects, "digits-ssh-config")["data"]["ssh_config"]
        assert "IdentityFile /stepset/run/ssh/id_rsa\n" in client
        assert "StrictHostKeyChecking yes\n  UserKnownHostsFile /stepset/run/ssh/known_hosts\n" in client

    def test_without_the_agent_keys_are_used_from_their_mount(self) -> None:
        objects = rendered(framework="mpi", num_nodes=1, procs_per_node=1, command=["mpirun", "x"], agent=False)
        files = of_kind_named(objects, "digits-ssh-config")["data"]
        assert "HostKey /home/mpiuser/.ssh/id_rsa" in files["sshd_config"]
        known_hosts = "/home/mpiuser/.ssh/known_hosts"
        assert f"StrictHostKeyChecking yes\n  UserKnownHostsFile {known_hosts}\n" in files["ssh_config"]

    @pytest.mark.parametrize(
        ("home", "agent", "mode", "group"),
        [("/root", False, 0o600, None), ("/root", True, 0o640, 1000), ("/home/mpiuser", False, 0o640, 1000)],
    )
    def test_only_root_can_read_the_key_that_root_uses_without_the_agent(
        self, home: str, agent: bool, mode: int, group: int | None
    ) -> None:
        framework = {"kind": "mpi", "ssh_auth_mount_path": f"{home}/.ssh"}
        objects = rendered(framework=framework, num_nodes=1, procs_per_node=1, command=["mpirun", "x"], agent=agent)
        spec = pod(objects)["spec"]
        (volume,) = [each for each in spec["volumes"] if each["name"] == "mpi-ssh-auth"]
        assert volume["secret"]["items"][0]["mode"] == mode
        assert spec.get("securityContext", {}).get("fsGroup") == group

    def test_without_the_agent_and_with_trainers_secret_nothing_writes_known_hosts(self) -> None:
        job = {"framework": "mpi", "num_nodes": 1, "procs_per_node": 1, "command": ["mpirun", "x"], "agent": False}
        objects = rendered("trainjob", **job)
        assert not [each for each in objects if each["kind"] == "Secret"]
        files = of_kind_named(objects, "digits-ssh-config")["data"]
        assert "StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n" in files["ssh_config"]

    def test_hydras_processes_find_the_launcher_by_the_namespaces_name(self) -> None:
        from stepset.targets.kinds import jobset

        mpich = {"kind": "mpi", "implementation": "mpich"}
        objects = jobset.render(request(namespace="ml", framework=mpich, num_nodes=2, procs_per_node=1))
        assert pod(objects)["spec"]["dnsConfig"] == {"searches": ["digits.ml.svc.cluster.local"]}
        assert "dnsConfig" not in pod(rendered(framework="mpi", num_nodes=2, procs_per_node=1))["spec"]

    def test_a_launcher_that_is_a_node_under_hydra_serves_ssh_too(self) -> None:
        framework = {"kind": "mpi", "implementation": "mpich", "run_launcher_as_node": True}
        objects = rendered(framework=framework, num_nodes=2, procs_per_node=1)
        config = agent_config(objects, "launcher")
        prefix = config["launcher"][:4]
        assert prefix[:2] == ["/bin/sh", "-c"]
        assert "/usr/sbin/sshd -e -f" in prefix[2]
        command = container(objects, "launcher")["command"]
        after = command[command.index("--") + 1 :]
        assert after[:4] == prefix
        assert config["command_len"] == len(after)

    def test_the_launcher_requests_no_accelerators_unless_it_is_a_node(self) -> None:
        gpus = {"resources_per_node": {"cpu": 1, "gpus": 2}, "num_nodes": 2}
        assert "resources" not in container(rendered(framework="mpi", **gpus), "launcher")
        as_node = rendered(framework={"kind": "mpi", "run_launcher_as_node": True}, **gpus)
        assert container(as_node, "launcher")["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize("target", ALL)
def test_image_and_container_name(target: str) -> None:
    objects = rendered(target)
    found = container(objects)
    image = workload(objects)["spec"]["trainer"]["image"] if target == "trainjob" else found["image"]
    assert (image, found["name"]) == (IMAGE, "node")


@pytest.mark.parametrize("target", ALL)
def test_the_size_of_manifests_does_not_depend_on_the_number_of_equal_nodes(target: str) -> None:
    def size(nodes: int) -> int:
        return sum(len(str(each)) for each in rendered(target, num_nodes=nodes, procs_per_node=8))

    assert abs(size(1000) - size(10)) < 100  # digits of numbers only


def _volume(name: str, **job: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(v for v in pod(rendered(**job))["spec"]["volumes"] if v["name"] == name)
    return found


def of_kind_named(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Returns the object with this name."""
    return next(each for each in objects if each["metadata"]["name"] == name)
