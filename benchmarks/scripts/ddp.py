"""A short DDP training script. benchmarks/local_run.py starts the script with `stepset run` and with torchrun."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    loss = model(torch.randn(64, 64)).square().mean()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
