"""Plans MPI jobs. A launcher pod runs mpirun, which starts the ranks on the nodes over ssh.

For Open MPI, the plan is based on Kubeflow Trainer v2.3.0 (pkg/runtime/framework/plugins/mpi/mpi.go). In addition, the
plan contains variables for Open MPI 5. Without these variables, Open MPI 5 would start all ranks on the launcher and
report success. For Intel MPI and MPICH, the plan is based on mpi-operator v0.8 (pkg/controller/mpi_job_controller.go).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from stepset.errors import BadInputError
from stepset.frameworks.common import (
    MASTER,
    before_world,
    check_host_lines,
    count_processes,
    device_notes,
    group_env,
    identity_env,
    program,
    role_groups,
    uses_agent,
)
from stepset.frameworks.framework_spec import FrameworkSpec, Import, Listeners
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
from stepset.plan.starters import RankStarter, starts_ranks
from stepset.plan.values import MountedFile, PodHost, PortNumber, Text, text, texts
from stepset.spec.devices import devices_of
from stepset.spec.job import TrainingJob
from stepset.spec.options import MPI
from stepset.spec.resources import Resources
from stepset.spec.template import node_env_from, node_env_names

HOSTFILE = "mpi-hostfile"
SSH = "ssh"
MASTER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
"""Variables of the launcher that the ranks also get. sshd sets them in pods. The agent sets them in local runs.

mpirun cannot always set these variables in the ranks, because Open MPI passes a variable to the ranks only if the
command line contains the name of the variable.
"""
_GPUS = "NVIDIA_VISIBLE_DEVICES"
_SSH_ARGS = "-o ConnectionAttempts=10"


def plan(job: TrainingJob) -> LaunchPlan:
    """Returns a plan in which a launcher pod runs mpirun and the nodes run ssh servers.

    This function also creates the plans of jobs of other frameworks, such as DeepSpeed, if mpirun starts the ranks.
    """
    options = job.framework.mpirun
    assert options is not None
    slots = count_processes(job, without_accelerator=1)
    check_host_lines(job)
    if options.ssh_port == job.network.port:
        raise BadInputError(
            f"network.port: {job.network.port} is also the port of the nodes' ssh servers (framework.ssh_port); give"
            " another port"
        )
    workers = job.num_nodes - 1 if options.run_launcher_as_node else job.num_nodes
    # As in Kubeflow Trainer, the launcher is last in the host file. Therefore rank 0 runs on node 0. There is one
    # exception. If the launcher is a node and the implementation is Open MPI, rank 0 runs in the launcher, regardless
    # of the order of the host file (Open MPI 4.1.4, tested).
    hosts = [PodHost(NODE, k) for k in range(workers)]
    if options.run_launcher_as_node:
        hosts.append(PodHost(LAUNCHER, 0))
    form = (" slots=", slots) if options.implementation == "openmpi" else (":", slots)
    hostfile = PlanFile(HOSTFILE, "/etc/mpi/hostfile", tuple(text(h, *form) for h in hosts), (LAUNCHER,))

    agent = uses_agent(job)
    size = job.num_nodes * slots
    ours = (*_launcher_env(options, slots), *_master_env(options, workers), *_replaceable_env(job, options))
    # The launcher does not get STEPSET_NODE_RANK, because the index of the launcher pod is not the index of a node. In
    # addition, Hydra would pass the variable to all ranks.
    identity = tuple(entry for entry in identity_env(job, agent) if entry.name != "STEPSET_NODE_RANK")
    env = group_env(job, (*identity, *ours))
    start = _start(job, options, env)
    resources = job.node_resources()
    node = PodGroup(
        name=NODE,
        count=workers,
        in_world=True,
        command=(),
        # As in Kubeflow Trainer, the ssh servers get the job's variables only if the launcher is one of the nodes.
        env=group_env(job, identity_env(job, agent)) if options.run_launcher_as_node else identity_env(job, agent),
        resources=resources,
        image=job.image,
        ports=(SSH,),
        serves_ssh=True,
        start_after=before_world(job),
        agent=AgentSettings(wait_for=(), peer_timeout=job.network.peer_timeout, world_size=size, hang=job.hang_times)
        if agent
        else None,
    )
    launcher = PodGroup(
        name=LAUNCHER,
        count=1,
        in_world=options.run_launcher_as_node,
        command=start.command,
        command_rule=start.rule,
        args=texts(job.args),
        env=env,
        resources=resources if options.run_launcher_as_node else _launcher_resources(job, options),
        image=job.image,
        ports=(SSH,) if options.run_launcher_as_node else (),
        start_after=(StartAfter(NODE, "Ready"),) if workers else before_world(job),
        agent=AgentSettings(
            wait_for=(NODE, LAUNCHER) if workers else (LAUNCHER,),
            peer_timeout=job.network.peer_timeout,
            wrap=start.wrap,
            world_size=size,
            hang=job.hang_times,
        )
        if agent
        else None,
    )
    notes = start.notes
    if agent and start.wrap is None and not notes:
        notes = (
            "command: the position of the program in this command is unknown, so the number of ranks is not checked;"
            " give script, or a plain `mpirun [options] program`",
        )
    return LaunchPlan(
        name=job.name,
        world=World(job.num_nodes, slots),
        groups=(*role_groups(job), *((node,) if workers else ()), launcher),
        ports={SSH: options.ssh_port, MASTER: job.network.port},
        success=SuccessRule(LAUNCHER, 1),
        files=(hostfile,),
        ssh=SshKeys(options.ssh_auth_mount_path, (NODE, LAUNCHER) if workers else (LAUNCHER,)),
        notes=(*notes, *device_notes(job)),
    )


def _launcher_resources(job: TrainingJob, options: MPI) -> Resources:
    """Returns the resources of a launcher that is not a node.

    If `launcher_resources` does not set `shm`, the launcher gets the `shm` of the nodes.
    """
    own = options.launcher_resources
    return own if own.shm is not None else own.model_copy(update={"shm": job.resources_per_node.shm})


_NO_BINDING = "several pods of one machine would bind their ranks to the same cores"
_REPLACEABLE = {
    "openmpi": (
        ("OMPI_MCA_hwloc_base_binding_policy", "none", f"open mpi 4: {_NO_BINDING}"),
        ("PRTE_MCA_hwloc_default_binding_policy", "none", f"open mpi 5: {_NO_BINDING}"),
    ),
    "intel": (("I_MPI_PIN", "off", f"intel mpi: {_NO_BINDING}"),),
    "mpich": (),
}


def _replaceable_env(job: TrainingJob, options: MPI) -> tuple[EnvEntry, ...]:
    """Returns variables of the launcher. The job may replace these variables without `override: true`.

    Options in the mpirun command take precedence over the variables.
    """
    rows = [*_REPLACEABLE[options.implementation]]
    if not options.run_launcher_as_node and not devices_of(options.launcher_resources).name:
        # With the value `void`, the NVIDIA container runtime mounts neither GPUs nor the driver. mpi-operator v0.8 sets
        # an empty value, which has the same effect (nvidiaDisableEnvVars). With `none`, the runtime still mounts the
        # driver. A launcher that requests devices must not have this variable, because a container's `env` takes
        # precedence over the variables of a device plugin. The variable would hide the devices.
        rows.append((_GPUS, "void", "a launcher that is not a node sees no GPU, whatever the image's default"))
    return tuple(EnvEntry(name, text(value), why) for name, value, why in rows if name not in job.env)


def _master_env(options: MPI, workers: int) -> tuple[EnvEntry, ...]:
    """Returns the variables with the address of rank 0.

    torch and accelerate read these variables in the ranks that mpirun starts. MPI itself does not read them.
    """
    on_launcher = not workers or (options.run_launcher_as_node and options.implementation == "openmpi")
    host, port = MASTER_VARIABLES
    return (
        EnvEntry(host, text(PodHost(LAUNCHER if on_launcher else NODE, 0)), "mpi: the node of rank 0, for torch"),
        EnvEntry(port, text(PortNumber(MASTER)), "mpi: network.port, for torch"),
    )


def _launcher_env(options: MPI, slots: int) -> tuple[EnvEntry, ...]:
    hostfile = text(MountedFile(HOSTFILE))
    if options.implementation == "mpich":
        label = "mpich:"
        rows = [
            ("HYDRA_HOST_FILE", hostfile, "the nodes"),
            # mpi-operator sets HYDRA_LAUNCH_EXTRA_ARGS, but no version of Hydra reads this variable. MPICH 4 and 5 read
            # HYDRA_LAUNCHER_EXTRA_ARGS (4.0.2, tested).
            ("HYDRA_LAUNCH_EXTRA_ARGS", text(_SSH_ARGS), "as mpi-operator sets it"),
            ("HYDRA_LAUNCHER_EXTRA_ARGS", text(_SSH_ARGS), "a node's sshd may start late"),
        ]
    elif options.implementation == "intel":
        label = "intel mpi:"
        rows = [
            ("I_MPI_HYDRA_HOST_FILE", hostfile, "the nodes"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", text(_SSH_ARGS), "a node's sshd may start late"),
            ("I_MPI_PERHOST", text(slots), "processes per node"),
        ]
    else:
        # Open MPI 4 reads OMPI_MCA_orte_*, and Open MPI 5 reads PRTE_MCA_prte_*. Open MPI 5 must use short host
        # names (keep_fqdn=false). With full host names, a daemon of Open MPI 5 on a node would assume that it runs in
        # the launcher pod (kubeflow/trainer#4029).
        label = "open mpi"
        rows = [
            ("OMPI_MCA_orte_default_hostfile", hostfile, "4: the nodes"),
            ("OMPI_MCA_orte_keep_fqdn_hostnames", text("true"), "4: pods are known by their full names"),
            ("OMPI_MCA_orte_set_default_slots", text(slots), "4: processes per node"),
            ("OMPI_MCA_plm_rsh_args", text(_SSH_ARGS), "4: a node's sshd may start late"),
            ("PRTE_MCA_prte_default_hostfile", hostfile, "5: the nodes"),
            ("PRTE_MCA_prte_keep_fqdn_hostnames", text("false"), "5: pods are known by their short names"),
            ("PRTE_MCA_prte_set_default_slots", text(slots), "5: processes per node"),
            ("PRTE_MCA_plm_ssh_args", text(_SSH_ARGS), "5: a node's sshd may start late"),
        ]
    return tuple(EnvEntry(name, value, f"{label} {why}") for name, value, why in rows)


@dataclass(frozen=True, slots=True)
class _Start:
    """How the launcher starts the ranks.

    Args:
        command: the launcher's command, without the job's args.
        wrap: how the agent wraps the ranks. None if the position of the program in the command is unknown.
        rule: the reason for the command, as a phrase for `stepset explain`.
        notes: warnings for the user. Each warning is one line.
    """

    command: tuple[Text, ...]
    wrap: RankWrap | None
    rule: str
    notes: tuple[str, ...] = ()


def _start(job: TrainingJob, options: MPI, env: tuple[EnvEntry, ...]) -> _Start:
    rank = program(job)
    found = starts_ranks([*job.command, *job.args]) if job.command is not None else None
    if options.launch == "mpirun" and found is not None and found.what == "launcher":
        raise BadInputError(
            f"framework.launch: the command starts {found.name} itself; omit framework.launch, or remove"
            f" {found.name} from command"
        )
    if options.launch == "command":
        return _Start(rank, None, "unchanged, because framework.launch is command")
    if found is not None and options.launch == "auto":
        return _own_start([*(job.command or ())], options, found)
    launcher = [_launcher(options)]
    rule = f"{launcher[0]} starts the ranks"
    if job.command is not None:
        rule += f", because {'framework.launch is mpirun' if options.launch == 'mpirun' else 'the command starts none'}"
    if options.implementation == "openmpi":
        # Over ssh, Open MPI passes only variables with these prefixes to the ranks. Hydra passes all variables.
        own = ("OMPI_", "PRTE_")
        # stepset's NVIDIA_VISIBLE_DEVICES hides the GPUs in the launcher. The ranks must not get this variable.
        planned = [e.name for e in env if e.name != _GPUS or e.origin == "job"]
        names = dict.fromkeys((*planned, *node_env_names(job.pod_template)))
        launcher += [word for name in names if not name.startswith(own) for word in ("-x", name)]
    unbuffered = rank if job.command is not None else (rank[0], text("-u"), *rank[1:])
    return _Start((*texts(launcher), *rank), RankWrap(texts(launcher), unbuffered), rule, _not_passed(job, options))


def _not_passed(job: TrainingJob, options: MPI) -> tuple[str, ...]:
    """Returns a note if the launcher has variables that Open MPI does not pass to the ranks.

    These are variables from `envFrom`. The mpirun command cannot contain their names, because stepset does not know the
    names.
    """
    objects = node_env_from(job.pod_template)
    if not objects or options.implementation != "openmpi":
        return ()
    return (
        f"pod_template.containers.{NODE}.envFrom: mpirun passes only variables that its command line names to the"
        f" ranks, and not those of {', '.join(objects)}; name those that the ranks need in env",
    )


def _launcher(options: MPI) -> str:
    """Returns the name of the launcher.

    If an image contains several MPI implementations, `mpirun` may belong to Open MPI even if the job uses MPICH. In
    contrast, `mpiexec.hydra` never belongs to Open MPI.
    """
    return "mpiexec.hydra" if options.implementation == "mpich" else "mpirun"


def _own_start(words: list[str], options: MPI, found: RankStarter) -> _Start:
    """Returns the `_Start` for a job with a command that starts the ranks."""
    at = split_mpirun(words)
    wrap = None if at is None else RankWrap(texts(words[:at]), texts(words[at:]))
    if found.what == "launcher":
        return _Start(texts(words), wrap, f"unchanged, because it starts {found.name}")
    note = (
        f"command: the shell script {found.name} runs once, in the launcher, and must start the ranks with mpirun; if"
        f" it is the program of each rank, write {shlex.join([_launcher(options), *words])}"
    )
    return _Start(texts(words), wrap, "unchanged, because a shell script starts the ranks itself", (note,))


SPEC = FrameworkSpec(
    name="MPI",
    plan=plan,
    listeners=Listeners("", "mpirun, its daemons and the ranks"),
    world_variables=(
        r"(OMPI_COMM|PMI|PMIX(?!_MCA)|HYDI|MPI_LOCAL)_",
        r"OMPI_(UNIVERSE_SIZE|APP_CTX|MCA_orte_|MCA_ess_|FILE_)",
    ),
    programs={"mpirun": "install an MPI, such as Open MPI", "mpiexec.hydra": "install MPICH"},
    packages=("mpi4py",),
    imports=(
        Import("horovod", "the script must call hvd.init()", "first"),
        Import("mpi4py", "the ranks meet in MPI.COMM_WORLD", "first"),
    ),
    pages=("mpi",),
)
