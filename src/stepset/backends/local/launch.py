"""Starts a run: checks the job and claims addresses and ports before the supervisor starts.

Separate from LocalBackend, so that reading the state of a run does not import the job's model and the planners.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from stepset.backends.base import RunListener, RunRequest
from stepset.backends.local.environment import Host, most_processes, this_host, world_processes
from stepset.backends.local.layout import RunLayout, has_spaces, pod_addresses, pod_specs
from stepset.backends.local.net import Claims, scratch_directory
from stepset.backends.local.ports.guard import Confinement, confinement
from stepset.backends.local.ports.listing import exposed_ports
from stepset.backends.local.store import RunDir, RunStore
from stepset.backends.local.supervisor import Assignment, Supervisor, close_on_fork, keep_on_fork
from stepset.backends.prune import PruneRule
from stepset.errors import BadInputError, InfrastructureError
from stepset.frameworks import make_plan
from stepset.plan.model import LaunchPlan
from stepset.run_status import RunStatus
from stepset.spec.job import TrainingJob
from stepset.spec.names import check_dns_1035


def start_run(store: RunStore, grace: float, request: RunRequest, listener: RunListener | None) -> LocalHandle:
    """Starts a run in this process and returns its handle at once; `listener` is called from the run's own thread.

    Raises BadInputError if the job cannot run as requested (nothing was created), and InfrastructureError if there is
    no free port, no free address, or no space on the disk.
    """
    job = request.job
    if job.agent == "auto":
        # On a cluster, `auto` depends on whether the image has Python; this machine has Python.
        job = job.model_copy(update={"agent": True})
    plan = make_plan(job)
    _check_size(plan)
    name = _run_name(request)
    directory = store.runs / name
    shipped = request.sources.code_dir.resolve()
    code_dir = directory / "code" if job.function is not None else shipped
    work_dir = code_dir if job.code is not None else request.sources.base_dir.resolve()
    host = this_host(plan, os.environ, shipped if job.code is not None else work_dir)
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
            grace=grace,
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
            attempt=request.attempt,
            world_size=plan.world.size,
            created=time.time(),
            notes=(
                *_notes(plan, job, host.cores),
                *request.sources.notes,
                *(exposed_ports(job.framework.kind, plan, ports, found.obstacle) if found.obstacle else ()),
            ),
        )
        _make_checkpoint_dir(job)
        run, lock = store.create(status, job)
        undo.callback(shutil.rmtree, run.path, ignore_errors=True)
        store.prune(PruneRule(), time.time())
        handle = LocalHandle(run)
        assignment = Assignment(request, plan, host, layout, claims, specs, ports, found.guard)
        supervisor = Supervisor(assignment, run, status, listener, handle.cancel_requests)
        undo = undo.pop_all()  # a supervisor that has started releases the claims
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
        self._requests: list[None] = []  # a list: `append` cannot be interrupted half-way, `+= 1` can

    @property
    def name(self) -> str:
        return self._run.name

    def wait(self) -> RunStatus:
        """Blocks until the run's thread has ended; returns the final status, or raises what the listener raised."""
        # Not `join` alone: after an exception in a signal handler it returns too early (observed with CPython 3.11).
        self._over.wait()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._status is not None
        return self._status

    def cancel(self) -> None:
        """Requests the run's end; a second call kills it. Safe in signal handlers and in any thread."""
        self._requests.append(None)

    def cancel_requests(self) -> int:
        """Returns the number of requests to cancel from this process and from others."""
        return len(self._requests) + self._run.cancel_requests()

    def supervise(self, supervisor: Supervisor, lock: int) -> None:
        """Starts the thread that runs the job and closes `lock` when the run has ended.

        Raises InfrastructureError if the thread cannot start.
        """
        close_on_fork(lock)

        def work() -> None:
            try:
                self._status = supervisor.supervise()
            except BaseException as error:  # noqa: BLE001  # raised again by wait
                self._error = error
            finally:
                keep_on_fork(lock)
                os.close(lock)
                atexit.unregister(self._at_exit)
                self._over.set()

        # A daemon, so that a process that ends without waiting for the run stops the run instead of waiting for it.
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


def _run_name(request: RunRequest) -> str:
    """Returns the requested name, or the job's name with a random suffix."""
    if request.name is None:
        return f"{request.job.name}-{secrets.token_hex(3)}"
    try:
        check_dns_1035(request.name)
    except ValueError as error:
        raise BadInputError(f"name: {error}") from error
    return request.name


def _check_addresses(plan: LaunchPlan, addresses: dict[str, str]) -> None:
    """Raises BadInputError for a ring of nodes that would all listen on the same port of one address."""
    ring = any(name.startswith("ring-") for name in plan.ports)
    if ring and len(set(addresses.values())) < len(addresses):
        raise BadInputError(
            "num_nodes: every node of an MLX ring needs a loopback address of its own, and this system has only"
            " 127.0.0.1; use num_nodes: 1 with more procs_per_node"
        )


def _confinement(plan: LaunchPlan, host: Host) -> Confinement:
    """Returns how the run's ports are confined; Open MPI 5 also has to reach them by non-loopback addresses."""
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
    """Raises BadInputError if the path of the program that replaces ssh has spaces."""
    if plan.ssh is not None and has_spaces(layout.rsh):
        raise BadInputError(
            f"STEPSET_HOME: MPI cannot start programs from a path with spaces ({layout.rsh}); set STEPSET_HOME or"
            " TMPDIR to a directory without spaces"
        )


def _check_size(plan: LaunchPlan) -> None:
    """Raises BadInputError for a world of more processes than this machine can have."""
    processes, most = world_processes(plan), most_processes()
    if most is not None and processes > most:
        raise BadInputError(
            f"num_nodes, procs_per_node: {processes} processes are more than this machine can have at once ({most});"
            " make the world smaller"
        )


def _make_checkpoint_dir(job: TrainingJob) -> None:
    if job.checkpoint_dir is None:
        return
    try:
        Path(job.checkpoint_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"checkpoint_dir: {job.checkpoint_dir} cannot be created on this machine: {error.strerror}; give another"
            " directory"
        ) from error


def _notes(plan: LaunchPlan, job: TrainingJob, cores: int) -> tuple[str, ...]:
    """Returns the notes that the run shows from the start."""
    notes = list(plan.notes)
    processes = world_processes(plan)
    if processes > cores:
        notes.append(
            f"{processes} processes share {cores} {'core' if cores == 1 else 'cores'}: they run slower than on a"
            " machine with one core for each"
        )
    notes += [
        f"storage: {volume.path} does not exist on this machine; local runs use the path unchanged"
        for volume in job.storage
        if not Path(volume.path).exists()
    ]
    return tuple(notes)
