"""MPI: a launcher pod runs mpirun, which starts the ranks on the nodes over ssh.

Open MPI follows Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/mpi/mpi.go) and adds the names Open MPI 5 reads,
without which it starts everything on the launcher and reports success. Intel MPI and MPICH follow mpi-operator v0.8
(pkg/controller/mpi_job_controller.go).
"""

from __future__ import annotations

from stepset.frameworks.common import (
    before_world,
    count_processes,
    group_env,
    identity_env,
    program,
    role_groups,
    uses_agent,
)
from stepset.frameworks.mpirun import split_mpirun
from stepset.plan.model import (
    LAUNCHER,
    NODE,
    AgentSettings,
    EnvEntry,
    LaunchPlan,
    PlanFile,
    PodGroup,
    RankWrap,
    SshKeys,
    StartAfter,
    SuccessRule,
    World,
)
from stepset.plan.values import MountedFile, PodHost, Text, text, texts
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI

HOSTFILE = "mpi-hostfile"
SSH = "ssh"
_SSH_ARGS = "-o ConnectionAttempts=10"


def plan(job: TrainingJob) -> LaunchPlan:
    """The plan of an MPI job."""
    options = job.framework
    assert isinstance(options, MPI)
    return mpi_plan(job, options)


def mpi_plan(job: TrainingJob, options: MPI) -> LaunchPlan:
    """mpirun in a launcher pod and ssh servers in the others; also for DeepSpeed and MLX with mpirun."""
    slots = count_processes(job, without_accelerator=1)
    workers = job.num_nodes - 1 if options.run_launcher_as_node else job.num_nodes
    # Nodes first and the launcher last, as in Kubeflow Trainer. Rank 0 is on node 0, except for Open MPI with the
    # launcher as a node: it numbers its own node's ranks first, regardless of the hostfile's order (4.1.4, executed).
    hosts = [PodHost(NODE, k) for k in range(workers)]
    if options.run_launcher_as_node:
        hosts.append(PodHost(LAUNCHER, 0))
    form = (" slots=", slots) if options.implementation == "openmpi" else (":", slots)
    hostfile = PlanFile(HOSTFILE, "/etc/mpi/hostfile", tuple(text(h, *form) for h in hosts), (LAUNCHER,))

    agent = uses_agent(job)
    size = job.num_nodes * slots
    ours = _launcher_env(options, slots)
    # The launcher's own index is not a rank's, and Hydra would pass it to all of them.
    identity = tuple(entry for entry in identity_env(job, agent) if entry.name != "STEPSET_NODE_RANK")
    env = group_env(job, (*identity, *ours))
    command, wrap = _commands(job, options, env)
    resources = job.node_resources()
    node = PodGroup(
        name=NODE,
        count=workers,
        in_world=True,
        command=(),
        # As in Kubeflow Trainer the job's variables reach the ssh servers only if the launcher is one of the nodes.
        env=group_env(job, identity_env(job, agent)) if options.run_launcher_as_node else identity_env(job, agent),
        resources=resources,
        image=job.image,
        ports=(SSH,),
        serves_ssh=True,
        start_after=before_world(job),
        agent=AgentSettings(wait_for=(), peer_timeout=job.network.peer_timeout, world_size=size) if agent else None,
    )
    launcher = PodGroup(
        name=LAUNCHER,
        count=1,
        in_world=options.run_launcher_as_node,
        command=command,
        args=texts(job.args),
        env=env,
        resources=resources
        if options.run_launcher_as_node
        else job.resources_per_node.model_copy(update={"requests": {}, "limits": {}}),
        image=job.image,
        ports=(SSH,) if options.run_launcher_as_node else (),
        start_after=(StartAfter(NODE, "Ready"),) if workers else before_world(job),
        agent=AgentSettings(
            wait_for=(NODE, LAUNCHER) if workers else (LAUNCHER,),
            peer_timeout=job.network.peer_timeout,
            wrap=wrap,
            world_size=size,
        )
        if agent
        else None,
    )
    notes: tuple[str, ...] = ()
    if agent and wrap is None:
        notes = (
            "command: the position of the program in this command is unknown, so the number of ranks is not checked;"
            " give script, or a plain `mpirun [options] program`",
        )
    return LaunchPlan(
        name=job.name,
        world=World(job.num_nodes, slots),
        groups=(*role_groups(job), *((node,) if workers else ()), launcher),
        ports={SSH: options.ssh_port},
        success=SuccessRule(LAUNCHER, 1),
        files=(hostfile,),
        ssh=SshKeys(options.ssh_auth_mount_path, (NODE, LAUNCHER) if workers else (LAUNCHER,)),
        notes=notes,
    )


def _launcher_env(options: MPI, slots: int) -> tuple[EnvEntry, ...]:
    hostfile = text(MountedFile(HOSTFILE))
    if options.implementation == "mpich":
        label = "mpich:"
        rows = [
            ("HYDRA_HOST_FILE", hostfile, "the nodes"),
            # mpi-operator sets the first name, which no Hydra reads; MPICH 4 and 5 read the second (4.0.2, executed).
            ("HYDRA_LAUNCH_EXTRA_ARGS", text(_SSH_ARGS), "as mpi-operator sets it"),
            ("HYDRA_LAUNCHER_EXTRA_ARGS", text(_SSH_ARGS), "a node's sshd may come late"),
        ]
    elif options.implementation == "intel":
        label = "intel mpi:"
        rows = [
            ("I_MPI_HYDRA_HOST_FILE", hostfile, "the nodes"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", text(_SSH_ARGS), "a node's sshd may come late"),
            ("I_MPI_PERHOST", text(slots), "processes per node"),
        ]
    else:
        # Open MPI 4 reads OMPI_MCA_orte_*, Open MPI 5 only PRTE_MCA_prte_*; both are safe on both.
        # On 5 host names must be short (keep_fqdn=false), or its daemons take every node for the launcher
        # (kubeflow/trainer#4029).
        label = "open mpi"
        rows = [
            ("OMPI_MCA_orte_default_hostfile", hostfile, "4: the nodes"),
            ("OMPI_MCA_orte_keep_fqdn_hostnames", text("true"), "4: pods are known by their full names"),
            ("OMPI_MCA_orte_set_default_slots", text(slots), "4: processes per node"),
            ("OMPI_MCA_plm_rsh_args", text(_SSH_ARGS), "4: a node's sshd may come late"),
            ("PRTE_MCA_prte_default_hostfile", hostfile, "5: the nodes"),
            ("PRTE_MCA_prte_keep_fqdn_hostnames", text("false"), "5: pods are known by their short names"),
            ("PRTE_MCA_prte_set_default_slots", text(slots), "5: processes per node"),
            ("PRTE_MCA_plm_ssh_args", text(_SSH_ARGS), "5: a node's sshd may come late"),
        ]
    return tuple(EnvEntry(name, value, f"{label} {why}") for name, value, why in rows)


def _commands(job: TrainingJob, options: MPI, env: tuple[EnvEntry, ...]) -> tuple[tuple[Text, ...], RankWrap | None]:
    """(the launcher's command, how the agent reaches its ranks)."""
    if job.command is not None:
        words = [*job.command]
        at = split_mpirun(words)
        return texts(words), None if at is None else RankWrap(texts(words[:at]), texts(words[at:]))
    # Debian and others install several MPIs side by side; only MPICH's and Intel's launcher has Hydra's name.
    launcher = ["mpiexec.hydra" if options.implementation == "mpich" else "mpirun"]
    if options.implementation == "openmpi":
        # Over ssh Open MPI passes only its own variables on; Hydra passes all.
        own = ("OMPI_", "PRTE_")
        launcher += [word for e in env if not e.name.startswith(own) for word in ("-x", e.name)]
    rank = program(job)
    return (*texts(launcher), *rank), RankWrap(texts(launcher), (rank[0], text("-u"), *rank[1:]))
