"""A command whose torchrun has another number of nodes than the job."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={"num_nodes": 4, "command": ["python3", "-m", "torch.distributed.run", "--nnodes=1", "train.py"]},
    expected="The job is refused; before, torchrun used the flag instead of PET_NNODES, and waited for 10 minutes.",
    source="torch 2.15 distributed/argparse_util.py, env: an option takes precedence over its PET_ variable",
    refused=everywhere("command: --nnodes=1 of python3 -m torch.distributed.run contradicts num_nodes: 4; remove it"),
)
