"""A data pipeline that consists of functions: extract -> fit on two nodes -> report.

The function `fit` contains the training code. Every rank calls `fit`. The next task gets the value that `fit` returns
in rank 0.
"""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.sdk import dag, task


@task
def extract() -> dict[str, Any]:
    """Returns a part of the digits as lists. In a real pipeline, this could be a query to a data warehouse."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return {"pixels": (digits.data[:400] / 16).round(2).tolist(), "labels": digits.target[:400].tolist()}


@task.distributed_train(framework="torch", num_nodes=2, procs_per_node=1, backend="local", multiple_outputs=True)
def fit(rows: dict[str, Any], steps: int = 60) -> dict[str, Any]:
    """Trains a softmax regression. Each rank reads a part of the rows, and all ranks average their gradients."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    pixels, labels = torch.tensor(rows["pixels"])[rank::size], torch.tensor(rows["labels"])[rank::size]
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    right = (model(pixels).argmax(1) == labels).float().mean()
    dist.all_reduce(right)
    dist.destroy_process_group()
    return {"accuracy": right.item() / size, "world_size": size}


@task
def report(accuracy: float) -> str:
    """Formats the accuracy. This is an example of a further step of the pipeline."""
    return f"fits {accuracy:.0%} of its digits"


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), tags=["stepset", "example"], doc_md=__doc__)
def digits_pipeline() -> None:
    """Defines the DAG."""
    report(fit(extract())["accuracy"])


pipeline = digits_pipeline()

if __name__ == "__main__":
    pipeline.test()
