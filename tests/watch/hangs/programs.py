"""Programs of which some ranks hang. `record.py` runs them with torch and stores the evidence."""

from __future__ import annotations

_HEAD = """
import os, sys, threading, time, subprocess
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
RANK = int(os.environ["RANK"])
"""

_TRAIN = """
model = DistributedDataParallel(torch.nn.Linear(4, 4))

def step(batch):
    model(batch).sum().backward()
"""

_JOIN = 'dist.init_process_group("gloo")\n'

PROGRAMS: dict[str, tuple[int, str]] = {
    "worker_sleeps": (
        4,
        _JOIN
        + _TRAIN
        + """
class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if RANK == 2 and index == 9:
            time.sleep(600)
        return torch.ones(4)

def train():
    for batch in torch.utils.data.DataLoader(Tokens(), batch_size=4, num_workers=2):
        step(batch)

train()
""",
    ),
    "data_set_sleeps": (
        3,
        _JOIN
        + _TRAIN
        + """
def load(index):
    if RANK == 1 and index == 3:
        time.sleep(600)
    return torch.ones(4, 4)

for index in range(8):
    step(load(index))
""",
    ),
    "locks": (
        2,
        _JOIN
        + _TRAIN
        + """
one, two = threading.Lock(), threading.Lock()

def background():
    with two:
        time.sleep(0.5)
        with one:
            pass

def save():
    threading.Thread(target=background, daemon=True).start()
    with one:
        time.sleep(0.5)
        with two:
            pass

for index in range(8):
    step(torch.ones(4, 4))
    if RANK == 1 and index == 2:
        save()
""",
    ),
    "other_collective": (
        2,
        _JOIN
        + """
values = torch.ones(8)
for index in range(4):
    dist.all_reduce(values)
if RANK == 0:
    dist.all_reduce(values)
else:
    dist.broadcast(values, src=0)
dist.barrier()
""",
    ),
    "order_of_groups": (
        2,
        _JOIN
        + """
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
values = torch.ones(8)
dist.all_reduce(values)
for group in (first, second) if RANK == 0 else (second, first):
    dist.all_reduce(values, group=group)
""",
    ),
    "leaves_early": (
        3,
        _JOIN
        + """
values = torch.ones(8)
dist.all_reduce(values)
if RANK == 1:
    os._exit(0)
dist.new_group([0, 1, 2])
""",
    ),
    "never_joins": (
        3,
        """
if RANK == 1:
    time.sleep(600)
"""
        + _JOIN,
    ),
    "endless_loop": (
        2,
        _JOIN
        + _TRAIN
        + """
def search(values):
    while True:
        values = sorted(values)

step(torch.ones(4, 4))
if RANK == 1:
    search(list(range(1000)))
step(torch.ones(4, 4))
""",
    ),
    "stopped": (
        2,
        _JOIN
        + """
values = torch.ones(8)
dist.all_reduce(values)
if RANK == 1:
    import signal
    os.kill(os.getpid(), signal.SIGSTOP)
dist.all_reduce(values)
""",
    ),
    "does_not_exit": (
        2,
        _JOIN
        + """
dist.all_reduce(torch.ones(8))

def upload():
    time.sleep(600)

if RANK == 1:
    threading.Thread(target=upload).start()
dist.destroy_process_group()
""",
    ),
    "recv_without_send": (
        2,
        _JOIN
        + """
values = torch.ones(8)
dist.all_reduce(values)
if RANK == 1:
    dist.recv(values, src=0)
dist.barrier()
""",
    ),
    "tensor_and_data_parallel": (
        4,
        _JOIN
        + """
tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][RANK // 2]
data = [dist.new_group([0, 2]), dist.new_group([1, 3])][RANK % 2]
values = torch.ones(8)

def shard(index):
    if RANK == 3 and index == 2:
        time.sleep(600)

for index in range(4):
    shard(index)
    dist.all_reduce(values, group=tensor)
    dist.all_reduce(values, group=data)
""",
    ),
    "subprocess": (
        2,
        _JOIN
        + """
values = torch.ones(8)

def convert():
    subprocess.run(["sleep", "600"])

dist.all_reduce(values)
if RANK == 0:
    convert()
dist.all_reduce(values)
""",
    ),
    "monitored_barrier": (
        2,
        _JOIN
        + """
def evaluate():
    read, write = os.pipe()
    os.read(read, 1)

if RANK == 1:
    evaluate()
from datetime import timedelta
dist.monitored_barrier(timeout=timedelta(seconds=600))
""",
    ),
}
"""name -> number of ranks, program."""


def source(name: str) -> str:
    """Returns the program `name`."""
    return _HEAD + PROGRAMS[name][1]
