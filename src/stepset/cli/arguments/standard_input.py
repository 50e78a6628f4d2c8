"""The standard input of `stepset run`. mpirun forwards the standard input to rank 0 of a local MPI job."""

from __future__ import annotations

import os
import select
import stat

from stepset.spec.job import TrainingJob


def standard_input(job: TrainingJob) -> int | None:
    """Returns the file descriptor of standard input for an MPI job. mpirun forwards standard input to rank 0.

    Returns None if the job is not an MPI job, or if standard input is not a file, a pipe or a socket.
    """
    if not job.needs_launcher:
        return None
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # standard input is closed
        return None
    return 0 if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def unread(job: TrainingJob) -> str | None:
    """Returns a note that the ranks on a cluster do not receive the content of standard input.

    Returns None if standard input is empty, or if the job is not an MPI job.
    """
    descriptor = standard_input(job)
    if descriptor is None or not has_data(descriptor):
        return None
    return (
        "standard input does not reach the ranks on a cluster; put the data into the job's code directory, or on a"
        " volume"
    )


def has_data(descriptor: int) -> bool:
    """Returns whether the file or the pipe with this descriptor contains unread bytes."""
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode):
        return os.lseek(descriptor, 0, os.SEEK_CUR) < about.st_size
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))
