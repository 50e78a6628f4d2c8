"""A job of several nodes whose command is that of one machine: `accelerate launch --num_machines 1`."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "command": ["accelerate", "launch", "--num_machines", "1", "--multi_gpu", "t.py"],
    },
    expected="The job is refused, because the command describes another world than the job.",
    source="accelerate 1.15 commands/launch.py, launch_command_parser: --num_machines",
    refused=everywhere("command: --num_machines 1 of accelerate launch contradicts num_nodes: 2; give the program as"),
)
