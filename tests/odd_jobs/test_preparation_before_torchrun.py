"""A job whose shell installs packages, and then starts torchrun as on one machine."""

from __future__ import annotations

from tests.odd_jobs import OddJob, everywhere

ODD_JOB = OddJob(
    job={
        "num_nodes": 2,
        "procs_per_node": 8,
        "command": [
            "bash",
            "-c",
            "cd /workspace && pip install -r requirements.txt\n"
            "OMP_NUM_THREADS=8 torchrun \\\n  --standalone \\\n  --nproc_per_node=8 \\\n  train.py 2>&1 | tee log\n",
        ],
    },
    expected="The job is refused; before, each node trained alone, and the run succeeded.",
    source="karpathy/nanoGPT README.md, 'reproducing GPT-2', started in the shell of a container",
    refused=everywhere("command: --standalone of torchrun would train in each of the 2 nodes alone"),
)
