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


def mpi(**job: Any) -> Plan:
    options = {k: job.pop(k) for k in ("implementation", "run_launcher_as_node", "ssh_port") if k in job}
    return Plan({"kind": "mpi", **options}, **job)


@pytest.mark.parametrize("implementation", VARIABLES)
def test_the_launcher_gets_its_implementations_variables(implementation: str) -> None:
    plan = mpi(implementation=implementation, num_nodes=2, procs_per_node=2)
    assert plan.env("launcher") == VARIABLES[implementation]
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
    assert plan.ports == {"ssh": 2200}
    assert plan.ssh is not None
    assert (plan.ssh.path, plan.ssh.groups) == ("/home/mpiuser/.ssh", ("node", "launcher"))


def test_the_launcher_requests_a_nodes_resources_only_if_it_is_a_node() -> None:
    resources = {"resources_per_node": {"gpus": 2, "shm": "1Gi"}}
    beside, inside = (mpi(num_nodes=2, run_launcher_as_node=as_node, **resources).plan for as_node in (False, True))
    assert beside.group("launcher").resources.limits == {}
    assert inside.group("launcher").resources == inside.group("node").resources == beside.group("node").resources


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
    plan = mpi(command=["mpirun", "-np", "4", "./a.out"], args=["-v"])
    assert plan.command("launcher") == ["mpirun", "-np", "4", "./a.out"]
    assert plan.words(plan.plan.group("launcher").args) == ["-v"]
    assert plan.command("node") == []


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
