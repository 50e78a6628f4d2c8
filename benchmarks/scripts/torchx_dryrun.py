"""Prints the CPU milliseconds of a TorchX dry run of a DDP job, for each number of nodes.

There are two times: the time until the dry run has created the objects, and the time until the dry run has created the
YAML text.
benchmarks/render.py starts this program in an environment with torchx[kubernetes].
"""

import statistics
import sys
import time

from torchx.components.dist import ddp
from torchx.schedulers.kubernetes_scheduler import create_scheduler

RUNS = 20

scheduler = create_scheduler("bench")
for nodes in map(int, sys.argv[1:]):
    medians = []
    for as_text in (False, True):
        samples = []
        for _ in range(RUNS):
            start = time.process_time()
            size = f"{nodes}x8"
            app = ddp("--epochs", "3", m="train", image="train:1", j=size, name="digits", cpu=8, memMB=16384)
            info = scheduler.submit_dryrun(app, {"queue": "default", "namespace": "ml"})
            if as_text:
                str(info)
            samples.append(time.process_time() - start)
        medians.append(statistics.median(samples) * 1000)
    print(nodes, *medians, flush=True)
