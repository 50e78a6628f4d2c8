"""MPI: a launcher and ssh servers, for Open MPI 4 and 5, Intel MPI and MPICH; also under DeepSpeed and MLX."""

from __future__ import annotations

from typing import Any

import pytest

from stepset.errors import BadInputError
from stepset.plan.model import StartAfter
from tests.frameworks.planned import Plan

SSH_ARGS = "-o ConnectionAttempts=10"
VARIABLES = {
    "openmpi": {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": SSH_ARGS,
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "PRTE_MCA_prte_set_default_slots": "2",
        "PRTE_MCA_plm_ssh_args": SSH_ARGS,
    },
    "intel": {
        "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": SSH_ARGS,
        "I_MPI_PERHOST": "2",
    },
    "mpich": {
        "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "HYDRA_LAUNCH_EXTRA_ARGS": SSH_ARGS,  # mpi-operator's name for it
        "HYDRA_LAUNCHER_EXTRA_ARGS": SSH_ARGS,  # Hydra's own
    },
}

REPLACEABLE = {
    "openmpi": {
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "NVIDIA_VISIBLE_DEVICES": "void",
    },
    "intel": {"I_MPI_PIN": "off", "NVIDIA_VISIBLE_DEVICES": "void"},
    "mpich": {"NVIDIA_VISIBLE_DEVICES": "void"},
}


def mpi(**job: Any) -> Plan:
    options = {
        k: job.pop(k)
        for k in ("implementation", "run_launcher_as_node", "ssh_port", "launch", "launcher_resources")
        if k in job
    }
    return Plan({"kind": "mpi", **options}, **job)


@pytest.mark.parametrize("implementation", VARIABLES)
def test_the_launcher_gets_its_implementations_variables(implementation: str) -> None:
    plan = mpi(implementation=implementation, num_nodes=2, procs_per_node=2)
    master = {"MASTER_ADDR": "job-node-0-0.job", "MASTER_PORT": "29500"}
    assert plan.env("launcher") == {**VARIABLES[implementation], **master, **REPLACEABLE[implementation]}
    assert plan.env("node") == {}


@pytest.mark.parametrize(("implementation", "form"), [("openmpi", " slots=2"), ("intel", ":2"), ("mpich", ":2")])
@pytest.mark.parametrize(
    ("as_node", "hosts"),
    [
        (False, ["job-node-0-0.job", "job-node-0-1.job", "job-node-0-2.job"]),
        (True, ["job-node-0-0.job", "job-node-0-1.job", "job-launcher-0-0.job"]),
    ],
)
def test_the_hostfile_lists_nodes_first_and_the_launcher_last(
    implementation: str, form: str, as_node: bool, hosts: list[str]
) -> None:
    plan = mpi(implementation=implementation, run_launcher_as_node=as_node, num_nodes=3, procs_per_node=2)
    assert plan.file() == "".join(f"{host}{form}\n" for host in hosts)
    assert plan.plan.files[0].groups == ("launcher",)
    assert plan.plan.world.size == 6


def test_hosts_contain_the_subdomain() -> None:
    assert mpi(network={"subdomain": "ring"}).file() == "job-node-0-0.ring slots=1\n"


@pytest.mark.parametrize("as_node", [False, True])
def test_num_nodes_pods_join_the_world_with_or_without_the_launcher(as_node: bool) -> None:
    plan = mpi(run_launcher_as_node=as_node, num_nodes=3).plan
    assert plan.group("node").count == 3 - as_node
    assert plan.group("launcher").in_world is as_node
    assert sum(group.count for group in plan.groups if group.in_world) == 3


def test_a_launcher_that_is_the_only_node_has_no_others() -> None:
    """The reference creates two nodes instead of one (kubeflow/trainer v2.3.0, plugins/mpi: max(numNodes-1, 1))."""
    plan = mpi(run_launcher_as_node=True, num_nodes=1)
    assert [group.name for group in plan.plan.groups] == ["launcher"]
    assert plan.file() == "job-launcher-0-0.job slots=1\n"


def test_the_launcher_starts_after_the_nodes_and_the_nodes_after_the_roles() -> None:
    plan = mpi(num_nodes=2, roles=[{"name": "prepare", "before": True, "image": "x"}]).plan
    assert [group.name for group in plan.groups] == ["prepare", "node", "launcher"]
    assert plan.group("node").start_after == (StartAfter("prepare", "Complete"),)
    assert plan.group("launcher").start_after == (StartAfter("node", "Ready"),)
    assert (plan.success.group, plan.success.count) == ("launcher", 1)


def test_nodes_serve_ssh_with_the_runs_keys() -> None:
    plan = mpi(num_nodes=2, ssh_port=2200).plan
    node, launcher = plan.group("node"), plan.group("launcher")
    assert (node.serves_ssh, node.command, node.ports) == (True, (), ("ssh",))
    assert (launcher.serves_ssh, launcher.ports) == (False, ())
    assert plan.ports["ssh"] == 2200
    assert plan.ssh is not None
    assert (plan.ssh.path, plan.ssh.groups) == ("/home/mpiuser/.ssh", ("node", "launcher"))


def test_the_launcher_requests_a_nodes_resources_only_if_it_is_a_node() -> None:
    resources = {"resources_per_node": {"gpus": 2, "shm": "1Gi"}}
    beside, inside = (mpi(num_nodes=2, run_launcher_as_node=as_node, **resources).plan for as_node in (False, True))
    assert beside.group("launcher").resources.limits == {}
    assert inside.group("launcher").resources == inside.group("node").resources == beside.group("node").resources


@pytest.mark.parametrize(
    ("implementation", "as_node", "nodes", "host"),
    [
        ("openmpi", False, 2, "job-node-0-0.job"),
        ("openmpi", True, 2, "job-launcher-0-0.job"),  # numbers the ranks of its own node first
        ("mpich", True, 2, "job-node-0-0.job"),
        ("intel", True, 2, "job-node-0-0.job"),
        ("mpich", True, 1, "job-launcher-0-0.job"),
    ],
)
def test_torch_in_the_ranks_finds_the_node_of_rank_0(implementation: str, as_node: bool, nodes: int, host: str) -> None:
    options = {"implementation": implementation, "run_launcher_as_node": as_node, "num_nodes": nodes}
    env = mpi(**options, network={"port": 4711}).env("launcher")
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (host, "4711")
    own = {"MASTER_PORT": {"value": "1", "override": True}}
    assert mpi(**options, env=own).env("launcher")["MASTER_PORT"] == "1"


def test_a_launcher_that_is_not_a_node_may_request_resources() -> None:
    own = {"launcher_resources": {"cpu": 1, "memory": "1Gi"}, "resources_per_node": {"gpus": 2, "shm": "1Gi"}}
    resources = mpi(num_nodes=2, **own).plan.group("launcher").resources
    assert (resources.requests, resources.limits) == ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})
    assert resources.shm == "1Gi"
    with pytest.raises(BadInputError, match="with run_launcher_as_node the launcher has resources_per_node"):
        mpi(num_nodes=2, run_launcher_as_node=True, **own)


@pytest.mark.parametrize("implementation", REPLACEABLE)
def test_the_job_may_set_binding_and_gpus_of_the_launcher_without_override(implementation: str) -> None:
    theirs = dict.fromkeys(REPLACEABLE[implementation], "x")
    env = mpi(implementation=implementation, env=theirs).env("launcher")
    assert {name: env[name] for name in theirs} == theirs


def test_a_launcher_that_is_a_node_sees_its_gpus_and_nodes_keep_theirs() -> None:
    assert "NVIDIA_VISIBLE_DEVICES" not in mpi(run_launcher_as_node=True).env("launcher")
    plan = mpi(num_nodes=2)
    assert "NVIDIA_VISIBLE_DEVICES" not in {*plan.env("node"), *plan.command("launcher")}


@pytest.mark.parametrize("as_node", [False, True])
def test_ssh_servers_get_the_jobs_variables_only_if_the_launcher_is_a_node(as_node: bool) -> None:
    plan = mpi(num_nodes=2, run_launcher_as_node=as_node, env={"NCCL_DEBUG": "INFO"})
    assert plan.env("launcher")["NCCL_DEBUG"] == "INFO"
    assert ("NCCL_DEBUG" in plan.env("node")) is as_node


@pytest.mark.parametrize("implementation", VARIABLES)
def test_every_variable_of_the_launcher_is_reserved(implementation: str) -> None:
    for name in VARIABLES[implementation]:
        with pytest.raises(BadInputError, match=f"^env.{name}: reserved, because mpi jobs get it"):
            mpi(implementation=implementation, env={name: "x"})
    assert mpi(implementation=implementation, env={"OMPI_MCA_btl": "tcp"}).env("launcher")["OMPI_MCA_btl"] == "tcp"


# --- what mpirun starts ----------------------------------------------------------------------------------------------


def test_open_mpi_forwards_the_jobs_variables_by_name() -> None:
    plan = mpi(num_nodes=2, env={"LR": "0.1", "TOKEN": {"secret": "hub", "key": "token"}, "OMPI_MCA_btl": "tcp"})
    command = plan.command("launcher")
    handed_on = [command[at + 1] for at, word in enumerate(command) if word == "-x"]
    assert {"LR", "TOKEN", "STEPSET_RUN", "STEPSET_RESULT_FILE"} <= set(handed_on)
    # Open MPI forwards its own variables, and the launcher's index is not a rank's node.
    assert not {name for name in handed_on if name.startswith(("OMPI_", "PRTE_"))} | {"STEPSET_NODE_RANK"} & set(
        handed_on
    )
    assert command[0] == "mpirun" and command[-2:] == ["python3", "/stepset/code/train.py"]
    assert "hub" not in command


@pytest.mark.parametrize(("implementation", "program"), [("intel", "mpirun"), ("mpich", "mpiexec.hydra")])
def test_hydra_forwards_all_variables(implementation: str, program: str) -> None:
    assert mpi(implementation=implementation, env={"LR": "1"}).command("launcher") == [
        program,
        "python3",
        "/stepset/code/train.py",
    ]


def test_the_launcher_gets_a_command_unchanged() -> None:
    plan = mpi(num_nodes=4, command=["mpirun", "-np", "4", "./a.out"], args=["-v"])
    assert plan.command("launcher") == ["mpirun", "-np", "4", "./a.out"]
    assert plan.words(plan.plan.group("launcher").args) == ["-v"]
    assert plan.command("node") == []


@pytest.mark.parametrize(
    ("implementation", "launcher"), [("openmpi", "mpirun"), ("intel", "mpirun"), ("mpich", "mpiexec.hydra")]
)
@pytest.mark.parametrize("framework", ["mpi", "deepspeed", "mlx"])
def test_mpirun_starts_a_command_that_starts_no_ranks(framework: str, implementation: str, launcher: str) -> None:
    others = {"deepspeed": {"launcher": "mpirun"}, "mlx": {"backend": "mpi"}}
    options = others.get(framework, {"implementation": implementation})
    if framework != "mpi" and implementation != "openmpi":
        return
    job = {"num_nodes": 2, "procs_per_node": 2, "env": {"LR": "1"}, "agent": True}
    plan = Plan({"kind": framework, **options}, **job, command=["./solver", "-v"], args=["in.dat"])
    group = plan.plan.group("launcher")
    command = plan.command("launcher")
    assert (command[0], command[-2:], plan.words(group.args)) == (launcher, ["./solver", "-v"], ["in.dat"])
    assert ("-x" in command) is (implementation == "openmpi")
    assert group.command_rule == f"{launcher} starts the ranks, because the command starts none"
    settings = group.agent
    assert settings is not None and settings.wrap is not None and settings.world_size == 4
    assert [*plan.words(settings.wrap.launcher), *plan.words(settings.wrap.program)] == command
    assert plan.plan.notes == ()


@pytest.mark.parametrize("command", [["env", "A=1", "mpirun", "./a.out"], ["bash", "-c", "mpirun ./a.out"]])
def test_a_command_that_starts_mpirun_indirectly_is_unchanged(command: list[str]) -> None:
    plan = mpi(command=command)
    assert plan.command("launcher") == command
    assert plan.plan.group("launcher").command_rule == "unchanged, because it starts mpirun"
    split = mpi(command=["bash", "-c"], args=["mpirun ./a.out"])
    assert split.command("launcher") == ["bash", "-c"]


def test_a_shell_script_is_unchanged_and_a_note_states_what_it_must_do() -> None:
    plan = mpi(implementation="mpich", command=["./run.sh", "a b"], agent=True)
    assert plan.command("launcher") == ["./run.sh", "a b"]
    assert len(plan.plan.notes) == 1
    assert "must start the ranks with mpirun" in plan.plan.notes[0]
    assert plan.plan.notes[0].endswith("write mpiexec.hydra ./run.sh 'a b'")


def test_the_job_may_state_what_starts_the_ranks() -> None:
    assert mpi(launch="mpirun", command=["./run.sh"]).command("launcher")[0] == "mpirun"
    for entry in ({"command": ["./solver"]}, {"script": "train.py"}):
        plan = mpi(launch="command", **entry)
        assert "mpirun" not in plan.command("launcher")
        assert plan.plan.group("launcher").command_rule == "unchanged, because framework.launch is command"
    with pytest.raises(BadInputError, match=r"^framework\.launch: the command starts mpiexec itself; omit"):
        mpi(launch="mpirun", command=["mpiexec", "./a.out"])


def test_the_world_size_is_checked_in_every_wrapped_rank() -> None:
    plan = mpi(num_nodes=2, procs_per_node=2, command=["mpirun", "-np", "4", "./a.out"])
    settings = plan.plan.group("launcher").agent
    assert settings is not None and settings.wrap is not None
    assert settings.world_size == 4
    assert plan.words(settings.wrap.launcher) == ["mpirun", "-np", "4"]
    assert plan.words(settings.wrap.program) == ["./a.out"]
    assert plan.plan.notes == ()


def test_the_plan_notes_ranks_that_the_agent_cannot_wrap() -> None:
    plan = mpi(command=["mpirun", "--strange", "x", "./a.out"]).plan
    settings = plan.group("launcher").agent
    assert settings is not None and settings.wrap is None
    assert len(plan.notes) == 1 and plan.notes[0].startswith("command: the position of the program")


def test_only_the_launcher_waits_for_names() -> None:
    plan = mpi(num_nodes=2).plan
    launcher, node = plan.group("launcher").agent, plan.group("node").agent
    assert launcher is not None and launcher.wait_for == ("node", "launcher")
    assert node is not None and node.wait_for == ()


# --- under other frameworks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", [{"kind": "deepspeed", "launcher": "mpirun"}, {"kind": "mlx", "backend": "mpi"}])
def test_deepspeed_and_mlx_use_mpirun_the_same_way(framework: dict[str, str]) -> None:
    theirs, plain = Plan(framework, num_nodes=2, procs_per_node=2), Plan("mpi", num_nodes=2, procs_per_node=2)
    assert theirs.plan == plain.plan
    assert theirs.job.needs_launcher
