"""The requirements of benchmarks on a cluster: the cluster of `make cluster`, and a directory shared with its pods."""

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
    """Measures on the test cluster; without a cluster, yields rows that state why nothing was measured.

    Args:
        measure: yields each row as soon as it is known.
        what: the first and third columns of the rows without a cluster.
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
    """Creates a directory that the pods, which run as this machine's root, can write to. Deletes it afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="stepset-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
