"""stepset beside its peers: launchers that start ranks over ssh, and frameworks without torchrun."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from stepset.errors import BadInputError
from stepset.plan.model import StartAfter
from tests.conformance.peers import planned, row, rows
from tests.conformance.pods import Row

# --- MPI --------------------------------------------------------------------------------------------------------------


@rows(
    "mpiop.hostfile.openmpi.launcher_as_worker.cluster_domain",
    "mpiop.hostfile.openmpi.zero_workers",
    "mpiop.hostfile.openmpi.plain",
    "mpiop.hostfile.openmpi.slots",
    "mpiop.hostfile.mpich.slots",
)
def test_the_hostfile_has_mpi_operators_hosts_in_its_implementations_form(vector: Row) -> None:
    given = vector["input"]
    as_node = given["launcherAsWorker"]
    job = planned(
        {"kind": "mpi", "implementation": given["impl"].lower(), "run_launcher_as_node": as_node},
        num_nodes=given["workers"] + as_node,
        procs_per_node=given["slots"] or 1,
    )
    theirs = vector["expect"]["hostfile"].splitlines()
    if as_node:  # the peer's launcher is first; here rank 0 is on node 0, as in Kubeflow Trainer
        theirs = [*theirs[1:], theirs[0]]
    assert job.file("mpi-hostfile").splitlines() == [_as_in_a_jobset(line, given["job"]) for line in theirs]


def _as_in_a_jobset(line: str, their_job: str) -> str:
    """Returns a line of mpi-operator's hostfile with the host name of a JobSet's pod."""
    host, form = re.fullmatch(r"([^ :]+)([ :].*)", line).groups()  # type: ignore[union-attr]  # fails the test if None
    pod = host.split(".")[0].removeprefix(f"{their_job}-")
    return ("job-launcher-0-0" if pod == "launcher" else f"job-node-0-{pod.split('-')[1]}") + ".job" + form


def test_intel_mpi_gets_mpi_operators_variables() -> None:
    vector = row("mpiop.launcher.intel_overrides")
    theirs = dict(vector["expect"]["launcher_env"])
    framework = {
        "kind": "mpi",
        "implementation": "intel",
        "ssh_auth_mount_path": vector["input"]["sshAuthMountPath"],
    }
    job = planned(framework, procs_per_node=vector["input"]["slots"], env=dict(vector["input"]["user_env"]))
    more = ("MASTER_ADDR", "MASTER_PORT", "NVIDIA_VISIBLE_DEVICES", "I_MPI_PIN")
    env = {name: value for name, value in job.env("launcher").items() if name not in more}
    assert env == {name: theirs[name] for name in env}
    assert {"FOO", *(name for name in theirs if name.startswith("I_MPI_"))} == set(env)
    assert job.plan.ssh is not None and job.plan.ssh.path == vector["input"]["sshAuthMountPath"]


@rows(
    "volcano.mpi.no_worker_task", "volcano.mpi.zero_workers_empty_host_list", "volcano.mpi.host_list_comma_no_trailing"
)
def test_the_hostfile_is_never_empty(vector: Row) -> None:
    tasks = {t["name"]: t["replicas"] for t in vector["input"]["job"]["tasks"]}
    job = planned({"kind": "mpi", "run_launcher_as_node": True}, num_nodes=1 + tasks.get("worker", 0))
    hosts = [line.split()[0] for line in job.file("mpi-hostfile").splitlines()]
    theirs = [host for host in (vector["expect"]["MPI_HOST"] or "").split(",") if host]
    assert len(hosts) == len(theirs) + 1 and hosts[-1] == "job-launcher-0-0.job"


@rows("volcano.ssh.defaults", "volcano.ssh.custom_key_path", "volcano.ssh.custom_port")
def test_the_port_of_sshd_and_the_path_of_its_keys_can_be_set(vector: Row) -> None:
    port, path = vector["expect"]["port"], vector["expect"].get("key_path", "/root/.ssh")
    plan = planned({"kind": "mpi", "ssh_port": port, "ssh_auth_mount_path": path}).plan
    assert plan.ports["ssh"] == port
    assert plan.ssh is not None and plan.ssh.path == path


def test_an_invalid_port_is_an_error() -> None:
    vector = row("volcano.ssh.invalid_port_falls_back")
    port = int(vector["input"]["args"][0].split("=")[1])
    with pytest.raises(BadInputError, match=r"framework\.ssh_port: -10 is too small; give 1 or more"):
        planned({"kind": "mpi", "ssh_port": port})


@rows(
    "openmpi5.orte_hostfile_env_ignored",
    "openmpi5.prte_missing_hostfile_is_error",
    "openmpi4.prte_env_ignored",
    "openmpi45.both_env_families_is_safe",
)
def test_open_mpi_4_and_5_both_find_the_hostfile(vector: Row) -> None:
    env = planned("mpi", num_nodes=2).env("launcher")
    assert {env["OMPI_MCA_orte_default_hostfile"], env["PRTE_MCA_prte_default_hostfile"]} == {"/etc/mpi/hostfile"}
    assert set(vector["input"]) <= set(env)


@rows("openmpi5.colon_hostfile_is_a_bad_hostname", "mpich.rejects_openmpi_hostfile", "mpich.hydra_host_file")
def test_no_implementation_gets_anothers_hostfile(vector: Row) -> None:
    form = {"openmpi": r"\S+[^:]\S* slots=3", "mpich": r"[^ :]+:3", "intel": r"[^ :]+:3"}
    for implementation, pattern in form.items():
        job = planned({"kind": "mpi", "implementation": implementation}, num_nodes=2, procs_per_node=3)
        assert all(re.fullmatch(pattern, line) for line in job.file("mpi-hostfile").splitlines())
        if implementation == "mpich":
            assert set(vector["input"]) - {"hostfile", "argv"} <= set(job.env("launcher"))


def test_slots_are_never_lost() -> None:
    vector = row("flyte.mpi.v1_slots_lost")
    slots, workers = vector["input"]["slots"], vector["input"]["workers"]
    job = planned("mpi", num_nodes=workers, procs_per_node=slots)
    assert job.plan.world.size == slots * workers == vector["expect"]["mpirun_np"]
    assert all(line.endswith(f"slots={slots}") for line in job.file("mpi-hostfile").splitlines())


def test_the_launcher_starts_when_the_nodes_are_ready() -> None:
    # Not a row: the cause of several (kubeflow/mpi-operator#386), a launcher that uses up its retries on missing nodes.
    assert planned("mpi", num_nodes=2).group("launcher").start_after == (StartAfter("node", "Ready"),)


# --- DeepSpeed --------------------------------------------------------------------------------------------------------


def _read_deepspeed_hostfile(text: str) -> dict[str, int]:
    """Reads a hostfile by DeepSpeed's rules: `HOST slots=N`, `#` comments, no host twice (runner.py, edaa722)."""
    pool: dict[str, int] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=(\d+)", stripped)
        if match is None or match[1] in pool:
            raise ValueError(f"bad entry: {line}")
        pool[match[1]] = int(match[2])
    return pool


@rows(
    "deepspeed.hostfile.good",
    "deepspeed.hostfile.bad.duplicate",
    "deepspeed.hostfile.bad.colon_format",
    "deepspeed.hostfile.trailing_keys_ignored",
)
def test_the_launcher_of_deepspeed_can_read_the_hostfile(vector: Row) -> None:
    if "error" in vector["expect"]:
        with pytest.raises(ValueError, match="bad entry"):
            _read_deepspeed_hostfile(vector["input"]["hostfile"])
    else:
        assert _read_deepspeed_hostfile(vector["input"]["hostfile"]) == vector["expect"]["pool"]
    job = planned({"kind": "deepspeed", "launcher": "deepspeed"}, num_nodes=3, procs_per_node=2)
    assert _read_deepspeed_hostfile(job.file("deepspeed-hostfile")) == {f"job-node-0-{k}.job": 2 for k in range(3)}


def test_the_launcher_of_deepspeed_numbers_ranks_as_the_plan_does() -> None:
    vector = row("deepspeed.launch.worker_env")
    given, expected = vector["input"], vector["expect"]
    procs = len(given["world_info"]["h0"])
    job = planned(
        {"kind": "deepspeed", "launcher": "deepspeed"}, num_nodes=len(given["world_info"]), procs_per_node=procs
    )
    assert job.plan.world.size == int(expected["WORLD_SIZE"])
    command = job.words(job.group().command)
    options = dict(pairwise(command))
    assert options["--node_rank"] == "$(STEPSET_NODE_RANK)" and "--no_ssh" in command
    assert options["--master_addr"] == next(iter(_read_deepspeed_hostfile(job.file("deepspeed-hostfile"))))
    assert options["--master_port"] == expected["MASTER_PORT"]
    assert given["node_rank"] * procs + given["local_proc"] == int(expected["RANK"])


# --- MLX and JAX ------------------------------------------------------------------------------------------------------


@rows("mlx.ring.unresolvable_peer_fails_at_once", "mlx.ring.absent_peer_gives_up_after_31s")
def test_an_mlx_ring_starts_only_when_every_peers_name_resolves(vector: Row) -> None:
    assert "error" in vector["expect"]
    agent = planned("mlx", num_nodes=2).group().agent
    assert agent is not None and agent.wait_for == ("node",)


def test_an_mlx_ring_has_both_variables_or_neither() -> None:
    missing = row("mlx.ring.strict_needs_both")["expect"]["error"]
    names = set(re.findall(r"MLX_\w+", missing))
    for nodes in (1, 2, 3):
        env = planned("mlx", num_nodes=nodes).env()
        assert names & set(env) == (names if nodes > 1 else set())


@rows("mlx.launch.exit_code_lost", "mlx.launch.ring_rejects_hostnames")
def test_mlx_launch_is_never_used(vector: Row) -> None:
    assert vector["input"]
    for backend in ("ring", "mpi"):
        for group in planned({"kind": "mlx", "backend": backend}, num_nodes=2).plan.groups:
            assert "mlx.launch" not in str(group.command)


def test_jax_gets_no_names_that_it_does_not_read() -> None:
    vector = row("kfv1.jax.env")
    theirs = dict(vector["expect"]["env"])
    env = planned("jax", num_nodes=vector["input"]["workers"], network={"port": vector["input"]["port"]}).env()
    assert not set(theirs) & set(env)  # JAX reads none of them
    assert env["JAX_COORDINATOR_ADDRESS"] == f"job-node-0-0.job:{theirs['COORDINATOR_PORT']}"
    assert env["JAX_NUM_PROCESSES"] == theirs["NUM_PROCESSES"]
