"""Measures the time of planning and explaining a job with 1 to 10,000 nodes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.paired import Row
from stepset.frameworks import make_plan
from stepset.plan.explain import explain_plan
from stepset.spec import TrainingJob, parse_job
from stepset.targets.names import PodNames

NODES = (1, 100, 10_000)


def _median_ms(work: Callable[[], object], runs: int) -> float:
    samples = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples) * 1000


def _explain(job: TrainingJob) -> None:
    plan = make_plan(job)
    explain_plan(plan, PodNames(plan, job.name, job.name))


def rows() -> list[Row]:
    """Returns a row for each framework.

    A row contains the milliseconds for each number of nodes, and the ratio of the time for the most nodes to the time
    for the fewest nodes.
    """
    result = []
    for framework, budget in (("torch", "flat in num_nodes"), ("mpi", "")):
        jobs = [parse_job({"framework": framework, "script": "train.py", "num_nodes": n}) for n in NODES]
        times = [_median_ms(lambda job=job: _explain(job), 50 if job.num_nodes < 1000 else 10) for job in jobs]
        ratio = times[-1] / times[0]
        figures = ", ".join(f"{n:,}: {t:.2f} ms" for n, t in zip(NODES, times, strict=True))
        result.append(
            Row(
                f"plan + explain of a {framework} job, by nodes",
                f"{ratio:.1f} x from 1 to 10,000 nodes ({figures})",
                budget,
                ratio < 1.5 if budget else None,
            )
        )
    return result
