"""Prints, for each number of nodes, the CPU milliseconds of a TorchX dry run of a DDP job: as objects, as YAML.

Runs in an environment with torchx[kubernetes]; called by benchmarks/render.py.
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
