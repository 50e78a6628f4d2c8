"""Provides the cluster of `make cluster`, and a directory that the pods of this cluster share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.testbed import handle
from tests.cluster.testbed.handle import Cluster
from tests.cluster.testbed.layout import TestbedError

from benchmarks.paired import Row


def with_cluster(measure: Callable[[Cluster], Iterable[Row]], *what: tuple[str, str]) -> Iterator[Row]:
    """Yields the rows that a benchmark measures on the test cluster.

    If there is no cluster, yields rows that state why nothing was measured.

    Args:
        measure: a function that measures and yields each row as soon as it is known.
        what: the first and third columns of the rows that `with_cluster` yields if there is no cluster.
    """
    try:
        cluster = handle.find()
        reason = "" if cluster.choice else "only on the cluster of `make cluster`"
    except TestbedError as error:
        reason = str(error).partition(":")[0]
    if reason:
        yield from (Row(each, f"not measured: {reason}", budget) for each, budget in what)
    else:
        yield from measure(cluster)


@contextmanager
def shared_directory() -> Iterator[Path]:
    """A context manager that creates a directory to which the pods can write, and deletes the directory afterwards.

    The pods run as the root user of this machine.
    """
    directory = Path(tempfile.mkdtemp(prefix="stepset-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
