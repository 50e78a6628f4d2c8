"""Starts a run: checks the job, and claims addresses and ports before the supervisor starts.

This module is separate from LocalBackend. Therefore code that only reads the state of a run imports neither the
planners nor the model of a job.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from stepset.backends.base import RunListener, RunRequest
from stepset.backends.local.checkpoints import has_checkpoint
from stepset.backends.local.environment import Host, most_processes, this_host, world_processes
from stepset.backends.local.layout import Assignment, RunLayout, has_spaces, pod_addresses, pod_specs
from stepset.backends.local.net import Claims, scratch_directory
from stepset.backends.local.ports.guard import Confinement, confinement
from stepset.backends.local.ports.listing import exposed_ports
from stepset.backends.local.private_files import check_private
from stepset.backends.local.requirements import prepare_requirements
from stepset.backends.local.runs.run_dir import RunDir
from stepset.backends.local.runs.settings import HOME_VARIABLE, default_ttl
from stepset.backends.local.runs.store import RunStore
from stepset.backends.local.supervisor import Supervisor, close_on_fork, keep_on_fork
from stepset.backends.option_names import fresh_option
from stepset.backends.prune import PruneRule
from stepset.backends.run_names import new_run_name
from stepset.directory_trees import discard_tree
from stepset.errors import BadInputError, InfrastructureError
from stepset.frameworks import make_plan
from stepset.plan.model import LaunchPlan
from stepset.plan.program import program_text
from stepset.plan.values import text
from stepset.run_status import Phase, RunStatus
from stepset.sources.accelerate import ACCELERATE_CPU, alone_on_cpus
from stepset.sources.module_notes import check_module
from stepset.spec.job import TrainingJob
from stepset.spec.quantity import rank_grace
from stepset.spec.resources import GPU_RESOURCE
from stepset.spec.template import without_node_env


def start_run(
    store: RunStore, grace: float | None, request: RunRequest, listener: RunListener | None, *, submitted: bool = False
) -> LocalHandle:
    """Installs the job's requirements, starts a run in this process, and returns its handle at once.

    Args:
        grace: see `LocalBackend`.
        listener: receives the lines and states of the run. The thread of the run calls the methods of the listener.

    Raises:
        BadInputError: the job cannot run as requested. Nothing was created.
        InfrastructureError: there is no free port, no free address or no space on the disk, a package index fails, or
            another user could replace the directory of the run.
        RunStoppedError: `request.stopping` returned True during the installation. Nothing was created.
    """
    job = request.job
    if job.code_volume is not None:
        raise BadInputError(
            "code: a volume exists only on a cluster; for a local run set code to the directory on this machine"
        )
    default_ttl(os.environ)  # raises an error for an invalid value now and not only at the end of the run
    check_private(store.runs, HOME_VARIABLE)  # before anything is installed or created
    if job.agent == "auto":
        # On a cluster, `auto` depends on whether the image contains Python. This machine has Python.
        job = job.model_copy(update={"agent": True})
    # No pods are created from the template here. mpirun passes on variables of the template, and would print a warning
    # for each variable that does not exist. Therefore only the existing variables remain in the template.
    template = without_node_env(job.pod_template, os.environ)
    plan = _plan_here(job.model_copy(update={"pod_template": template}))
    _check_size(plan)
    name = new_run_name(request.job.name, request.name)
    directory = store.runs / name
    shipped = request.sources.code_dir.resolve()
    code_dir = directory / "code" if job.function is not None else shipped
    work_dir = code_dir if job.code is not None else request.sources.base_dir.resolve()
    if job.module is not None and "PYTHONPATH" not in job.env:
        check_module(job.module, work_dir)
    prepared = prepare_requirements(request.sources.requirements, job, os.environ, request.stopping)
    host = this_host(plan, prepared.environ, shipped if job.code is not None else work_dir)
    if request.hide is not None:
        for value in host.secrets.values():
            request.hide(value)
    with ExitStack() as undo:
        claims = undo.enter_context(Claims())
        addresses = pod_addresses(plan, claims.addresses(sum(group.count for group in plan.groups)))
        _check_addresses(plan, addresses)
        ports = claims.ports(list(plan.ports))
        layout = RunLayout(
            run=name,
            directory=directory,
            scratch=scratch_directory() / secrets.token_hex(4),
            code_dir=code_dir,
            work_dir=work_dir,
            addresses=addresses,
            grace=rank_grace(job.termination_grace_period) if grace is None else grace,
            labels=job.labels,
            annotations=job.annotations,
            rendezvous_id=secrets.token_hex(16),
        )
        _check_rsh(plan, layout)
        specs = pod_specs(plan, host, layout, ports, request.attempt)
        found = _confinement(plan, host)
        status = RunStatus(
            name=name,
            job=job.name,
            backend="local",
            reason="Starting",
            first_attempt=request.attempt,
            continues=request.continues,
            world_size=plan.world.size,
            created=time.time(),
            program=program_text(job),
            labels=dict(job.labels),
            notes=(
                *request.notes,
                *_finished_notes(store, request),
                *_notes(plan, job, host.cores, len(host.gpus)),
                *request.sources.notes,
                *(_alone_on_cpus(plan, request) if not host.gpus else ()),
                *prepared.notes,
                *(exposed_ports(job.framework.kind, plan, ports, found.obstacle) if found.obstacle else ()),
            ),
        )
        _make_checkpoint_dir(job, store)
        run, lock = store.create(
            status, job, request.sources.base_dir.resolve(), request.function_file, submitted=submitted
        )
        undo.callback(discard_tree, run.path)
        store.prune(PruneRule(), time.time())
        handle = LocalHandle(run)
        assignment = Assignment(request, plan, host, layout, claims, specs, ports, found.guard)
        supervisor = Supervisor(assignment, run, status, listener, handle.cancel_requests)
        undo = undo.pop_all()  # once the supervisor has started, it is responsible for the claims
    try:
        handle.supervise(supervisor, lock)
    except BaseException:
        undo.close()
        raise
    return handle


class LocalHandle:
    """A run that this process has started."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._status: RunStatus | None = None
        self._error: BaseException | None = None
        # This is a list, because a signal handler can interrupt the increment of a counter between the read and the
        # write of the counter. `append` cannot be interrupted.
        self._requests: list[str] = []  # the reasons

    @property
    def name(self) -> str:
        return self._run.name

    def wait(self) -> RunStatus:
        """Blocks until the thread of the run has finished. Returns the final status, or raises the listener's error."""
        # `join` alone is not sufficient, because it returns too early after an exception in a signal handler (CPython
        # 3.11).
        self._over.wait()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._status is not None
        return self._status

    def cancel(self, *, reason: str = "") -> None:
        """Asks the run to stop. A second call kills the run. Can be called in signal handlers and threads."""
        self._requests.append(reason)

    def cancel_requests(self) -> list[str]:
        """Returns the reasons of all requests to stop the run, from this process and other processes. A reason may be
        ""."""
        # The number is the size of a file that a rank can make arbitrarily large. A second request kills the run.
        return [*self._requests, *[""] * min(2, self._run.cancel_requests())]

    def supervise(self, supervisor: Supervisor, lock: int) -> None:
        """Starts the thread that runs the job. The thread closes `lock` when the run has finished.

        Raises:
            InfrastructureError: the thread cannot start.
        """
        close_on_fork(lock)

        def work() -> None:
            try:
                self._status = self._run.with_details(self._run.with_expiry(supervisor.supervise()))
            except BaseException as error:  # noqa: BLE001  # raised again by wait
                self._error = error
            finally:
                keep_on_fork(lock)
                os.close(lock)
                atexit.unregister(self._at_exit)
                self._over.set()

        # The thread is a daemon. Therefore the process can exit before the run has finished. `_at_exit` stops the run.
        atexit.register(self._at_exit)
        self._thread = threading.Thread(target=work, name=f"stepset {self.name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            atexit.unregister(self._at_exit)
            keep_on_fork(lock)
            os.close(lock)
            raise InfrastructureError(
                f"the run cannot be started: {error}; see the limits of processes and memory (ulimit -u, ulimit -v)"
            ) from error

    def _at_exit(self) -> None:
        self.cancel()
        with suppress(BaseException):
            self.wait()


def _check_addresses(plan: LaunchPlan, addresses: dict[str, str]) -> None:
    """Raises BadInputError for a ring if all its nodes would listen on the same port of one address."""
    ring = any(name.startswith("ring-") for name in plan.ports)
    if ring and len(set(addresses.values())) < len(addresses):
        raise BadInputError(
            "num_nodes: every node of an MLX ring needs a loopback address of its own, and this system has only"
            " 127.0.0.1; use num_nodes: 1 with more procs_per_node"
        )


def _confinement(plan: LaunchPlan, host: Host) -> Confinement:
    """Returns how the ports of the run are confined to this machine.

    For Open MPI 5, this machine must be able to reach the ports also by its non-loopback addresses.
    """
    found = confinement()
    mpirun = shutil.which("mpirun", path=host.environ.get("PATH"))
    if found.outer_addresses or plan.ssh is None or mpirun is None:
        return found
    if not Path(mpirun).resolve().with_name("prterun").exists():
        return found
    return Confinement(
        guard=False, obstacle="Open MPI 5 does not use the loopback interface, and this user lacks CAP_NET_ADMIN"
    )


def _check_rsh(plan: LaunchPlan, layout: RunLayout) -> None:
    """Raises BadInputError if the path of the program that replaces ssh contains spaces."""
    if plan.ssh is not None and has_spaces(layout.rsh):
        raise BadInputError(
            f"STEPSET_HOME: MPI cannot start programs from a path with spaces ({layout.rsh}); set STEPSET_HOME or"
            " TMPDIR to a directory without spaces"
        )


def _check_size(plan: LaunchPlan) -> None:
    """Raises BadInputError if the world has more processes than this machine can have."""
    processes, most = world_processes(plan), most_processes()
    if most is not None and processes > most:
        raise BadInputError(
            f"num_nodes, procs_per_node: {processes} processes are more than this machine can have at once ({most});"
            " make the world smaller"
        )


def _plan_here(job: TrainingJob) -> LaunchPlan:
    """Returns the plan of a job, with the planned number of processes per node.

    With `auto` and `gpu`, torchrun would count the GPUs or the cores of this machine, instead of the GPUs or cores that
    the job requests for a node.
    """
    plan = make_plan(job)
    counts = {text("auto"), text("gpu")}
    entries = [entry for group in plan.groups if group.in_world for entry in group.env]
    if any(entry.name == "PET_NPROC_PER_NODE" and entry.value in counts for entry in entries):
        return make_plan(job.model_copy(update={"procs_per_node": plan.world.procs_per_node}))
    return plan


def _make_checkpoint_dir(job: TrainingJob, store: RunStore) -> None:
    """Creates the checkpoint_dir. Raises BadInputError if this user cannot create the directory or write to it."""
    if job.checkpoint_dir is None:
        return
    if Path(os.path.realpath(job.checkpoint_dir)).is_relative_to(os.path.realpath(store.runs)):
        raise BadInputError(
            f"checkpoint_dir: {job.checkpoint_dir} is within {store.runs}, whose directories are deleted with their"
            " runs; give another"
        )
    what = "created on this machine"
    try:
        Path(job.checkpoint_dir).mkdir(parents=True, exist_ok=True)
        what = "written"
        tempfile.TemporaryFile(dir=job.checkpoint_dir, prefix=".stepset-").close()
    except FileExistsError as error:
        raise BadInputError(f"checkpoint_dir: {job.checkpoint_dir} is a file; give a directory") from error
    except OSError as error:
        raise BadInputError(
            f"checkpoint_dir: {job.checkpoint_dir} cannot be {what}: {error.strerror}; give another directory"
        ) from error


def _finished_notes(store: RunStore, request: RunRequest) -> tuple[str, ...]:
    """Returns a note if the run starts from the checkpoint of a finished training, although nothing requested this."""
    directory, fresh = request.job.checkpoint_dir, fresh_option(store.interface)
    if directory is None or not fresh or request.continues:
        return ()
    if not has_checkpoint(directory, request.job.to_dict().get("env", {})):
        return ()
    earlier = store.newest_with(directory)
    if earlier is None or earlier.phase is not Phase.SUCCEEDED:
        return ()
    return (
        f"run {earlier.name} has already succeeded with this checkpoint_dir, and this run starts from its checkpoint;"
        f" to train from the beginning, give {fresh} or another checkpoint_dir",
    )


def _alone_on_cpus(plan: LaunchPlan, request: RunRequest) -> tuple[str, ...]:
    job = request.job
    if job.framework.kind == "plain" or plan.world.size == 1 or ACCELERATE_CPU in {**os.environ, **job.env}:
        return ()
    return alone_on_cpus(job, request.sources.code_dir, request.function_file)


def _notes(plan: LaunchPlan, job: TrainingJob, cores: int, gpus: int) -> tuple[str, ...]:
    """Returns the notes that are shown from the start of the run."""
    notes = list(plan.notes)
    processes = world_processes(plan)
    if processes > max(cores, gpus):  # if each process has a GPU, the number of cores does not matter
        notes.append(
            f"{processes} processes share {cores} {'core' if cores == 1 else 'cores'}: they run slower than on a"
            " machine with one core for each"
        )
    if not gpus and GPU_RESOURCE in job.node_resources().limits:
        ranks = "1 process runs" if processes == 1 else f"{processes} processes run"
        notes.append(f"stepset found 0 GPUs on this machine; without GPUs, {ranks} on CPUs")
    if memory := job.node_resources().limits.get("memory"):
        notes.append(f"resources_per_node.memory: a local run does not limit the memory of its nodes to {memory}")
    notes += [
        f"storage: {volume.path} does not exist on this machine; local runs use the path unchanged"
        for volume in job.storage
        if not Path(volume.path).exists()
    ]
    return tuple(notes)
