"""Standard input of `stepset run`, which rank 0 of a local MPI job reads as under mpirun."""

from __future__ import annotations

import os
import select
import stat

from stepset.spec.job import TrainingJob


def standard_input(job: TrainingJob) -> int | None:
    """Returns the descriptor that an MPI job's mpirun reads; None without a file or a pipe, and for other jobs."""
    if not job.needs_launcher:
        return None
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # closed
        return None
    return 0 if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def unread(job: TrainingJob) -> str | None:
    """Returns the note that the ranks on a cluster do not read what standard input contains; None if it is empty."""
    descriptor = standard_input(job)
    if descriptor is None or not has_data(descriptor):
        return None
    return (
        "standard input does not reach the ranks on a cluster; put the data into the job's code directory, or on a"
        " volume"
    )


def has_data(descriptor: int) -> bool:
    """Whether the file has more bytes, or the pipe has some now."""
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode):
        return os.lseek(descriptor, 0, os.SEEK_CUR) < about.st_size
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))
