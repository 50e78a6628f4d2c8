"""A plan as local pods: the environment, the command and the agent's config of each."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stepset.backends.local.environment import Host, this_host
from stepset.backends.local.layout import PodSpec, RunLayout, plan_files, pod_addresses, pod_specs
from stepset.backends.local.variables.gpus import visible_gpus
from stepset.errors import BadInputError
from stepset.frameworks import make_plan
from stepset.spec import parse_job

HOST = Host(
    environ={"PATH": "/bin", "HOME": "/home/me"},
    python="/usr/bin/python3",
    agent=Path("/lib/agent.py"),
    cores=8,
    interface="lo",
    root=True,
    name="box",
    secrets={("hub", "token"): "s3cret"},
)
ADDRESSES = [f"127.1.2.{n}" for n in range(100, 110)]


def lay_out(job: Mapping[str, Any], host: Host = HOST, attempt: int = 0) -> dict[str, PodSpec]:
    parsed = parse_job({"name": "digits", **job})
    plan = make_plan(parsed)
    pods = sum(group.count for group in plan.groups)
    layout = RunLayout(
        run="digits-abc",
        directory=Path("/runs/digits-abc"),
        scratch=Path("/tmp/s"),
        code_dir=Path("/code"),
        work_dir=Path("/work"),
        addresses=pod_addresses(plan, ADDRESSES[:pods]),
        grace=5,
        labels={"team": "a"},
        annotations={},
        rendezvous_id="0123",
    )
    ports = {name: 12_000 + n for n, name in enumerate(plan.ports)}
    specs = pod_specs(plan, host, layout, ports, attempt)
    # The contents of the pods' mounted files, for tests that check them.
    for path, content in plan_files(plan, layout, ports).items():
        FILES[str(path)] = content
    return {spec.name: spec for spec in specs}


FILES: dict[str, str] = {}


class TestTheEnvironment:
    def test_is_that_of_the_caller_and_the_plan_with_addresses_and_free_ports(self) -> None:
        node = lay_out({"script": "train.py", "num_nodes": 2, "procs_per_node": 2})["node-1"]
        expected = {
            "HOME": "/home/me",
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "2",
            "PET_NODE_RANK": "1",
            "PET_MASTER_ADDR": "127.1.2.100",
            "PET_MASTER_PORT": "12000",
            "STEPSET_RUN": "digits-abc",
            "STEPSET_NODE_RANK": "1",
        }
        assert {name: node.env[name] for name in expected} == expected

    def test_contains_the_number_of_the_attempt(self) -> None:
        assert lay_out({"script": "t.py"}, attempt=3)["node-0"].env["STEPSET_ATTEMPT"] == "3"

    def test_gives_every_rank_its_share_of_the_cores(self) -> None:
        job = {"script": "t.py", "num_nodes": 2, "procs_per_node": 2}
        assert lay_out(job)["node-0"].env["OMP_NUM_THREADS"] == "2"
        assert lay_out(job, replace(HOST, cores=2))["node-0"].env["OMP_NUM_THREADS"] == "1"
        own = replace(HOST, environ={**HOST.environ, "OMP_NUM_THREADS": "5"})
        assert lay_out(job, own)["node-0"].env["OMP_NUM_THREADS"] == "5"
        assert lay_out({**job, "env": {"OMP_NUM_THREADS": 3}}, own)["node-0"].env["OMP_NUM_THREADS"] == "3"

    def test_names_the_gpus_for_processes_that_each_use_one(self) -> None:
        two = replace(HOST, gpus=("0", "1"))
        job = {"script": "t.py", "procs_per_node": 2}
        pod = lay_out({**job, "framework": "xgboost"}, two)["node-0"]
        assert pod.env["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert pod.config["process_env"]["CUDA_VISIBLE_DEVICES"] == "{devices}"
        assert "CUDA_VISIBLE_DEVICES" not in lay_out(job, two)["node-0"].env

    def test_distributes_the_gpus_if_there_are_enough(self) -> None:
        job = {"script": "t.py", "num_nodes": 2, "resources_per_node": {"gpus": 2}}
        four = replace(HOST, gpus=("0", "1", "2", "3"))
        pods = lay_out(job, four)
        assert [pods[f"node-{k}"].env["CUDA_VISIBLE_DEVICES"] for k in (0, 1)] == ["0,1", "2,3"]
        by_process = lay_out({"script": "t.py", "num_nodes": 4, "procs_per_node": 1}, four)
        assert by_process["node-3"].env["CUDA_VISIBLE_DEVICES"] == "3"
        for few in (HOST, replace(HOST, gpus=("0", "1", "2"))):
            assert "CUDA_VISIBLE_DEVICES" not in lay_out(job, few)["node-1"].env
        assert "CUDA_VISIBLE_DEVICES" not in lay_out({**job, "num_nodes": 1}, four)["node-0"].env

    def test_selects_the_loopback_interface_unless_the_job_sets_another(self) -> None:
        env = lay_out({"script": "t.py", "env": {"GLOO_SOCKET_IFNAME": "eth7"}})["node-0"].env
        assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("eth7", "lo")

    def test_expands_names_of_earlier_variables_as_the_kubelet_does(self) -> None:
        env = {"A": "$(STEPSET_JOB)/$(B)/$(HOME)/$$(X)", "B": "b", "C": "$(B)"}
        got = lay_out({"script": "t.py", "env": env})["node-0"].env
        assert (got["A"], got["C"]) == ("digits/$(B)/$(HOME)/$(X)", "b")

    def test_contains_secrets_that_config_and_command_do_not(self) -> None:
        node = lay_out({"script": "t.py", "env": {"T": {"secret": "hub", "key": "token"}}})["node-0"]
        assert node.env["T"] == "s3cret"
        assert "s3cret" not in repr((node.config, node.command))

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("metadata.name", "node-0"),
            ("status.hostIP", "127.1.2.100"),
            ("status.podIP", "127.1.2.100"),
            ("spec.nodeName", "box"),
            ("metadata.labels['team']", "a"),
        ],
    )
    def test_has_values_for_the_fields_of_a_pod(self, path: str, value: str) -> None:
        job = {"script": "t.py", "labels": {"team": "a"}, "env": {"F": {"field": path}}}
        assert lay_out(job)["node-0"].env["F"] == value

    def test_with_an_unknown_field_is_an_error_that_lists_the_known_ones(self) -> None:
        with pytest.raises(BadInputError, match=r"env\.F: the field 'spec\.foo' does not exist in a local run; use"):
            lay_out({"script": "t.py", "env": {"F": {"field": "spec.foo"}}})

    def test_of_a_role_has_no_variables_of_the_training(self) -> None:
        roles = [{"name": "prepare", "before": True, "command": ["true"], "env": {"X": "1"}}]
        env = lay_out({"script": "t.py", "roles": roles})["prepare-0"].env
        assert env["X"] == "1"
        ours = {"STEPSET_LOCAL_POD", "STEPSET_LIFELINE"}
        assert {n for n in env if n.startswith(("PET_", "STEPSET_", "MASTER_", "OMP_", "GLOO_"))} == ours

    def test_of_elastic_nodes_has_their_own_addresses(self) -> None:
        job = {"script": "t.py", "framework": {"kind": "torch", "elastic": {"min_nodes": 1, "max_nodes": 2}}}
        pods = lay_out({**job, "num_nodes": 2, "procs_per_node": 1})
        assert [pods[f"node-{k}"].env["PET_LOCAL_ADDR"] for k in (0, 1)] == ["127.1.2.100", "127.1.2.101"]
        assert pods["node-1"].env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
        assert pods["node-1"].config["process_env"]["PET_RDZV_CONF"].startswith("is_host={first}")


class TestTheCommand:
    def test_contains_the_path_of_the_code(self) -> None:
        node = lay_out({"framework": "plain", "script": "sub/train.py", "args": ["--out", "$(STEPSET_RUN)"]})["node-0"]
        assert node.command[-5:] == ("--", "python3", "/code/train.py", "--out", "digits-abc")
        assert node.config["work_dir"] == "/work"

    def test_with_a_nul_character_is_refused(self) -> None:
        with pytest.raises(BadInputError, match="NUL"):
            lay_out({"framework": "plain", "command": ["echo", "a\0b"]})


class TestTheAgentsConfig:
    def test_starts_copies_of_a_command_that_is_a_rank(self) -> None:
        config = lay_out({"framework": "plain", "script": "t.py", "procs_per_node": 3})["node-0"].config
        assert config["processes"] == 3 and "launcher" not in config

    @pytest.mark.parametrize("command", [["torchrun", "t.py"], ["/opt/bin/torchrun", "t.py"]])
    def test_starts_a_launcher_once_and_no_ranks(self, command: list[str]) -> None:
        for procs in (1, 2):
            assert "processes" not in lay_out({"command": command, "procs_per_node": procs})["node-0"].config

    def test_wraps_the_program_of_torchrun(self) -> None:
        config = lay_out({"script": "t.py", "procs_per_node": 2})["node-0"].config
        assert config["launcher"] == ["torchrun", "--no-python"]
        assert config["program"] == ["python3", "-u", "/code/t.py"]
        assert config["command_len"] == 2

    def test_of_torch_without_launcher_sets_ranks_per_process(self) -> None:
        job = {
            "script": "t.py",
            "framework": {"kind": "torch", "launcher": "none"},
            "num_nodes": 2,
            "procs_per_node": 2,
        }
        node = lay_out(job)["node-1"]
        assert node.config["processes"] == 2
        assert node.config["process_env"] == {"RANK": "{rank}", "LOCAL_RANK": "{local_rank}"}
        assert node.env["WORLD_SIZE"] == "4"

    def test_has_the_times_of_a_hang_unless_the_pod_is_a_role_or_they_are_off(self) -> None:
        role = {"name": "tracker", "command": ["serve"]}
        pods = lay_out({"script": "train.py", "roles": [role], "hang": {"after": "60s", "first": "90s"}})
        assert pods["node-0"].config["hang"] == {"after": 60, "first": 90}
        assert "hang" not in pods["tracker-0"].config
        assert "hang" not in lay_out({"script": "train.py", "hang": "off"})["node-0"].config

    def test_of_a_role_has_a_source_but_no_processes(self) -> None:
        roles = [{"name": "monitor", "replicas": 2, "command": ["true"]}]
        config = lay_out({"script": "t.py", "roles": roles})["monitor-1"].config
        assert (config["source"], config["in_world"]) == ("monitor-1", False)
        assert "processes" not in config

    def test_keeps_every_pods_files_in_the_run_directory(self) -> None:
        config = lay_out({"script": "t.py", "num_nodes": 2})["node-1"].config
        assert config["dir"] == "/runs/digits-abc/pods/node-1"
        assert config["termination_log"].startswith(config["dir"])
        assert config["grace"] == 5


class TestMPI:
    JOB: ClassVar = {"framework": "mpi", "script": "t.py", "num_nodes": 2, "procs_per_node": 3}

    def test_reaches_nodes_without_ssh(self) -> None:
        pods = lay_out(self.JOB)
        launcher = pods["launcher-0"]
        assert launcher.env["OMPI_MCA_plm_rsh_agent"] == launcher.env["HYDRA_LAUNCHER_EXEC"] == "/runs/digits-abc/rsh"
        assert launcher.env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
        assert pods["node-1"].config["serve"] == "/tmp/s/127.1.2.101"
        assert pods["node-1"].serves and not launcher.serves

    @pytest.mark.parametrize(
        ("directory", "scratch", "rsh"),
        [("/runs/a", "/t m p", "/runs/a/rsh"), ("/r u n", "/tmp/s", "/tmp/s/rsh"), ("/r u n", "/t m p", "/r u n/rsh")],
    )
    def test_uses_a_path_without_spaces_if_one_exists(self, directory: str, scratch: str, rsh: str) -> None:
        place = {"code_dir": Path("/code"), "work_dir": Path("/work"), "addresses": {}, "labels": {}, "annotations": {}}
        layout = RunLayout("digits-abc", Path(directory), Path(scratch), grace=5, rendezvous_id="", **place)  # type: ignore[arg-type]  # mixed
        assert str(layout.rsh) == rsh

    def test_names_the_nodes_in_the_hostfile(self) -> None:
        launcher = lay_out(self.JOB)["launcher-0"]
        hostfile = FILES[launcher.env["OMPI_MCA_orte_default_hostfile"]]
        assert hostfile == "127.1.2.100 slots=3\n127.1.2.101 slots=3\n"

    def test_leaves_the_interface_of_open_mpi_5_open_because_it_refuses_loopback(self) -> None:
        env = lay_out(self.JOB)["launcher-0"].env
        assert "PRTE_MCA_prte_if_include" not in env
        assert env["OMPI_MCA_coll"] == "^acoll,han,sm,xhc"
        assert "OMPI_MCA_coll" not in lay_out({**self.JOB, "num_nodes": 1})["launcher-0"].env

    @pytest.mark.parametrize("nodes", [1, 2])
    def test_uses_shared_memory_within_a_node_and_no_files_of_another_node(self, nodes: int) -> None:
        pods = lay_out({**self.JOB, "num_nodes": nodes})
        assert {pod.env["OMPI_MCA_btl"] for pod in pods.values()} == {"self,vader,tcp"}
        places = [pods[f"node-{k}"].env.get("OMPI_MCA_btl_vader_backing_directory") for k in range(nodes)]
        assert places == ([None] if nodes == 1 else ["/tmp/s/node-0", "/tmp/s/node-1"])
        # mpirun passes its own OMPI_MCA_* on to the ranks of all nodes.
        assert not any("backing_directory" in name for name in pods["launcher-0"].env)

    @pytest.mark.parametrize(("cores", "yields"), [(5, "1"), (6, None)])
    def test_lets_waiting_ranks_yield_if_they_outnumber_the_cores(self, cores: int, yields: str | None) -> None:
        env = lay_out(self.JOB, replace(HOST, cores=cores))["launcher-0"].env
        assert env.get("OMPI_MCA_mpi_yield_when_idle") == yields
        assert env.get("MPIR_CVAR_POLLS_BEFORE_YIELD") == yields

    def test_binds_no_rank_to_a_core(self) -> None:
        env = lay_out(self.JOB)["launcher-0"].env
        assert env["OMPI_MCA_hwloc_base_binding_policy"] == env["PRTE_MCA_hwloc_default_binding_policy"] == "none"

    def test_gives_the_launchers_own_node_the_local_address(self) -> None:
        job = {**self.JOB, "framework": {"kind": "mpi", "run_launcher_as_node": True}}
        launcher = lay_out(job)["launcher-0"]
        assert FILES[launcher.env["OMPI_MCA_orte_default_hostfile"]] == "127.1.2.100 slots=3\n127.0.0.1 slots=3\n"

    def test_allows_root_only_for_root(self) -> None:
        pods = lay_out(self.JOB, replace(HOST, root=False))
        assert "OMPI_ALLOW_RUN_AS_ROOT" not in pods["launcher-0"].env


class TestTheHost:
    def test_has_no_variables_of_another_launcher(self, tmp_path: Path) -> None:
        plan = make_plan(parse_job({"framework": "plain", "command": ["true"]}))
        foreign = dict.fromkeys(
            ["RANK", "WORLD_SIZE", "PET_NNODES", "MASTER_ADDR", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "STEPSET_RUN",
             "TORCHELASTIC_RUN_ID", "STEPSET_SECRET_A_B", "MLX_RANK"], "1"
        )  # fmt: skip
        kept = {"PATH": "/usr/bin:/bin", "MLX_OTHER": "2", "OMPI_MCA_btl": "tcp", "STEPSET_HOME": "/h", "MY_RANK": "0"}
        assert dict(this_host(plan, {**foreign, **kept}, tmp_path).environ).keys() == kept.keys()

    def test_has_the_gpus_of_the_caller(self, tmp_path: Path) -> None:
        for number in range(2):
            (tmp_path / f"0000:0{number}:00.0").mkdir()
        assert visible_gpus({}, tmp_path) == ("0", "1")
        assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, GPU-1a2b"}, tmp_path) == ("3", "GPU-1a2b")
        for none in ("", "-1"):
            assert visible_gpus({"CUDA_VISIBLE_DEVICES": none}, tmp_path) == ()
        assert visible_gpus({}, tmp_path / "no-driver") == ()

    def test_has_the_python_of_the_environment_that_runs_stepset(self, tmp_path: Path) -> None:
        import sys

        plan = make_plan(parse_job({"framework": "plain", "command": ["true"]}))
        own = str(Path(sys.executable).parent)
        alone = this_host(plan, {"PATH": "/usr/bin:/bin"}, tmp_path).environ["PATH"]
        assert alone.split(":")[0] == own
        other = {"PATH": "/venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/venv"}
        assert this_host(plan, other, tmp_path).environ["PATH"] == other["PATH"]

    @pytest.mark.parametrize(
        ("job", "message"),
        [
            ({"command": ["nope-launcher", "x"]}, "command: 'nope-launcher' is not found on this machine; install it"),
            ({"command": ["./nope"]}, "command: './nope' is not found"),
            ({"command": ["/etc/passwd"]}, "command: '/etc/passwd' is not executable; run chmod"),
            (
                {"command": ["true"], "roles": [{"name": "prepare", "command": ["nope"]}]},
                r"roles\.prepare\.command: 'nope' is not found",
            ),
            (
                {"command": ["true"], "roles": [{"name": "prepare", "image": "x/y:1"}]},
                r"roles\.prepare: has only an image, and images do not run locally",
            ),
            (
                {"command": ["true"], "env": {"TOKEN": {"secret": "my-hub", "key": "api.token"}}},
                r"env\.TOKEN: secret 'my-hub' has no key 'api\.token' .* set STEPSET_SECRET_MY_HUB_API_TOKEN",
            ),
        ],
    )
    def test_without_a_program_or_secret_is_an_error(self, job: dict[str, Any], message: str, tmp_path: Path) -> None:
        plan = make_plan(parse_job({"framework": "plain", **job}))
        with pytest.raises(BadInputError, match=message):
            this_host(plan, {"PATH": "/usr/bin:/bin"}, tmp_path)

    def test_without_torchrun_the_error_names_the_framework_without_torch(self, tmp_path: Path) -> None:
        plan = make_plan(parse_job({"script": "train.py"}))
        message = r"'torchrun' is not found .*; install torch, or set framework to plain for a program without torch$"
        with pytest.raises(BadInputError, match=message):
            this_host(plan, {"PATH": "/nowhere", "VIRTUAL_ENV": "/nowhere"}, tmp_path)

    def test_has_secrets_from_variables_and_files(self, tmp_path: Path) -> None:
        env = {"A": {"secret": "hub", "key": "token"}, "B": {"secret": "db", "key": "password"}}
        plan = make_plan(parse_job({"framework": "plain", "command": ["true"], "env": env}))
        (tmp_path / "db").mkdir()
        (tmp_path / "db" / "password").write_text("p")
        environ = {"PATH": "/usr/bin:/bin", "STEPSET_SECRET_HUB_TOKEN": "t", "STEPSET_SECRETS_DIR": str(tmp_path)}
        host = this_host(plan, environ, tmp_path)
        assert host.secrets == {("hub", "token"): "t", ("db", "password"): "p"}
        assert "'p'" not in repr(host)
