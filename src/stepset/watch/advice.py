"""The advice for each kind of failure, and for failures about which more is known.

The section of a kind in docs/failures.md begins with the advice for this kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stepset.run_status import Failure, FailureKind

ADVICE = {
    FailureKind.USER_ERROR: "Look at the error and the last lines of that rank, and fix the training code.",
    FailureKind.OUT_OF_MEMORY: (
        "Give each node more memory, or use less: a smaller batch, fewer processes per node, a sharded model."
    ),
    FailureKind.IMAGE_PULL: "Check the image's name and tag, and that the cluster may pull it.",
    FailureKind.UNSCHEDULABLE: "Request less per node, wait for capacity, or loosen the scheduling constraints.",
    FailureKind.RENDEZVOUS: (
        "Check that all ranks start, agree on the world size, and can reach the master's address and port;"
        " then run again."
    ),
    FailureKind.INFRASTRUCTURE: "The training code is not the cause; fix the named problem and run the job again.",
    FailureKind.DEADLINE_EXCEEDED: (
        "Set a longer deadline, or shorten the training; if it hangs, find out where each rank waits."
    ),
    FailureKind.REJECTED: (
        "Change the job or the cluster as the message indicates; without a change, another run fails in the same way."
    ),
    FailureKind.LOST: "Find out what ended the run, and run the job again; a checkpoint_dir lets the training resume.",
    FailureKind.CANCELLED: "Run the job again if it is still needed.",
}

NOT_SUBMITTED_ADVICE = (
    "A run ends with the process that started it, for example when a notebook's kernel is restarted or a terminal is"
    " closed, unless the run was submitted. Run the job again; a checkpoint_dir lets the training resume."
)
MEMORY_LIMIT_ADVICE = (
    "Increase resources_per_node.memory, or use less: a smaller batch, fewer processes per node, a sharded model."
)
SIGNAL_ADVICE = (
    "The sender of the signal is unknown: the training code, another process, or the system; see the events, and the"
    " system's log of the machine."
)
LOCAL_SIGNAL_ADVICE = (
    "The sender of the signal is unknown: the training code, another process, or the system;"
    " `dmesg | grep -i oom` shows whether the kernel killed the process because the memory was full."
)
LOCAL_STOP_ADVICE = (
    "The sender of the signal is unknown: search the training code and its libraries for os.kill, and look for another"
    " program that stops processes, such as timeout, a batch system or the end of a login session."
)
NO_OUTPUT_ADVICE = (
    "There are no last lines of that rank: search the training code for calls of sys.exit and os._exit, and print the"
    " reason before each call."
)
RAISED_ADVICE = (
    "Fix the error that the rank printed; the other ranks may wait for this rank, and a thread or a library, such as"
    " MPI, may have kept its process from exiting."
)
GONE_ADVICE = (
    "Look for the output of the ranks in the cluster's log storage; in the next run, let a process follow the run"
    " (stepset run without --detach, or stepset.run), which stores the cause."
)
GONE_USER_ERROR_ADVICE = "Look for the output of that pod in the cluster's log storage, and fix the training code."
CHANGE_ADVICE = "Make the change that the message names, or use another queue, and run the job again."
CREATE_ADVICE = "Create the object that the message names, or use one that exists, and run the job again."
SUBMIT_ADVICE = (
    "The process that submitted the run was interrupted, or the object was deleted: cancel the run, and run the job"
    " again."
)
SELECTOR_ADVICE = (
    "No machine has the labels that the job requires: compare node_selector and affinity of scheduling with kubectl get"
    " nodes --show-labels, and change the job or the labels."
)
NO_RANK_ADVICE = (
    "The ranks have variables such as RANK only if the framework or its launcher sets them: use framework torch, or"
    " read STEPSET_NODE_RANK and STEPSET_NUM_NODES, which every node has."
)
START_ADVICE = "Check the command, and that its program is executable and on the image's PATH."
STDIN_ADVICE = (
    "Ranks have no stdin, except rank 0 of a local MPI run: pass values as arguments instead of input(), remove"
    " breakpoint(), and debug with one process, without stepset."
)
CHECKPOINT_DIR_ADVICE = (
    "The job has no checkpoint_dir: set checkpoint_dir, or read the variable with os.environ.get and write no"
    " checkpoint if there is none."
)
RESUME_DIR_ADVICE = (
    "If the path is that of STEPSET_RESUME_FROM: this is the directory checkpoint_dir, not one of the checkpoints in"
    " the directory; let the script choose one of its entries, such as the newest."
)
ARGUMENTS_ADVICE = (
    "Change the arguments of the program: on the command line, they follow --; in a job file, a DAG, a pipeline and a"
    " Python call, they are args."
)
GPU_MEMORY_ADVICE = (
    "The memory of a GPU is full, and more memory of the node does not help: use a smaller batch per rank, gradient"
    " accumulation, activation checkpointing, or FSDP; nvidia-smi shows whether other processes use the GPU."
)
RESUME_FROM_ADVICE = (
    "STEPSET_RESUME_FROM is set only if the checkpoint_dir of the job contains a checkpoint: read the variable with"
    " os.environ.get, and start from the beginning if there is none."
)
PROCESS_GROUP_ADVICE = (
    "A thread of a C++ library, such as that of gloo, still ran when the program ended. If the rank ended too early,"
    " search the training code for sys.exit and an early return; otherwise call"
    " torch.distributed.destroy_process_group() at the end of the script."
)
RESULT_ADVICE = (
    "Correct how rank 0 writes the result, and run the job again; with a checkpoint_dir, the new run continues from the"
    " last checkpoint."
)
NO_MODULE_ADVICE = (
    "Install the package in the image, or add it to requirements, which uv installs. If the module is a file of yours,"
    " set code to its directory; if it is the package of the script, use module PACKAGE.SCRIPT (-m) instead of script."
)


_NO_RANK = r"KeyError: '(RANK|WORLD_SIZE|LOCAL_RANK)'|environment variable (RANK|WORLD_SIZE) expected, but not set"
"""Errors of a rank that reads variables of torch, which other frameworks do not set."""
_NO_INPUT = r"EOFError: EOF when reading a line|\bBdbQuit\b"
"""The errors of input(), and of breakpoint(), at the end of stdin."""
_NO_FILE = r"IsADirectoryError: |Can't find a valid checkpoint at "
"""The errors of torch.load, and of the Hugging Face Trainer, for a directory that contains checkpoints."""
_ADVICE_BY_ERROR = (
    (_NO_RANK, NO_RANK_ADVICE),
    (_NO_INPUT, STDIN_ADVICE),
    (r"KeyError: 'STEPSET_CHECKPOINT_DIR'", CHECKPOINT_DIR_ADVICE),
    (r"KeyError: 'STEPSET_RESUME_FROM'", RESUME_FROM_ADVICE),
    (_NO_FILE, RESUME_DIR_ADVICE),
    (r"ModuleNotFoundError: ", NO_MODULE_ADVICE),
    (r"^\S+\.py: error: ", ARGUMENTS_ADVICE),  # of argparse
    (r"\b(CUDA|HIP) out of memory", GPU_MEMORY_ADVICE),
    (r"^terminate called without an active exception", PROCESS_GROUP_ADVICE),
)
"""The advice for an error that contains the pattern."""


def hang_advice(*, torch: bool | None) -> str:
    """Returns the advice for a run that may have hung until its deadline.

    The ranks no longer exist. Therefore the advice names what shows their stacks in the next run.

    Args:
        torch: whether the framework of the run is torch. None if the framework is unknown.
    """
    condition = "if the ranks use torch, " if torch is None else ""
    timeout = f"{condition}pass a timeout to init_process_group; " if torch is not False else ""
    return (
        "The training may hang: in the next run, call faulthandler.dump_traceback_later(600, repeat=True) at the start"
        " of the script and after each step, so that a rank that waits for 600 s prints its Python stack to the log"
        f" (the time must be longer than a step, and shorter than the deadline); {timeout}if it does not hang, set a"
        " longer deadline, or shorten the training."
    )


def late_exit_advice(sources: str) -> str:
    """Returns the advice for a run in which some ranks had exited with code 0 at the deadline.

    Args:
        sources: the ranks that still ran.
    """
    return (
        f"Find out why {sources} had not exited: call faulthandler.dump_traceback_later(60) at the end of the script,"
        " so that a rank that does not exit prints its Python stack; it may wait for a thread, a child process, or a"
        " rank that has exited; if it still trained, check that all ranks run the same number of steps."
    )


def claim_advice(claims: Sequence[str], namespace: str) -> str:
    """Returns the advice for a pod with a PersistentVolumeClaim that has no volume. `claims` are the claims of the pod.

    >>> claim_advice(["data"], "ml")
    'Read why the claim is Pending (kubectl describe pvc data -n ml), for example because its StorageClass is missing.'
    """
    command = " ".join(["kubectl describe pvc", *claims, *(["-n", namespace] if namespace else [])])
    return f"Read why the claim is Pending ({command}), for example because its StorageClass is missing."


def init_container_advice(pod: str, container: str, namespace: str) -> str:
    """Returns the advice for an init container that does not exit.

    >>> init_container_advice("train-0", "fetch", "ml")
    'While the pod exists, read what the init container waits for (kubectl logs train-0 -c fetch -n ml).'
    """
    log = _container_log(pod, container, namespace)
    return f"While the pod exists, read what the init container waits for ({log})."


def failed_container_advice(pod: str, container: str, namespace: str) -> str:
    """Returns the advice for a container beside the ranks that failed, such as an init container.

    >>> failed_container_advice("train-0", "fetch", "ml")
    'Read its log (kubectl logs train-0 -c fetch -n ml), and correct the image, command or volumes of container fetch.'
    """
    log = _container_log(pod, container, namespace)
    return f"Read its log ({log}), and correct the image, command or volumes of container {container}."


def _container_log(pod: str, container: str, namespace: str) -> str:
    return f"kubectl logs {pod} -c {container}" + (f" -n {namespace}" if namespace else "")


def early_exit_advice(source: str) -> str:
    """Returns the advice for a rank that lost its peer after the rank `source` had exited with code 0."""
    return (
        f"Find out why {source} exited before the others: search the training code for sys.exit, os._exit and an early"
        " return, and check that all ranks run the same number of steps."
    )


def make_failure(kind: FailureKind, message: str, **known: Any) -> Failure:
    """Returns a failure. If `advice` is not given, the advice for its kind is used."""
    return Failure(kind, message, **{"advice": ADVICE[kind], **known})


def advice_for_error(error: str) -> str:
    """Returns the advice for the error of a rank, or "" if there is no advice for this particular error."""
    return next((advice for pattern, advice in _ADVICE_BY_ERROR if re.search(pattern, error)), "")
