"""A job of several nodes whose command starts DeepSpeed's launcher as on one machine."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={
        "framework": "deepspeed",
        "num_nodes": 2,
        "command": ["deepspeed", "train.py", "--deepspeed_config", "ds.json"],
    },
    expected="The job is refused; before, each node trained alone, and the run succeeded.",
    source="deepspeed 0.19 launcher/runner.py, fetch_hostfile: without a host file, local resources only",
    refused=everywhere("command: deepspeed without --hostfile would train in each of the 2 nodes alone"),
)
