"""Trains in a loop of steps. In step 5, rank 1 hangs in the way that the first argument names. Run by tests."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

CASE = sys.argv[1]
AT = 5


def planted() -> None:
    """Hangs, or works for a long time."""
    if CASE == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif CASE == "subprocess":
        subprocess.run(["sleep", "1000"], check=True)
    elif CASE == "pipe":
        os.read(os.pipe()[0], 1)
    elif CASE == "socket":
        own, other = socket.socketpair()
        own.recv(1)
        other.close()
    elif CASE == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif CASE == "gil":
        lock = ctypes.PyDLL(None).pthread_mutex_lock
        mutex = ctypes.create_string_buffer(64)
        lock(mutex)
        lock(mutex)
    elif CASE == "loop":
        while True:
            pass
    elif CASE == "evaluation":
        end = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < end:
            torch.rand(300, 300).matmul(torch.rand(300, 300)).sum().item()


class Data(Dataset[torch.Tensor]):
    """Forty tensors. If the case is `data` or `worker`, rank 1 waits for one of these."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if CASE in ("data", "worker") and index == AT and RANK == 1:
            time.sleep(1000)
        return torch.ones(4)


def mismatched(group: dist.ProcessGroup) -> None:
    """The ranks disagree about a collective."""
    if CASE == "kind":
        if RANK:
            dist.broadcast(torch.ones(4), 0)
        else:
            dist.all_reduce(torch.ones(4))
    elif CASE == "size":
        dist.broadcast(torch.ones(4 if RANK else 1 << 20), 1 if RANK else 0)
    elif CASE == "order":
        for each in (group, None) if RANK else (None, group):
            dist.all_reduce(torch.ones(4), group=each)


dist.init_process_group("gloo")
RANK = dist.get_rank()
second_group = dist.new_group([0, 1], group_desc="second")
for step, batch in enumerate(DataLoader(Data(), num_workers=1 if CASE == "worker" else 0)):
    if step == AT:
        if RANK == 1:
            planted()
        if CASE == "left":
            if RANK == 1:
                os._exit(0)
            dist.distributed_c10d._get_default_store().get("of rank 1")
        mismatched(second_group)
    dist.all_reduce(batch)
    if CASE == "slow":
        time.sleep(float(sys.argv[2]))
    print("step", step, flush=True)
