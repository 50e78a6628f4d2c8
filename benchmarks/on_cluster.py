"""What the benchmarks on a cluster share: the cluster of `make cluster`, or the line that says that it is not there."""

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
    """Measures on the test cluster.

    Args:
        measure: gives the rows, each when it is known.
        what: the rows' first and third columns, for when there is no cluster.
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
    """A directory that the pods can write to: they run as root of this machine."""
    directory = Path(tempfile.mkdtemp(prefix="stepset-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
